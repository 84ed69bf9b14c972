"""What clients have done in threads: fair by principal, bounded, forgotten with its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S

from plimsoll_broker.server import fair_work
from plimsoll_broker.server.connection_state import SERVING, CloseConnection, ConnectionState
from plimsoll_broker.server.fair_work import FairWork, UsedTime
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_wire.parts import BETWEEN_PARTS, PART, in_parts


def connection_of(user: str) -> ConnectionState:
    connection = ConnectionState()
    connection.logged_in_as(f"User:{user}")
    return connection


class Held:
    """Work that ends when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(WAIT_S)


def asks(work: FairWork, connection: ConnectionState, what: Callable[[], Any]) -> asyncio.Task[Any]:
    SERVING.set(connection)
    task = asyncio.ensure_future(work.do(what))
    SERVING.set(None)
    return task


async def test_principal_with_much_work_leaves_threads_for_others() -> None:
    work, hostile = FairWork(threads=4), connection_of("mallory")
    held = [Held() for _ in range(10)]
    tasks = [asks(work, hostile, one) for one in held]
    await until(lambda: held[1].begun.is_set())
    assert await asks(work, connection_of("victim"), lambda: "done") == "done"
    assert sum(one.begun.is_set() for one in held) == 2
    for one in held:
        one.may_end.set()
    await asyncio.gather(*tasks)
    assert (work.threads.used, work.waiting.used) == (0, 0)


async def test_new_principal_gets_thread_despite_many_waiting() -> None:
    """None has more than one where there are many."""
    work = FairWork(threads=4)
    held = [Held() for _ in range(12)]
    tasks = [asks(work, connection_of(f"user-{n % 6}"), one) for n, one in enumerate(held)]
    await until(lambda: work.threads.used == 4)
    assert work.threads.principals >= 3
    for one in held:
        one.may_end.set()
    await asyncio.gather(*tasks)


