"""What time does to partitions, and followers that meet a log which changed meanwhile."""

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.plimsoll_broker.no_fetchers import NoFetchers
from tests.plimsoll_broker.test_replication import kill, same_logs, until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Client, Controller, a_batch

from plimsoll_broker.replication import fetcher, periodic_chores
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_broker.storage.log_values import Flush
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicObjectGone

pytestmark = pytest.mark.usefixtures("small_segments")

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]
SMALL = {"segment.bytes": "2000", "retention.bytes": "3000", "retention.ms": "-1"}


async def too_large_log(controller: Controller, one: Broker) -> Client:
    """The topic `t` on broker 0, which has ten batches and is larger than it may be."""
    controller.create("t", (0,), **SMALL)
    client = await one.client()
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900))
    return client


async def test_size_retention_moves_log_start_for_consumers(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    client = await too_large_log(controller, one)
    await PeriodicChores(one.manager)._retain()
    log = one.hosted("t").log
    assert 0 < log.log_start_offset < 10
    assert log.size < 6_000
    assert (await client.fetch("t", 0)).code == Code.OFFSET_OUT_OF_RANGE
    assert await client.latest("t", timestamp=-2) == (Code.NONE, log.log_start_offset)


async def test_retention_waits_for_durable_log_start(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    await too_large_log(controller, one)
    log, removed = one.hosted("t").log, []
    remove = Disk.remove

    def noted(disk: Disk, path: Path) -> None:
        if path.suffix == ".log":
            removed.append(path)
            saved = checkpoint_formats.decode_offsets(
                (one.directory / checkpoint_formats.LOG_STARTS).read_bytes()
            )
            assert saved == {("t", 0): log.log_start_offset}
        remove(disk, path)

    monkeypatch.setattr(Disk, "remove", noted)
    await PeriodicChores(one.manager)._retain()
    assert len(removed) > 1
    assert log.segments[0].base_offset == log.log_start_offset > 0


async def test_retention_frees_room_to_save_start(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await too_large_log(controller, one := await broker(0).start())
    log, disk_calls = one.hosted("t").log, []
    third = log.segments[2].base_offset

    def full(disk: Disk, path: Path, data: bytes, *, sync: bool) -> None:
        raise StorageError(StorageFault.FULL, path, "no space")

    def noted(plain: Callable[[Disk, Path], None], name: str) -> Callable[[Disk, Path], None]:
        def call(disk: Disk, path: Path) -> None:
            if path.suffix == ".log" or path == log.directory:
                disk_calls.append(name)
            plain(disk, path)

        return call

    monkeypatch.setattr(Disk, "replace", full)
    monkeypatch.setattr(Disk, "remove", noted(Disk.remove, "remove"))
    monkeypatch.setattr(Disk, "sync_directory", noted(Disk.sync_directory, "sync_directory"))
    for _ in range(2):
        await PeriodicChores(one.manager)._retain()
    assert disk_calls == ["sync_directory", "remove"] * 2
    assert not (one.directory / checkpoint_formats.BEGINNINGS).exists(), "it would accuse the log"
    assert log.segments[0].base_offset == third


async def test_retention_never_drops_what_is_not_committed(
    controller: Controller, three: Three
) -> None:
    for follower in three[1:]:
        follower.manager.fetchers = NoFetchers()
    controller.create("t", (0, 1, 2), **SMALL)
    client = await three[0].client()
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900), acks=1)
    await PeriodicChores(three[0].manager)._retain()
    assert three[0].hosted("t").log.log_start_offset == 0


async def test_s37_follower_below_leader_start_restarts_there(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", (0, 1, 2), **SMALL)
    client = await three[0].client()
    await client.produce("t", a_batch(1, filler=900))
    await kill(three[2])
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900))
    await PeriodicChores(three[0].manager)._retain()
    start = three[0].hosted("t").log.log_start_offset
    assert start > 1
    back = await broker(2).start()
    await until(lambda: 2 in controller.partition("t").isr)
    assert back.hosted("t").log.log_start_offset == start
    assert same_logs("t", three[0], back)


async def test_followers_take_over_the_leaders_start(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2), **SMALL)
    client = await three[0].client()
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900))
    await PeriodicChores(three[0].manager)._retain()
    start = three[0].hosted("t").log.log_start_offset
    await until(lambda: all(b.hosted("t").log.log_start_offset == start for b in three))


