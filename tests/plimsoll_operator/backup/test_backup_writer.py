"""A backup as one operator after the other writes it, and what can be read of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.plimsoll_operator.backup.followed_log import (
    OWNER,
    FollowedLog,
    OnePlace,
    running,
    until,
    writer_of,
    written,
)
from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import HistoryRestored
from plimsoll_core.ids import MetadataOffset
from plimsoll_operator.backup import backup_objects, backup_writer, place_owner
from plimsoll_operator.backup.backup_clock import BackupClock
from plimsoll_operator.backup.backup_objects import NEWEST, ObjectName, Point
from plimsoll_operator.backup.backup_reading import BackupCopy, NoPoint, parsed, read_point
from plimsoll_operator.backup.backup_stores import DirectoryBackup, StoreUnavailable
from plimsoll_operator.backup.backup_writer import BackupWriter
from plimsoll_operator.backup.place_owner import PlaceClaims, PlaceOwner


class Hours:
    """A wall clock that is a second further at each look."""

    now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        self.now_ms += 1_000
        return self.now_ms


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_writer, "EVERY_S", 0.001)
    monkeypatch.setattr(backup_writer, "AGAIN_S", 0.001)
    monkeypatch.setattr(backup_writer, "LOOK_S", 0.01)


def names_in(path: Path) -> list[ObjectName]:
    return sorted(parsed(one.name for one in path.iterdir()), key=lambda one: one.order)


async def read(path: Path, point: Point = NEWEST) -> BackupCopy:
    return await read_point(DirectoryBackup(path), CLUSTER, point)


async def test_newest_point_is_the_committed_image(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    await written(writer, log)
    log.change(5)
    await written(writer, log)
    found = await read(tmp_path)
    assert encode_image(found.copy.image) == encode_image(log.image)
    assert found.copy.nonce == log.tail.end_nonce
    assert writer.state is not None
    assert writer.state.behind_since_ms is None
    assert writer.state.end == log.tail.end


COPY = PlaceOwner(uid="u2", key="kafka/copy")


async def test_second_cluster_with_the_id_stores_nothing(tmp_path: Path) -> None:
    """The copy that was restored from a backup, while its source runs."""
    log, hours = FollowedLog(), Hours()
    await written(writer_of(log, tmp_path, hours), log)
    before = names_in(tmp_path)
    log.begin_term(1_003)
    writer = writer_of(log, tmp_path, hours, COPY)
    async with running(writer):
        await until(lambda: writer.state is not None and writer.state.why != "")
    assert writer.state is not None
    assert "LogCluster kafka/main with the same cluster id writes" in writer.state.why
    assert names_in(tmp_path) == before


async def test_cluster_that_continues_a_lost_one_stores(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    await written(writer_of(log, tmp_path, hours), log)
    log.change()
    writer = writer_of(log, tmp_path, hours, COPY)
    async with running(writer):
        await until(lambda: writer.state is not None and writer.state.why != "")
        hours.now_ms += place_owner.OWNED_MS
        await until(lambda: writer.state is not None and writer.state.end >= log.tail.end)
    assert (await read(tmp_path)).copy.image == log.image


async def test_recreated_cluster_names_its_former_object(tmp_path: Path) -> None:
    """It had the same name and namespace: "LogCluster kafka/main writes, so this one does not"
    named the reader's own."""
    log, hours = FollowedLog(), Hours()
    await written(writer_of(log, tmp_path, hours), log)
    writer = writer_of(log, tmp_path, hours, PlaceOwner(uid="u2", key="kafka/main"))
    async with running(writer):
        await until(lambda: writer.state is not None and writer.state.why != "")
    assert writer.state is not None
    assert writer.state.why.startswith("A former LogCluster kafka/main wrote its backup into")
    assert "begins by itself within 4 minutes" in writer.state.why


async def test_owner_is_told_of_another_writer(tmp_path: Path) -> None:
    """Both began at once: the one that wrote its claim first gives way."""
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    async with running(writer):
        await until(lambda: writer.state is not None and writer.state.end >= log.tail.end)
        await PlaceClaims(hours, hours).claim(DirectoryBackup(tmp_path), COPY, stored=False)
        hours.now_ms += place_owner.CLAIM_MS
        await until(lambda: writer.state is not None and "kafka/copy" in writer.state.why)


