"""A log is opened anew in a thread: meanwhile the event loop leaves its directory alone."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.plimsoll_broker.test_replication import same_logs, until
from tests.plimsoll_broker.test_room import broken_disk, out_of_the_isr
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.replication import periodic_chores
from plimsoll_broker.replication.full_disks import FullDisks
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_broker.storage import log_store as stores
from plimsoll_broker.storage.disk import Disk, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicObjectGone

Make = Callable[[int], Broker]
RECORDS = 3


class SlowThread:
    """A recovery in a thread reads nothing before it may."""

    def __init__(self) -> None:
        self.begun, self.may_read = threading.Event(), threading.Event()
        self.opened = 0

    def load(self, *args: object) -> Log:
        if threading.current_thread() is threading.main_thread():
            return LOAD(*args)  # type: ignore[arg-type]
        self.opened += 1
        self.begun.set()
        assert self.may_read.wait(10)
        return LOAD(*args)  # type: ignore[arg-type]


LOAD = stores.load_log


@pytest.fixture(autouse=True)
def _brokers_that_do_not_look_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look when it is time, however slow the machine is."""
    monkeypatch.setattr(periodic_chores, "ROOM_MS", 3_600_000)


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowThread]:
    slow = SlowThread()
    monkeypatch.setattr(stores, "load_log", slow.load)
    yield slow
    slow.may_read.set()


@dataclasses.dataclass(frozen=True)
class Pair:
    """`follower`'s replica of t-0 is out of service, and its disk has room again."""

    leader: Broker
    follower: Broker
    client: Client


@pytest.fixture
async def pair(controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch) -> Pair:
    leader, follower = await broker(0).start(), await broker(1).start()
    controller.create("t", (0, 1), **{"retention.ms": "-1"})
    client = await leader.client()
    for offset in range(RECORDS):
        assert await client.produce("t", a_batch(1)) == (Code.NONE, offset)
    await until(lambda: set(controller.partition("t").isr) == {0, 1})
    await until(lambda: follower.hosted("t").replica.high_watermark == RECORDS)
    full = broken_disk(follower, StorageFault.FULL, monkeypatch)
    await client.produce("t", a_batch(1), acks=1)
    await until(lambda: follower.hosted("t").replica.failed)
    out_of_the_isr(controller, follower)
    await until(lambda: follower.manager.image is controller.image)
    full.undo()
    monkeypatch.setattr(Disk, "room", lambda *_: (2**30, 2**30))
    return Pair(leader, follower, client)


def look(broker: Broker) -> asyncio.Task[None]:
    return asyncio.create_task(FullDisks(broker.manager).look())


def delete(controller: Controller) -> None:
    gone = TopicObject(namespace="test", name="t", uid="t")
    controller.request(
        TopicObjectGone(object=gone, server_now_ms=1, grace_ms=0, removals_per_hour_max=1)
    )


def end_after_a_crash(log: Log, copy: Path) -> int:
    """Where another process would find that the log ends."""
    shutil.copytree(log.directory.parent, copy)
    store = LogStore(copy)
    assert store.open() is None
    store.load(0)
    again = store.open_log(log.topic, log.topic_id, log.index, LogConfig(), 0)
    store.release_lock()
    return again.log_end_offset


async def both_have(pair: Pair, records: int) -> None:
    """They are in sync, and acknowledge more."""
    for _ in range(records):
        assert (await pair.client.produce("t", a_batch(1)))[0] == Code.NONE
    await until(lambda: same_logs("t", pair.leader, pair.follower))


async def test_log_under_reopening_is_left_alone_by_retention(
    controller: Controller, pair: Pair, thread: SlowThread, tmp_path: Path
) -> None:
    """Retention rolled the old log and removed its first segment, which the new one went on to
    append to: what had been acknowledged was in no file."""
    follower = pair.follower
    old = follower.hosted("t").log
    old.config = dataclasses.replace(old.config, retention_ms=1)
    looking = look(follower)
    await until(thread.begun.is_set)
    await PeriodicChores(follower.manager)._retain()
    assert [segment.base_offset for segment in old.segments] == [0]
    thread.may_read.set()
    await looking
    await until(lambda: set(controller.partition("t").isr) == {0, 1})
    await both_have(pair, 5)
    log = follower.hosted("t").log
    assert log is not old
    assert log.segments[-1].path.exists()
    assert end_after_a_crash(log, tmp_path / "after") == log.log_end_offset == RECORDS + 6