async def test_batch_damaged_on_its_way_is_fetched_again(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create("t", (0, 1, 2))
    checked: list[int] = []
    check = fetcher.check_crc

    def damaged_once(data: memoryview, position: int, length: int) -> bool:
        checked.append(position)
        return len(checked) > 2 and check(data, position, length)

    monkeypatch.setattr(fetcher, "check_crc", damaged_once)
    client = await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    assert same_logs("t", *three)


async def test_flush_ms_moves_the_recovery_point(controller: Controller, broker: Make) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **{"flush.ms": "0"})
    client = await one.client()
    await client.produce("t", a_batch(3))
    await PeriodicChores(one.manager)._flush()
    assert one.hosted("t").log.recovery_point == 3


async def test_failed_sync_takes_the_partition_out_of_service(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **{"flush.ms": "0"})
    client = await one.client()
    await client.produce("t", a_batch(3))

    def broken(_: object) -> None:
        raise StorageError(StorageFault.IO, path, "gone")

    file = one.hosted("t").log.segments[-1].file
    path = file.path
    monkeypatch.setattr(file.__class__, "fsync", broken)
    await PeriodicChores(one.manager)._flush()
    monkeypatch.undo()
    assert (await client.produce("t", a_batch(1)))[0] == Code.KAFKA_STORAGE_ERROR


async def test_checkpoints_are_on_disk_before_a_crash(controller: Controller, broker: Make) -> None:
    one = await broker(0).start()
    controller.create("t", (0,))
    client = await one.client()
    await client.produce("t", a_batch(3))
    await PeriodicChores(one.manager)._checkpoint()
    text = (one.directory / "replication-offset-checkpoint").read_text()
    assert text.split("\n")[2] == "t 0 3"


