"""A log that met a full disk, or no descriptor, comes back by itself; after no other fault."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.plimsoll_broker.test_periodic_chores import too_large_log
from tests.plimsoll_broker.test_replication import same_logs, until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.replication import periodic_chores
from plimsoll_broker.replication.full_disks import (
    DESCRIPTORS_LEFT,
    RESERVE,
    ROOM_BYTES_MAX,
    FullDisks,
    enough,
)
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_broker.storage.log_store import DELETE_DELAY_MS, DeletedDirectories
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import FailedReplica, ReportFailedReplicas

pytestmark = pytest.mark.usefixtures("small_segments")

Make = Callable[[int], Broker]


def broken_disk(
    broker: Broker, fault: StorageFault, monkeypatch: pytest.MonkeyPatch
) -> pytest.MonkeyPatch:
    """Its logs' appends fail; `undo` it."""
    patched = pytest.MonkeyPatch()
    file_type = type(broker.hosted("t").log.segments[-1].file)
    plain = file_type.append

    def append(file: object, data: object) -> None:
        if file.path.is_relative_to(broker.directory):  # type: ignore[attr-defined]
            raise StorageError(fault, file.path, "no space")  # type: ignore[attr-defined]
        plain(file, data)  # type: ignore[arg-type]

    patched.setattr(file_type, "append", append)
    patched.setattr(Disk, "room", lambda *_: (0, 2**30))
    patched.setattr(Disk, "descriptors_left", lambda *_: DESCRIPTORS_LEFT - 1)
    return patched


def out_of_the_isr(controller: Controller, broker: Broker) -> None:
    """What the broker's reports do."""
    partition = controller.partition("t")
    controller.request(
        ReportFailedReplicas(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            replicas=(FailedReplica(topic_id=partition.topic_id, index=0),),
        )
    )


@pytest.fixture(autouse=True)
def _brokers_that_do_not_look_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look when it is time, however slow the machine is."""
    monkeypatch.setattr(periodic_chores, "ROOM_MS", 3_600_000)


@pytest.fixture
async def two(controller: Controller, broker: Make) -> tuple[Broker, Broker, Client]:
    leader, follower = await broker(0).start(), await broker(1).start()
    controller.create("t", (0, 1))
    client = await leader.client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await until(lambda: set(controller.partition("t").isr) == {0, 1})
    return leader, follower, client


@pytest.mark.parametrize("fault", [StorageFault.FULL, StorageFault.DESCRIPTORS])
async def test_log_that_has_what_it_lacked_follows_again(
    controller: Controller,
    two: tuple[Broker, Broker, Client],
    monkeypatch: pytest.MonkeyPatch,
    fault: StorageFault,
) -> None:
    """FullDisks, or descriptors."""
    leader, follower, client = two
    full = broken_disk(follower, fault, monkeypatch)
    room = FullDisks(follower.manager)
    try:
        await client.produce("t", a_batch(1), acks=1)
        await until(lambda: follower.hosted("t").replica.failed)
        out_of_the_isr(controller, follower)
        await until(lambda: follower.manager.image is controller.image)
        await room.look()
        assert follower.hosted("t").replica.failed, "there is no room yet"
    finally:
        full.undo()
    monkeypatch.setattr(Disk, "room", lambda *_: (2**30, 2**30))
    await room.look()
    await until(lambda: set(controller.partition("t").isr) == {0, 1})
    await until(lambda: same_logs("t", leader, follower))
    assert follower.manager.traffic.room_again == 1
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 2)


async def test_replica_failed_by_full_disk_returns_after_isr(
    controller: Controller,
    two: tuple[Broker, Broker, Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, follower, client = two
    full = broken_disk(follower, StorageFault.FULL, monkeypatch)
    await client.produce("t", a_batch(1), acks=1)
    await until(lambda: follower.hosted("t").replica.failed)
    full.undo()
    monkeypatch.setattr(Disk, "room", lambda *_: (2**30, 2**30))
    await FullDisks(follower.manager).look()
    assert follower.hosted("t").replica.failed
    out_of_the_isr(controller, follower)
    await until(lambda: follower.manager.image is controller.image)
    await FullDisks(follower.manager).look()
    assert not follower.hosted("t").replica.failed


async def test_disk_that_fails_otherwise_stays_out_of_service(
    controller: Controller,
    two: tuple[Broker, Broker, Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, follower, client = two
    failing = broken_disk(follower, StorageFault.IO, monkeypatch)
    await client.produce("t", a_batch(1), acks=1)
    await until(lambda: follower.hosted("t").replica.failed)
    failing.undo()
    out_of_the_isr(controller, follower)
    await until(lambda: follower.manager.image is controller.image)
    await FullDisks(follower.manager).look()
    assert follower.hosted("t").replica.failed


async def test_room_is_reserved_and_released_when_full(
    two: tuple[Broker, Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, follower, client = two
    room = FullDisks(follower.manager)
    await room.look()
    assert (follower.directory / RESERVE).stat().st_size == 2**20
    full = broken_disk(follower, StorageFault.FULL, monkeypatch)
    await client.produce("t", a_batch(1), acks=1)
    await until(lambda: follower.hosted("t").replica.failed)
    await room.look()
    assert not (follower.directory / RESERVE).exists()
    full.undo()


async def test_undeletable_directory_does_not_block_reserve(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the look at retention, and what was to go after it stayed until the next start."""
    one = await broker(0).start()
    await too_large_log(controller, one)
    store, now_ms = one.manager.store, one.manager.now_ms()
    gone = [one.directory / f"gone-{number}" for number in range(3)]
    for path in gone:
        path.mkdir()
        store.set_aside(path, now_ms)
    moved = sorted(one.directory.glob("gone-*-stray"))
    due = store.deleted.due(now_ms + 2 * 86_400_000)
    assert sorted(due) == moved
    monkeypatch.setattr(DeletedDirectories, "due", lambda *_: due)
    remove_tree = Disk.remove_tree

    def refuses_one(disk: Disk, path: Path) -> None:
        if path == due[0]:
            raise StorageError(StorageFault.IO, path, "input/output error")
        remove_tree(disk, path)

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "remove_tree", refuses_one)
        await PeriodicChores(one.manager)._retain()
    assert [path for path in moved if path.exists()] == [due[0]]
    assert one.hosted("t").log.log_start_offset > 0
    monkeypatch.undo()
    assert store.deleted.due(now_ms + DELETE_DELAY_MS - 1) == []
    assert store.deleted.due(one.manager.now_ms() + DELETE_DELAY_MS) == [due[0]]


def test_missing_descriptor_is_not_a_disk_failure(tmp_path: Path) -> None:
    disk = Disk()
    before = disk.descriptors_left()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    file = disk.open(tmp_path / "a")
    assert disk.descriptors_left() == before - 1
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        for work in (disk.open, disk.read, disk.sync, disk.list):
            with pytest.raises(StorageError) as met:
                work(tmp_path / "a")
            assert met.value.fault is StorageFault.DESCRIPTORS
        assert disk.descriptors_left() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    file.close()


@pytest.mark.parametrize(
    ("free", "of", "is_enough"),
    [
        (0, 2**40, False),
        (ROOM_BYTES_MAX, 2**40, False),
        (ROOM_BYTES_MAX + 2**20, 2**40, True),
        (2**24, 2**28, True),
        (2**23, 2**28, False),
    ],
)
def test_disk_room_requires_reserve_plus_bounded_share(free: int, of: int, is_enough: bool) -> None:
    assert enough(free, of) == is_enough