async def test_checkpoints_preserve_lines_of_reopening_log(pair: Pair, thread: SlowThread) -> None:
    store, upkeep = pair.follower.store, PeriodicChores(pair.follower.manager)
    await upkeep._checkpoint()
    looking = look(pair.follower)
    await until(thread.begun.is_set)
    store.begin_lower({("t", 0): 1})()  # what a recovery does that has to cut
    await upkeep._checkpoint()
    store.begin_recovery_points()()
    store.begin_log_starts()()
    assert store._high_watermarks.saved(("t", 0)) == 1
    assert (store._recovery_points.saved(("t", 0)) or 0) <= 1
    thread.may_read.set()
    await looking


async def test_recreated_topic_waits_for_reopening_thread(
    controller: Controller, pair: Pair, thread: SlowThread, tmp_path: Path
) -> None:
    """The thread recovered by path what was another topic's by then, and removed its files."""
    follower = pair.follower
    old = follower.hosted("t")
    old.log.advance_log_start(2)
    looking = look(follower)
    await until(thread.begun.is_set)
    delete(controller)
    topic_id = controller.create("t", (0, 1))
    await until(lambda: pair.leader.manager.by_name("t", 0) is not None)
    await until(lambda: follower.manager.image is controller.image)
    assert follower.manager.by_name("t", 0) is None
    assert old.log.directory.exists(), "it is the thread's"
    thread.may_read.set()
    await looking
    await until(lambda: follower.manager.by_name("t", 0) is not None)
    await both_have(pair, 5)
    log = follower.hosted("t").log
    assert log.topic_id == topic_id
    assert log.segments[-1].path.exists()
    assert end_after_a_crash(log, tmp_path / "after") == log.log_end_offset == 5
    assert follower.manager.traffic.room_again == 0


async def test_topic_recreated_during_flush_is_not_reopened(
    controller: Controller, pair: Pair, thread: SlowThread
) -> None:
    follower = pair.follower
    old = follower.hosted("t")
    waits, flushed = asyncio.Event(), asyncio.Event()

    async def quiet(_: Hosted) -> None:
        waits.set()
        await flushed.wait()

    follower.manager.flusher.quiet = quiet  # type: ignore[method-assign]
    looking = look(follower)
    await waits.wait()
    delete(controller)
    controller.create("t", (0, 1))
    await until(lambda: follower.manager.image is controller.image)
    await until(lambda: follower.manager.hosted(old.key) is None)
    flushed.set()
    await looking
    await until(lambda: follower.manager.by_name("t", 0) is not None)
    assert thread.opened == 0
    await both_have(pair, 5)


async def test_partition_dropped_during_reopening_is_deleted_afterwards(
    controller: Controller, pair: Pair, thread: SlowThread
) -> None:
    follower = pair.follower
    log = follower.hosted("t").log
    looking = look(follower)
    await until(thread.begun.is_set)
    delete(controller)
    await until(lambda: len(follower.manager) == 0)
    assert log.directory.exists()
    thread.may_read.set()
    await looking
    assert not log.directory.exists()
    assert not follower.store.logs
    assert not follower.store.reopening


async def test_concurrent_passes_reopen_log_once(
    controller: Controller, pair: Pair, thread: SlowThread
) -> None:
    looking = [look(pair.follower), look(pair.follower)]
    await until(thread.begun.is_set)
    thread.may_read.set()
    await asyncio.gather(*looking)
    assert thread.opened == 1
    assert pair.follower.manager.traffic.room_again == 1
    await until(lambda: set(controller.partition("t").isr) == {0, 1})


async def test_partition_dropped_before_walk_is_left_alone(
    controller: Controller, pair: Pair, thread: SlowThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lost its owner: its log stayed open, and the same topic made again ended the broker."""
    manager, old = pair.follower.manager, pair.follower.hosted("t")
    looking = look(pair.follower)
    await until(thread.begun.is_set)
    with monkeypatch.context() as busy:
        busy.setattr(manager.roles, "update", lambda **_: None)
        delete(controller)
        await until(lambda: manager.image is controller.image)
        thread.may_read.set()
        await looking
        manager.open_again(old.key, None)
    assert manager.hosted(old.key) is old
    assert manager.traffic.room_again == 0
    manager.roles.update(everything=True, limits_changed=False)
    assert len(manager) == 0
    assert not pair.follower.store.logs
    assert not old.log.directory.exists()
    controller.create("t", (0, 1))
    await both_have(pair, 5)