class TestClaims:
    """Clocks that jump, or differ, take no place away."""

    def setup_method(self) -> None:
        self.wall_ms, self.monotonic_ms = 1_800_000_000_000, 0
        self.copys = PlaceClaims(lambda: self.wall_ms, lambda: self.monotonic_ms)

    async def test_wall_clock_ahead_steals_no_claim(self, tmp_path: Path) -> None:
        store = DirectoryBackup(tmp_path)
        await PlaceClaims(lambda: self.wall_ms, lambda: 0).claim(store, OWNER, stored=False)
        for ahead_ms in (0, 365 * 86_400_000, -365 * 86_400_000):
            self.wall_ms += ahead_ms
            with pytest.raises(place_owner.OwnedByAnother):
                await self.copys.claim(store, COPY, stored=True)

    async def test_stopped_wall_clock_keeps_the_place(self, tmp_path: Path) -> None:
        store = DirectoryBackup(tmp_path)
        owners = PlaceClaims(lambda: 0, lambda: 0)
        for _ in range(10):
            await owners.claim(store, OWNER, stored=False)
            with pytest.raises(place_owner.OwnedByAnother):
                await self.copys.claim(store, COPY, stored=True)
            self.monotonic_ms += place_owner.OWNED_MS // 2

    async def test_unchanged_claim_is_taken_in_time(self, tmp_path: Path) -> None:
        store = DirectoryBackup(tmp_path)
        await PlaceClaims(lambda: self.wall_ms, lambda: 0).claim(store, OWNER, stored=False)
        with pytest.raises(place_owner.OwnedByAnother):
            await self.copys.claim(store, COPY, stored=True)
        self.monotonic_ms += place_owner.OWNED_MS
        await self.copys.claim(store, COPY, stored=True)
        assert b"kafka/copy" in (tmp_path / place_owner.NAME).read_bytes()