async def test_log_recovery_does_not_block_the_event_loop(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte of small batches takes seconds to check: heartbeats must not wait for it."""
    one = await broker(0).start()
    controller.create("t", (0,))
    await until(lambda: len(one.manager) == 1)
    heard = threading.Event()
    waited: list[bool] = []
    monkeypatch.setattr(one.store, "open_early", lambda *_: waited.append(heard.wait(WAIT_S)))
    asyncio.get_running_loop().call_later(0, heard.set)
    await one.path.load(controller.image)
    assert waited == [True]


async def test_checkpoint_follows_too_many_unflushed_bytes(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log with much that is not synced gets a checkpoint in the middle of its segment."""
    monkeypatch.setattr(periodic_chores, "UNCHECKED_BYTES_MAX", 5_000)
    one = await broker(0).start()
    controller.create("much", (0,))
    controller.create("little", (0,))
    client = await one.client()
    for _ in range(10):
        assert (await client.produce("much", a_batch(1, filler=900)))[0] == Code.NONE
    assert (await client.produce("little", a_batch(1)))[0] == Code.NONE
    await PeriodicChores(one.manager)._recovery_points()
    assert one.hosted("much").log.recovery_point == 10
    assert one.hosted("little").log.recovery_point == 0
    assert (one.directory / "much-0" / f"{10:020d}.snapshot").exists()
    text = (one.directory / "recovery-point-offset-checkpoint").read_text()
    assert sorted(text.split("\n")[2:4]) == ["little 0 0", "much 0 10"]


async def test_upkeep_runs_every_chore_in_its_time(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,))
    ran: list[str] = []
    work = PeriodicChores(one.manager)
    chores = [chore for together in work._chores.values() for chore in together]
    for chore in chores:
        name = chore.run.__name__

        async def note(name: str = name) -> None:
            ran.append(name)

        chore.run, chore.period_ms, chore.due_ms = note, 1, 0
    tasks = [asyncio.create_task(each) for _, each in work.tasks()]
    await until(lambda: len(set(ran)) == len(chores))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_sync_overtaken_by_deletion_writes_nothing(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is deleted and made again while its old log is being synced in a thread."""
    one = await broker(0).start()
    controller.create("t", (0,))
    await (await one.client()).produce("t", a_batch(3))
    old = one.hosted("t")
    began, may_end = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        began.set()
        assert may_end.wait(10)

    monkeypatch.setattr(Flush, "sync", slow)
    work = asyncio.create_task(one.manager.flusher.sync(old))
    await until(began.is_set)
    controller.request(
        TopicObjectGone(
            object=TopicObject(namespace="test", name="t", uid="t"),
            server_now_ms=1,
            grace_ms=0,
            removals_per_hour_max=1,
        )
    )
    controller.create("t", (0,))
    await until(lambda: one.manager.by_name("t", 0) not in (None, old))
    may_end.set()
    await work
    assert not (one.hosted("t").log.directory / "leader-epoch-checkpoint").exists()


async def test_slow_syncs_delay_no_timeouts(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of many logs on a slow disk: who waits is told in time all the same."""
    for name, value in (("UNCHECKED_BYTES_MAX", 0), ("RECOVERY_POINTS_MS", 1)):
        monkeypatch.setattr(periodic_chores, name, value)
    began, may_end = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        began.set()
        assert may_end.wait(WAIT_S)

    leader = await broker(0).start(**{"replica.lag.time.max.ms": "500"})
    leader.manager.around.lag_time_max_ms = 3_600_000  # nobody lags yet, however long this takes
    follower = await broker(1).start()
    controller.create("t", (0, 1))
    client = await leader.client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    monkeypatch.setattr(Flush, "sync", slow)
    try:
        await until(began.is_set)
        follower.manager.fetchers = NoFetchers()
        await follower.path.fetchers.close()
        answer = await client.produce("t", a_batch(1), timeout_ms=50)
        assert answer[0] == Code.REQUEST_TIMED_OUT
        leader.manager.around.lag_time_max_ms = 1
        await until(lambda: controller.partition("t").isr == (0,))
        assert not may_end.is_set()
    finally:
        may_end.set()


async def test_checkpoint_syncs_several_logs_at_a_time(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_chores, "UNCHECKED_BYTES_MAX", 0)
    one = await broker(0).start()
    controller.create("t", *[(0,)] * 4)
    client = await one.client()
    for index in range(4):
        assert (await client.produce("t", a_batch(1), index=index))[0] == Code.NONE
    together = threading.Barrier(4)
    monkeypatch.setattr(Flush, "sync", lambda _: together.wait(WAIT_S))
    await PeriodicChores(one.manager)._recovery_points()
    assert [one.hosted("t", index).log.recovery_point for index in range(4)] == [1] * 4


async def test_periodic_work_never_blocks_event_loop(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **SMALL)
    controller.create("timed", (0,), **{"flush.ms": "0", "retention.ms": "-1"})
    client = await one.client()
    await until(lambda: one.store.begin_new() is None)
    for _ in range(10):
        assert (await client.produce("t", a_batch(1, filler=900)))[0] == Code.NONE
        assert (await client.produce("timed", a_batch(1)))[0] == Code.NONE
    work = PeriodicChores(one.manager)
    with no_sync_in_this_thread(monkeypatch):
        await work._checkpoint()
        await work._recovery_points()
        await work._flush()
        one.hosted("t").log.advance_log_start(5)
        await work._retain()
        await work._recovery_points()
    assert one.hosted("t").log.log_start_offset > 0


@contextmanager
def no_sync_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    me, found = threading.get_ident(), []
    with monkeypatch.context() as patched:
        for name in ("fsync", "fdatasync"):
            plain = getattr(os, name)

            def noted(fd: int, plain: Callable[[int], None] = plain) -> None:
                if threading.get_ident() == me:
                    found.append("".join(traceback.format_stack(limit=8)))
                plain(fd)

            patched.setattr(os, name, noted)
        yield
    assert not found, found[0]


@pytest.mark.parametrize("together", [False, True], ids=["alone", "among several"])
async def test_chore_with_failing_disk_ends_when_cancelled(
    controller: Controller, broker: Make, together: bool
) -> None:
    """The broker's stop waited for it for ever."""
    one = await broker(0).start()
    begun, may_end = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        assert may_end.wait(WAIT_S)
        raise StorageError(StorageFault.IO, one.directory, "it failed")

    async def chore() -> None:
        if together:
            await periodic_chores.several([1], lambda _: periodic_chores.in_thread(fail))
        else:
            await periodic_chores.in_thread(fail)

    kept = PeriodicChores(one.manager)
    task = asyncio.ensure_future(kept._keep([kept._chore(1, chore)]))
    await asyncio.to_thread(begun.wait, WAIT_S)
    task.cancel()
    may_end.set()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_only_partitions_with_waiting_requests_are_visited(
    controller: Controller, three: Three
) -> None:
    for follower in three[1:]:
        follower.manager.fetchers = NoFetchers()
    controller.create("t", (0, 1, 2))
    controller.create("idle", (0, 1, 2))
    client = await three[0].client()
    manager, hosted = three[0].manager, three[0].hosted("t")
    assert manager.awaited == {}
    code, _ = await client.produce("t", a_batch(1), timeout_ms=1)
    assert code == Code.REQUEST_TIMED_OUT, "a chore found it"
    assert set(manager.awaited) <= {hosted}
    await PeriodicChores(manager)._expire_waiters()
    assert manager.awaited == {}
