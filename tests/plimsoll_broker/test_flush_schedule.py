"""flush.messages: an answer waits for the disks, and no other request does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from tests.plimsoll_broker.test_periodic_chores import no_sync_in_this_thread
from tests.plimsoll_broker.test_replication import kill, until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_broker.replication.flush_schedule import Flusher
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log_values import Flush
from plimsoll_core.errors import Code

Make = Callable[[int], Broker]
SAFE = {"flush.messages": "1"}


class Gate:
    """Flushes of one broker wait here."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()


@contextmanager
def gated(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    plain = Flush.sync

    def sync(flush: Flush) -> None:
        if flush.files[0].path.is_relative_to(broker.directory):
            gate.reached.set()
            assert gate.opened.wait(WAIT_S)
        plain(flush)

    with monkeypatch.context() as patched:
        patched.setattr(Flush, "sync", sync)
        try:
            yield gate
        finally:
            gate.opened.set()


@pytest.mark.parametrize("acks", [1, -1])
async def test_answer_waits_only_for_its_partitions_flush(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    one = await broker(0).start()
    controller.create("safe", (0,), **SAFE)
    controller.create("quick", (0,))
    client, other = await one.client(), await one.client()
    with gated(one, monkeypatch) as gate:
        answer = asyncio.create_task(client.produce("safe", a_batch(2), acks=acks))
        await until(gate.reached.is_set)
        assert await other.produce("quick", a_batch(1)) == (Code.NONE, 0)
        assert (await other.fetch("safe", 0)).high_watermark == 0
        assert not answer.done()
        gate.opened.set()
        assert await answer == (Code.NONE, 0)
    assert one.hosted("safe").log.recovery_point == 2


async def test_produces_during_flush_share_the_next(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("safe", (0,), **SAFE)
    clients = [await one.client() for _ in range(5)]
    flushes: list[int] = []
    with gated(one, monkeypatch) as gate:
        plain = type(one.hosted("safe").log).flushed

        def flushed(log: object, flush: Flush) -> None:
            flushes.append(flush.up_to_offset)
            plain(log, flush)  # type: ignore[arg-type]

        monkeypatch.setattr(type(one.hosted("safe").log), "flushed", flushed)
        first = asyncio.create_task(clients[0].produce("safe", a_batch(1)))
        await until(gate.reached.is_set)
        rest = [asyncio.create_task(each.produce("safe", a_batch(1))) for each in clients[1:]]
        await until(lambda: one.hosted("safe").log.log_end_offset == 5)
        gate.opened.set()
        answers = await asyncio.gather(first, *rest)
    assert {code for code, _ in answers} == {Code.NONE}
    assert flushes == [1, 5]


async def test_follower_acknowledges_only_what_is_on_its_disk(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = await broker(0).start(), await broker(1).start()
    controller.create("safe", (0, 1), **SAFE)
    client = await leader.client()
    assert await client.produce("safe", a_batch(1)) == (Code.NONE, 0)
    with gated(follower, monkeypatch) as gate:
        answer = asyncio.create_task(client.produce("safe", a_batch(1)))
        await until(gate.reached.is_set)
        assert follower.hosted("safe").log.log_end_offset == 2
        await until(lambda: leader.hosted("safe").log.recovery_point == 2)
        progress = leader.hosted("safe").replica.leader.followers[1]  # type: ignore[union-attr]
        assert progress.log_end == 1
        assert leader.hosted("safe").replica.high_watermark == 1
        gate.opened.set()
        assert await answer == (Code.NONE, 1)
    assert follower.hosted("safe").log.recovery_point == 2


async def test_follower_that_was_killed_flushes_before_it_asks(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel kept of it may never have been on the disk."""
    leader, follower = await broker(0).start(), await broker(1).start()
    controller.create("safe", (0, 1), **SAFE)
    client = await leader.client()
    await client.produce("safe", a_batch(1))
    await kill(follower)
    again = broker(1)
    with gated(again, monkeypatch) as gate:
        await again.start()
        await until(gate.reached.is_set)
        assert again.hosted("safe").log.log_end_offset == 1
        assert 1 not in controller.partition("safe").isr
        gate.opened.set()
        await until(lambda: 1 in controller.partition("safe").isr)


async def test_failed_flush_takes_partition_out_of_service(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("safe", (0,), **SAFE)
    client = await one.client()

    def broken(flush: Flush) -> None:
        raise StorageError(StorageFault.IO, flush.files[0].path, "gone")

    monkeypatch.setattr(Flush, "sync", broken)
    assert (await client.produce("safe", a_batch(1)))[0] == Code.KAFKA_STORAGE_ERROR
    monkeypatch.undo()


async def test_flush_is_never_made_in_the_event_loop(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = await broker(0).start(), await broker(1).start()
    controller.create("safe", (0, 1), **SAFE)
    client = await leader.client()
    assert await client.produce("safe", a_batch(1)) == (Code.NONE, 0)
    with no_sync_in_this_thread(monkeypatch):
        for offset in range(1, 5):
            assert await client.produce("safe", a_batch(1)) == (Code.NONE, offset)
        assert (await client.produce("safe", a_batch(1), acks=1))[0] == Code.NONE


async def test_flush_messages_counts_from_when_it_is_set(
    controller: Controller, broker: Make
) -> None:
    """A topic that gets the config later: what is there already is flushed, too."""
    one = await broker(0).start()
    controller.create("t", (0,))
    client = await one.client()
    await client.produce("t", a_batch(3))
    assert one.hosted("t").log.recovery_point == 0
    hosted = one.hosted("t")
    hosted.topic = None
    controller.create("other", (0,))
    one.manager.settings.configs["log.flush.interval.messages"] = "1"  # type: ignore[index]
    controller.create("third", (0,))
    await until(lambda: one.hosted("t").log.recovery_point == 3)


class StandingDisk:
    """`FlushOwner` of one log whose flushes never end."""

    def __init__(self) -> None:
        self.driver: Any = self
        self.begun = asyncio.Event()
        self.touched: list[Any] = []

    async def flush(self, _: Any, *, checkpoint: bool) -> None:
        self.begun.set()
        await asyncio.Event().wait()

    def is_here(self, _: Any) -> bool:
        return True

    def touch(self, hosted: Any) -> None:
        self.touched.append(hosted)


async def test_flusher_continues_after_cancelled_request() -> None:
    """What was appended meanwhile asked for nothing: a flush of its log was under way."""
    owner = StandingDisk()
    flusher = Flusher(owner)
    hosted: Any = Mock(replica=Mock(failed=False))
    asker = asyncio.create_task(flusher.sync(hosted))
    await owner.begun.wait()
    flusher.want(hosted)
    asker.cancel()
    await asyncio.wait([asker])
    assert asker.cancelled()
    assert owner.touched == [hosted]


async def test_follower_flushes_though_its_fetcher_ended(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetcher that loses its leader right after an append does not come to the flush."""
    one, two = await broker(0).start(), await broker(1).start()
    controller.create("safe", (0, 1), **SAFE)
    client = await one.client()
    settle = Flusher.settle
    ended: list[Hosted] = []

    async def lose_leader_once(flusher: Flusher, logs: Iterable[Hosted]) -> None:
        appended = list(logs)
        if appended and not ended:
            ended.extend(appended)
            raise PeerLost("the connection was closed")
        await settle(flusher, appended)

    monkeypatch.setattr(Flusher, "settle", lose_leader_once)
    assert await client.produce("safe", a_batch(2), acks=-1) == (Code.NONE, 0)
    assert ended == [two.hosted("safe")]
    assert two.hosted("safe").log.flushed_end == 2