async def test_wall_clock_ahead_deletes_no_object(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    wall = SimpleNamespace(ahead_ms=0)
    place = OnePlace(stored_in=DirectoryBackup(tmp_path))
    clock = BackupClock(lambda: hours.now_ms + wall.ahead_ms, hours, lambda: None)
    writer = BackupWriter(CLUSTER, log, place, clock, lambda: None)
    log.change(3)
    await written(writer, log)
    log.change(3)
    await written(writer, log)
    before = names_in(tmp_path)
    wall.ahead_ms = 365 * 86_400_000
    log.change()
    await written(writer, log)
    assert set(before) < set(names_in(tmp_path))


def test_backup_times_follow_the_api_server() -> None:
    wall = SimpleNamespace(host_ms=1_800_000_000_000, server_ms=None)
    clock = BackupClock(lambda: wall.host_ms, lambda: 0, lambda: wall.server_ms)
    assert clock.now_ms() == wall.host_ms
    wall.server_ms = wall.host_ms - 60_000
    assert clock.now_ms() == wall.host_ms
    wall.server_ms = wall.host_ms - 86_400_000
    assert clock.now_ms() == clock.deletion_ms() == wall.server_ms


async def test_unreadable_owner_is_replaced(tmp_path: Path) -> None:
    (tmp_path / place_owner.NAME).write_bytes(b"{")
    log = FollowedLog()
    await written(writer_of(log, tmp_path, Hours()), log)
    assert b"kafka/main" in (tmp_path / place_owner.NAME).read_bytes()


async def test_every_batch_ends_a_point(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    await written(writer, log)
    begun = log.image.next_offset
    log.change(6)
    await written(writer, log)
    for end, image in log.images.items():
        if end > begun:
            for offset in (end, end + 1):
                if offset <= log.image.next_offset:
                    found = await read(tmp_path, Point(offset=offset))
                    assert encode_image(found.copy.image) == encode_image(image)


async def test_next_operator_goes_on_without_snapshot(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    await written(writer_of(log, tmp_path, hours), log)
    log.begin_term(3)
    log.change(2)
    await written(writer_of(log, tmp_path, hours), log)
    assert [one.is_snapshot for one in names_in(tmp_path)] == [True, False]
    assert (await read(tmp_path)).copy.image == log.image


async def test_writer_too_far_behind_stores_a_snapshot(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    await written(writer_of(log, tmp_path, hours), log)
    log.change(4)
    log.forget()
    log.change()
    await written(writer_of(log, tmp_path, hours), log)
    assert [one.is_snapshot for one in names_in(tmp_path)] == [True, True]
    assert (await read(tmp_path)).copy.image == log.image


async def test_two_writers_at_once_make_one_history(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    deposed, leading = writer_of(log, tmp_path, hours), writer_of(log, tmp_path, hours)
    await written(deposed, log)
    log.change(2)
    await written(leading, log)
    await written(deposed, log)
    log.begin_term(3)
    await written(leading, log)
    assert (await read(tmp_path)).copy.image == log.image


async def test_snapshots_follow_many_objects_and_old_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_writer, "OBJECTS_MAX", 3)
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    for _ in range(20):
        log.change()
        await written(writer, log)
        hours.now_ms += 86_400_000
    names = names_in(tmp_path)
    assert 1 < sum(one.is_snapshot for one in names) < 20
    assert min(one.written_ms for one in names) > hours.now_ms - 11 * 86_400_000
    assert (await read(tmp_path)).copy.image == log.image


class Refusing(DirectoryBackup):
    """A place that refuses its first writes."""

    refusals = 3

    async def write(self, name: str, data: bytes) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("no space is left")
        await super().write(name, data)


async def test_place_that_refuses_is_tried_again(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    store = Refusing(tmp_path)
    writer = writer_of(log, store, hours)
    await written(writer, log)
    assert store.refusals == 0
    assert writer.state is not None
    assert writer.state.why == ""
    assert (await read(tmp_path)).copy.image == log.image


async def test_batches_beyond_their_bound_become_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, hours = FollowedLog(), Hours()
    log.change()
    one = backup_objects.content_bytes(log.tail.read(MetadataOffset(log.image.next_offset - 2)))
    monkeypatch.setattr(backup_objects, "BATCHES_BYTES_MAX", 2 * one)
    writer = writer_of(log, tmp_path, hours)
    async with running(writer):
        for _ in range(6):
            await until(lambda: writer.state is not None and writer.state.end >= log.tail.end)
            log.change()
    kinds = [one.is_snapshot for one in names_in(tmp_path)]
    assert kinds == [True, False, False, True, False, False]


async def test_metadata_too_large_is_refused_with_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_objects, "SNAPSHOT_BYTES_MAX", 10)
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    async with running(writer):
        await until(lambda: writer.state is not None and writer.state.why != "")
    assert writer.state is not None
    assert "a backup holds at most 10" in writer.state.why
    assert names_in(tmp_path) == []


async def test_point_is_read_within_one_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object is too large, but all of them together."""
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    for _ in range(4):
        await written(writer, log)
        log.change()
    sizes = [
        backup_objects.decode((tmp_path / str(one)).read_bytes(), one, CLUSTER).size
        for one in names_in(tmp_path)
    ]
    monkeypatch.setattr(backup_objects, "POINT_BYTES_MAX", sum(sizes))
    await read(tmp_path)
    monkeypatch.setattr(backup_objects, "POINT_BYTES_MAX", sum(sizes) - 1)
    with pytest.raises(NoPoint, match="are allowed"):
        await read(tmp_path)


class Emptying(DirectoryBackup):
    """A place that notes what is deleted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.deleted: list[str] = []

    async def delete(self, name: str) -> None:
        self.deleted.append(name)
        await super().delete(name)


async def days(log: FollowedLog, store: DirectoryBackup, hours: Hours) -> None:
    for _ in range(12):
        log.change()
        await written(writer_of(log, store, hours), log)
        hours.now_ms += 86_400_000


async def test_cluster_keeps_objects_of_its_restored_twin(tmp_path: Path) -> None:
    """A cluster is restored elsewhere from the backup of one that goes on."""
    twin, log, hours, store = FollowedLog(), FollowedLog(), Hours(), Emptying(tmp_path)
    row = HistoryRestored(at_ms=hours.now_ms, end_offset=MetadataOffset(log.image.next_offset))
    twin.begin_term(1_003, restored=row)
    await written(writer_of(twin, tmp_path, hours), twin)
    theirs = set(names_in(tmp_path))
    await days(log, store, hours)
    assert store.deleted
    assert theirs <= set(names_in(tmp_path))
    own = set(names_in(tmp_path)) - theirs
    store.deleted.clear()
    await days(twin, store, hours)
    assert store.deleted
    kept = {one for one in own if one.end > row.end_offset}
    assert kept
    assert kept <= set(names_in(tmp_path))


class Undeletable(DirectoryBackup):
    """A place that refuses to delete."""

    refuses = True
    deleted = 0

    async def delete(self, name: str) -> None:
        if self.refuses:
            raise StoreUnavailable("DELETE was answered 403")
        self.deleted += 1
        await super().delete(name)


async def test_place_that_deletes_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it deletes, old objects go, a few after each write."""
    monkeypatch.setattr(backup_writer, "OBJECTS_MAX", 1)
    monkeypatch.setattr(backup_writer, "DELETES_MAX", 1)
    log, hours, store = FollowedLog(), Hours(), Undeletable(tmp_path)
    for _ in range(20):
        writer = writer_of(log, store, hours)
        log.change()
        await written(writer, log)
        hours.now_ms += 86_400_000
    state = writer.state
    assert state is not None
    assert state.why == ""
    assert (await read(tmp_path)).copy.image == log.image
    assert len(names_in(tmp_path)) == 20
    store.refuses = False
    writer = writer_of(log, store, hours)
    async with running(writer):
        await until(lambda: store.deleted >= 10)
    assert writer.state is not None
    assert writer.state.not_deleted == ""


async def test_refused_deletion_is_told(tmp_path: Path) -> None:
    log, hours, store = FollowedLog(), Hours(), Undeletable(tmp_path)
    writer = writer_of(log, store, hours)
    async with running(writer):
        for _ in range(10):
            log.change()
            await until(lambda: writer.state is not None and writer.state.end >= log.tail.end)
            hours.now_ms += 86_400_000
        await until(lambda: writer.state is not None and "403" in writer.state.not_deleted)


async def test_other_history_of_equal_length_is_stored(tmp_path: Path) -> None:
    log, other, hours = FollowedLog(), FollowedLog(), Hours()
    assert log.tail.end == other.tail.end
    writer = writer_of(log, tmp_path, hours)
    async with running(writer):
        await until(lambda: writer.state is not None and writer.state.end >= log.tail.end)
        log.tail, log.image = other.tail, other.image
        nonce = other.tail.end_nonce
        await until(lambda: nonce in {one.nonce for one in names_in(tmp_path)})
    assert (await read(tmp_path)).copy.nonce == nonce


async def test_deleted_objects_are_noticed_and_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_writer, "LIST_MS", 1)
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    await written(writer, log)
    for one in names_in(tmp_path):
        (tmp_path / str(one)).unlink()
    log.change()
    await written(writer, log)
    assert (await read(tmp_path)).copy.image == log.image


async def test_backup_of_another_cluster_is_refused(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    await written(writer_of(log, tmp_path, hours), log)
    with pytest.raises(NoPoint, match="belongs to cluster"):
        await read_point(DirectoryBackup(tmp_path), type(CLUSTER)(int=5), NEWEST)


async def test_swapped_objects_are_refused(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    await written(writer, log)
    for _ in range(2):
        log.change()
        await written(writer, log)
    _, first, second = (tmp_path / str(one) for one in names_in(tmp_path))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    with pytest.raises(NoPoint, match="was written under another name"):
        await read(tmp_path)


async def test_torn_object_leaves_the_points_before_it(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    writer = writer_of(log, tmp_path, hours)
    await written(writer, log)
    before = log.image
    log.change()
    await written(writer, log)
    newest = tmp_path / str(names_in(tmp_path)[-1])
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(NoPoint, match="checksum"):
        await read(tmp_path)
    assert (await read(tmp_path, Point(offset=before.next_offset))).copy.image == before


async def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    log, hours = FollowedLog(), Hours()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "notes.txt")
    await written(writer_of(log, tmp_path, hours), log)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    found = await DirectoryBackup(tmp_path).stored()
    assert {one.name for one in found} == {*map(str, names_in(tmp_path)), place_owner.NAME}
    assert all(one.size == (tmp_path / one.name).stat().st_size for one in found)
