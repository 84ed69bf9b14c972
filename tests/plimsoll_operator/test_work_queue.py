"""Our reconcile queue: no key twice at a time, no change lost, failures with backoff."""

import asyncio

import pytest

from plimsoll_operator.reconcile import work_queue
from plimsoll_operator.reconcile.work_queue import PassFailed, ReconcileQueue, Retry, backoff_ms


async def started(queue: ReconcileQueue[str]) -> asyncio.Task[None]:
    return asyncio.create_task(queue.run())


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_keys_added_while_waiting_are_handled_once():
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if key == "last":
            done.set()

    queue = ReconcileQueue(handle, workers=1)
    for key in ("a", "a", "b", "a", "last"):
        queue.add(key)
    task = await started(queue)
    await asyncio.wait_for(done.wait(), 30)
    await stopped(task)
    assert handled == ["a", "b", "last"]


async def test_key_added_during_run_runs_again():
    running = 0
    rounds = 0
    entered, release, twice = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal running, rounds
        running += 1
        rounds += 1
        assert running == 1
        entered.set()
        await release.wait()
        running -= 1
        if rounds == 2:
            twice.set()

    queue = ReconcileQueue(handle)
    task = await started(queue)
    queue.add("a")
    await asyncio.wait_for(entered.wait(), 30)
    queue.add("a")
    release.set()
    await asyncio.wait_for(twice.wait(), 30)
    await stopped(task)


async def test_refused_key_comes_again_by_itself():
    attempts = 0
    done = asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise Retry("not yet", after_ms=1)
        done.set()

    queue = ReconcileQueue(handle)
    queue.add("a")
    task = await started(queue)
    await asyncio.wait_for(done.wait(), 30)
    await stopped(task)


async def test_handlers_bug_is_not_swallowed():
    async def handle(key: str) -> None:
        raise AssertionError("a bug")

    queue = ReconcileQueue(handle)
    queue.add("a")
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(queue.run(), 30)
    assert raised.group_contains(AssertionError, match="a bug")


def test_backoff_doubles_and_is_bounded():
    assert [backoff_ms(n) for n in (1, 2, 3, 7, 100)] == [1_000, 2_000, 4_000, 60_000, 60_000]


async def test_key_with_bug_waits_for_backoff(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(work_queue, "BACKOFF_MS", 600_000)
    handled: list[str] = []
    failed, done = asyncio.Event(), asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if key == "bad":
            queue.add("bad")  # as the status that tells of it does
            failed.set()
            raise PassFailed("a bug")
        done.set()

    queue = ReconcileQueue(handle, workers=1)
    task = await started(queue)
    queue.add("bad")
    await asyncio.wait_for(failed.wait(), 30)
    queue.add("good")
    await asyncio.wait_for(done.wait(), 30)
    queue.add("bad")
    done.clear()
    queue.add("good")
    await asyncio.wait_for(done.wait(), 30)
    assert handled == ["bad", "good", "good"]
    await stopped(task)


async def test_repeated_retry_is_logged_once(caplog: pytest.LogCaptureFixture):
    """A pass that waits comes twice a second; only another reason is news."""
    caplog.set_level("INFO", logger="plimsoll.queue")
    reasons = iter(["waits"] * 5 + ["other"] * 2)
    done = asyncio.Event()

    async def handle(key: str) -> None:
        if (why := next(reasons, None)) is None:
            done.set()
            return
        raise Retry(why, after_ms=1)

    queue = ReconcileQueue(handle, workers=1)
    queue.add("a")
    task = await started(queue)
    await asyncio.wait_for(done.wait(), 30)
    await stopped(task)
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["waits", "other"]


async def test_namespaces_take_turns_behind_the_cluster() -> None:
    """Who patched 1,000 objects in a loop put the LogCluster and all others behind a round."""
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if len(handled) == 8:
            done.set()

    def turn_of(key: str) -> str | None:
        namespace = key.partition("/")[0]
        return None if namespace == "cluster" else namespace

    queue = ReconcileQueue(handle, workers=1, turn_of=turn_of)
    for key in ("a/1", "a/2", "a/3", "a/4", "b/1", "c/1", "cluster/main", "cluster/rolls"):
        queue.add(key)
    task = await started(queue)
    await asyncio.wait_for(done.wait(), 30)
    await stopped(task)
    assert handled[:2] == ["cluster/main", "cluster/rolls"]
    assert handled[2:] == ["a/1", "b/1", "c/1", "a/2", "a/3", "a/4"]