class ClockOfThreads:
    """Processor time as works say that they used it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.done: list[str] = []
        monkeypatch.setattr(fair_work.time, "thread_time_ns", lambda: self.now_ns)

    def takes(self, name: str, ns: int) -> Callable[[], None]:
        def work() -> None:
            self.now_ns += ns
            self.done.append(name)

        return work


async def test_principal_that_used_least_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By turns, one long piece of work would count as much as a short one."""
    clock, work = ClockOfThreads(monkeypatch), FairWork(threads=1)
    hostile, victim, first = connection_of("mallory"), connection_of("victim"), Held()
    tasks = [asks(work, connection_of("other"), first)]
    await until(first.begun.is_set)
    tasks += [asks(work, hostile, clock.takes("long", 100)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks += [asks(work, victim, clock.takes("short", 10)) for _ in range(12)]
    await asyncio.sleep(0)
    first.may_end.set()
    await asyncio.gather(*tasks)
    assert clock.done == ["long", *["short"] * 10, "long", *["short"] * 2, "long"]
    assert work.used.seconds() == {
        "User:mallory": 300e-9,
        "User:victim": 120e-9,
        "User:other": 0.0,
    }


async def test_principal_that_comes_back_saved_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins where the others are, however long it asked for nothing."""
    clock, work = ClockOfThreads(monkeypatch), FairWork(threads=1)
    busy, late, first, third = connection_of("busy"), connection_of("late"), Held(), Held()
    tasks = [asks(work, connection_of("other"), first)]
    await until(first.begun.is_set)
    takes = clock.takes("busy", 100)
    of_busy = [takes, takes, lambda: (third(), takes()), takes, takes]
    tasks += [asks(work, busy, one) for one in of_busy]
    await asyncio.sleep(0)
    first.may_end.set()
    await until(third.begun.is_set)
    tasks += [asks(work, late, clock.takes("late", 100)) for _ in range(5)]
    await asyncio.sleep(0)
    third.may_end.set()
    await asyncio.gather(*tasks)
    assert "".join(name[0] for name in clock.done) == "bbblblblll"


async def test_work_of_lost_connection_is_dropped() -> None:
    work, connection, first = FairWork(threads=1), connection_of("alice"), Held()
    begun = asks(work, connection, first)
    await until(first.begun.is_set)
    done: list[int] = []
    waiting = [asks(work, connection, lambda: done.append(1)) for _ in range(5)]
    await until(lambda: work.waiting.used == 5)
    connection.lost()
    for task in waiting:
        with pytest.raises(CloseConnection, match="gone"):
            await task
    assert (work.waiting.used, work.dropped, done) == (0, 5, [])
    first.may_end.set()
    await begun
    assert work.threads.used == 0


async def test_cancelled_work_returns_its_place() -> None:
    work, first = FairWork(threads=1), Held()
    begun = asks(work, connection_of("alice"), first)
    await until(first.begun.is_set)
    waiting = [asks(work, connection_of("bob"), lambda: None) for _ in range(3)]
    await until(lambda: work.waiting.used == 3)
    waiting[0].cancel()
    first.may_end.set()
    await begun
    waiting[1].cancel()  # its turn may have come already
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in results][::2] == [True, False]
    assert (work.threads.used, work.waiting.used) == (0, 0)


async def test_waiting_work_is_bounded_by_a_share_each() -> None:
    work, first = FairWork(threads=1, waiting_max=64), Held()
    begun = asks(work, connection_of("mallory"), first)
    await until(first.begun.is_set)
    hostile = [asks(work, connection_of("mallory"), lambda: None) for _ in range(40)]
    await until(lambda: work.waiting.refused == 8)
    victim = asks(work, connection_of("victim"), lambda: "done")
    await until(lambda: work.waiting.held("User:victim") == 1)
    first.may_end.set()
    await begun
    assert await victim == "done"
    results = await asyncio.gather(*hostile, return_exceptions=True)
    assert [str(one) for one in results if one is not None] == ["too-much-waiting"] * 8


async def test_principal_rests_after_work_waited_for_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are served meanwhile, and it is served when it has rested."""
    monkeypatch.setattr(fair_work, "REST_S_MAX", 3_600.0)
    work, hostile = FairWork(), connection_of("mallory")
    waits = iter([0, 500_000])
    work.thread_waited_ms = lambda: next(waits, 500_000)
    await asks(work, hostile, lambda: None)
    assert work.rested_s == 500 * fair_work.RESTS
    later = [asks(work, hostile, lambda: "later") for _ in range(2)]
    assert await asks(work, connection_of("victim"), lambda: "at once") == "at once"
    assert work.waiting.held("User:mallory") == 2
    work._rested("User:mallory")
    assert await asyncio.gather(*later) == ["later", "later"]


async def test_thread_pauses_between_parts_of_a_long_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time it waited; what it does not rest there its principal rests afterwards."""
    pauses: list[float] = []
    monkeypatch.setattr(fair_work.time, "sleep", pauses.append)
    monkeypatch.setattr(fair_work, "PAUSE_EVERY_S", 0.0)
    work = FairWork()
    waits = iter([0, 2, 2, 10])
    work.thread_waited_ms = lambda: next(waits, 10)
    items = list(range(4 * PART))
    assert await asks(work, connection_of("mallory"), lambda: list(in_parts(items))) == items
    rests = fair_work.RESTS
    assert pauses == pytest.approx([0.002 * rests, 0.02, 0.008 * rests - 0.02])
    assert work.rested_s == pytest.approx(0.010 * rests)
    assert BETWEEN_PARTS.get()() is None


async def test_rest_is_bounded_and_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_work, "REST_S_MAX", 0.001)
    work, connection = FairWork(), connection_of("alice")
    waits = iter(range(0, 10**9, 10**6))
    work.thread_waited_ms = lambda: next(waits)
    for _ in range(3):
        await asks(work, connection, lambda: None)
    assert work.rested_s == pytest.approx(0.003)


async def test_work_before_login_counts_for_the_address() -> None:
    work, connection = FairWork(), ConnectionState()
    connection.address = "10.0.0.7"
    connection.logged_in_as(ANONYMOUS)
    await asks(work, connection, lambda: None)
    assert list(work.used.seconds()) == ["10.0.0.7"]


def test_processor_time_is_remembered_of_a_bounded_number() -> None:
    used = UsedTime()
    for number in range(5 * fair_work.REMEMBERED_MAX):
        used.add(f"User:{number}", 1)
    used.add("User:mallory", 1_000_000_000)
    assert len(used._ns) <= fair_work.REMEMBERED_MAX
    assert len(used.seconds()) == fair_work.SHOWN_MAX
    assert used.seconds()["User:mallory"] == 1.0
    total = sum(used.seconds().values()) + used.others_s()
    assert total == pytest.approx(1.0 + 5 * fair_work.REMEMBERED_MAX / 1e9)
