"""The history's archive: everything that was committed is in it, whatever becomes of a term."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.plimsoll_operator.builders import (
    CLUSTER_UID,
    TOPIC_ID,
    an_image,
    isr_changed,
    registered,
)
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from tests.plimsoll_operator.test_group_commit import MemoryLog

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    ControllerChanged,
    MembersChanged,
    PartitionsCreated,
    Record,
    TopicCreated,
)
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_operator.controller.commit_queue import Journal
from plimsoll_operator.history import keeper as keeping
from plimsoll_operator.history.archive import Archive, ArchiveUnavailable, SegmentStore
from plimsoll_operator.history.changes import RESTORED, ChangeRow, standing
from plimsoll_operator.history.keeper import HistoryKeeper
from plimsoll_operator.history.segment_stores import DirectoryStore, KubeStore
from plimsoll_operator.history.segments import (
    DAY_MS,
    ArchiveSegment,
    Budget,
    Stored,
    UnreadableSegment,
    rows_of,
)
from plimsoll_operator.kube.resources import CONFIG_MAPS
from plimsoll_operator.leadership import led_cluster
from plimsoll_operator.metalog.interface import OpenedLog

CLUSTER_ID = an_image(()).cluster_id
MS = 1_700_000_000_000
ROW = (BrokerId(0), BrokerId(1), BrokerId(2))
WAIT_S = 30


class Process:
    """A controller's process: it commits to a log that outlives it, and keeps the history."""

    def __init__(self, log: MemoryLog, store: SegmentStore, budget: Budget | None = None) -> None:
        self.log = log
        self.journal = Journal(
            log,  # type: ignore[arg-type]
            CLUSTER_ID,
            lambda: self.ms,
            lambda opened: self.keeper.opened(opened),
        )
        self.ms = MS
        self.image = ClusterImage(cluster_id=CLUSTER_ID)
        archive = Archive(store, str(CLUSTER_ID), budget or Budget())
        self.keeper = HistoryKeeper(archive, CLUSTER_ID, lambda: self.ms)
        self.archive = archive

    async def lead(self) -> None:
        self.keeper.begin()
        self.image = (await self.journal.open()).image
        epoch = ControllerEpoch(self.image.controller_epoch + 1)
        await self.commit(ControllerChanged(cause="TakeOver", controller_epoch=epoch, identity="x"))

    async def commit(self, *records: Record) -> None:
        self.ms += 1_000
        old, self.image = self.image, apply_all(self.image, records)
        await self.journal.append(records, self.image.controller_epoch)
        self.keeper.committed(old, self.image, records)

    async def make_topic(self) -> None:
        await self.commit(
            MembersChanged(cause="declared", broker_ids=ROW),
            *(registered(b) for b in ROW),
            TopicCreated(
                cause="created", topic_id=TOPIC_ID, name="orders", replication_factor=3, min_isr=2
            ),
            PartitionsCreated(
                cause="created", topic_id=TOPIC_ID, first=0, replicas=(ROW,), isr=(ROW,)
            ),
        )


@asynccontextmanager
async def keeping_history(process: Process) -> AsyncIterator[None]:
    task = asyncio.create_task(process.keeper.run())
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def segments_in(store: SegmentStore) -> list[tuple[Stored, ArchiveSegment]]:
    """In the order of their sequence numbers."""
    found = [one async for one in store.stored()]
    return sorted(found, key=lambda one: one[0].header.sequence)


async def archived(store: SegmentStore) -> list[ChangeRow]:
    return [row for _, segment in await segments_in(store) for row in rows_of(segment)]


def isrs(rows: list[ChangeRow]) -> list[tuple[int, ...]]:
    return [row.isr[1] for row in rows if row.isr is not None]


@pytest.fixture(params=["directory", "kube"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path)
    return KubeStore(ScriptedKube(), "kafka", "main", CLUSTER_ID)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "AGAIN_S", 0.01)
    # Who settles waits until all is stored, however long that takes on a busy machine.
    monkeypatch.setattr(keeping, "SETTLE_S", WAIT_S)


async def test_commits_are_archived_in_order_with_their_times(store: SegmentStore) -> None:
    process = Process(MemoryLog(), store)
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        await process.commit(isr_changed(0, (0, 1)))
        await process.keeper.settle()
        await process.commit(isr_changed(0, (0, 1, 2), cause="IsrExpand"))
        await process.keeper.settle()
    rows = await archived(store)
    assert isrs(rows) == [(0, 1, 2), (0, 1), (0, 1, 2)]
    assert [row.ms for row in rows] == [MS + 2_000, MS + 3_000, MS + 4_000]
    assert process.archive.end_offset == process.image.next_offset


async def test_next_term_writes_the_unstored_rows(
    store: SegmentStore,
) -> None:
    log = MemoryLog()
    first = Process(log, store)
    await first.lead()
    async with keeping_history(first):
        await first.make_topic()
        await first.keeper.settle()
    # It commits on, and ends before it has stored anything of this.
    await first.commit(isr_changed(0, (0, 1)))
    await first.commit(isr_changed(0, (0,)))
    second = Process(log, store)
    await second.lead()
    async with keeping_history(second):
        await second.commit(isr_changed(0, (0, 2), cause="IsrExpand"))
        await second.keeper.settle()
    rows = await archived(store)
    assert isrs(rows) == [(0, 1, 2), (0, 1), (0,), (0, 2)]
    assert [row.ms - MS for row in rows[1:3]] == [3_000, 4_000], "as the log's batches tell them"
    assert "unknown" not in {row.kind for row in rows}


async def test_two_writing_processes_store_each_row_once(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog()
    old = Process(log, store)
    await old.lead()
    async with keeping_history(old):
        await old.make_topic()
        await old.keeper.settle()
        await old.commit(isr_changed(0, (0, 1)))  # not stored before it is deposed
        new = Process(log, store)
        await new.lead()
        async with keeping_history(new):
            await new.commit(isr_changed(0, (0,)))
            await new.keeper.settle()
            monkeypatch.setattr(keeping, "SETTLE_S", 0.5)  # the deposed one may never
            await old.keeper.settle()
            monkeypatch.setattr(keeping, "SETTLE_S", WAIT_S)
            await new.commit(isr_changed(0, (0, 1), cause="IsrExpand"))
            await new.keeper.settle()
    assert isrs(await archived(store)) == [(0, 1, 2), (0, 1), (0,), (0, 1)]


class Refusing(DirectoryStore):
    """Fails as long as `broken` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.broken = True
        self.tried = asyncio.Event()

    async def write(self, segment: ArchiveSegment, over: Stored | None) -> Stored:
        self.tried.set()
        if self.broken:
            raise ArchiveUnavailable("etcdserver: mvcc: database space exceeded")
        return await super().write(segment, over)


async def test_refusing_store_costs_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SETTLE_S", 0.05)
    store = Refusing(tmp_path)
    process = Process(MemoryLog(), store)
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        await process.keeper.settle()  # returns all the same
        await store.tried.wait()
        await process.commit(isr_changed(0, (0, 1)))
        process.ms += 60_000
        assert process.keeper.behind_ms >= 60_000, "the metrics tell of it"
        store.broken = False
        monkeypatch.setattr(keeping, "SETTLE_S", WAIT_S)
        await process.keeper.settle()
        assert process.keeper.behind_ms == 0
    assert process.keeper.dropped_rows == 0
    assert isrs(await archived(store)) == [(0, 1, 2), (0, 1)]


async def test_rows_waiting_too_long_are_dropped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SETTLE_S", 0.05)
    monkeypatch.setattr(keeping, "WAITING_BYTES_MAX", 4_000)
    store = Refusing(tmp_path)
    process = Process(MemoryLog(), store)
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        for _ in range(50):
            await process.commit(isr_changed(0, (0, 1)))
            await process.commit(isr_changed(0, (0, 1, 2), cause="IsrExpand"))
        await process.keeper.settle()
        store.broken = False
        monkeypatch.setattr(keeping, "SETTLE_S", WAIT_S)
        await process.keeper.settle()
    rows = await archived(store)
    assert process.keeper.dropped_rows > 10
    assert rows[0].kind == "unknown"
    assert (
        rows[0].cause
        == "the operator left these changes out of the archive of the metadata history, because "
        "it could not write the archive for a long time"
    )
    assert rows[0].offset <= rows[1].offset
    assert rows[-1].isr == ((0, 1), (0, 1, 2))


async def test_bug_in_history_spares_the_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeping, "SETTLE_S", 0.05)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(keeping, "changes", broken)
    process = Process(MemoryLog(), DirectoryStore(tmp_path))
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        await process.keeper.settle()
        while "it archives no more of" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await process.commit(isr_changed(0, (0, 1)))
    process.ms += 600_000
    assert process.keeper.behind_ms >= 600_000, "and that stays to be seen"


async def test_history_begun_after_log_states_its_start(store: SegmentStore) -> None:
    """As after an upgrade from a release that kept none, when a snapshot stands for the rest."""
    process = Process(MemoryLog(), store)
    await process.lead()
    await process.make_topic()
    opened = await process.log.open()
    image = process.image

    def as_if_from_a_snapshot(log: OpenedLog, cluster_id: object) -> ClusterImage:
        return image

    later = Process(process.log, store)
    later.keeper.opened(OpenedLog(snapshot=None, batches=(), tip=opened.tip))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "first_image", as_if_from_a_snapshot)
        async with keeping_history(later):
            await later.keeper.settle()
    (row,) = await archived(store)
    assert (row.kind, row.offset) == ("unknown", image.next_offset)
    assert row.cause == "the operator kept no history of the cluster yet"


async def test_history_goes_on_after_metadata_were_restored(store: SegmentStore) -> None:
    """The archive ended behind the restored log, so all that followed counted as stored."""
    log = MemoryLog()
    first = Process(log, store)
    await first.lead()
    async with keeping_history(first):
        await first.make_topic()
        kept = len(log.batches)
        for _ in range(9):
            await first.commit(isr_changed(0, (0, 1), cause="given up"))
        await first.keeper.settle()
    del log.batches[kept:]
    second = Process(log, store)
    await second.lead()
    async with keeping_history(second):
        await second.commit(isr_changed(0, (0, 2)))
        await second.keeper.settle()
    third = Process(log, store)
    await third.lead()
    async with keeping_history(third):
        await third.commit(isr_changed(0, (0,)))
        await third.keeper.settle()
    rows = standing(await archived(store))
    assert isrs(rows) == [(0, 1, 2), (0, 2), (0,)]
    assert [row.word for row in rows if row.kind == "unknown"] == [RESTORED]


async def test_settling_without_archive_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reader of a history that is kept no more left something behind."""
    monkeypatch.setattr(keeping, "SETTLE_S", 0.0)
    process = Process(MemoryLog(), DirectoryStore(tmp_path))
    for _ in range(3):
        assert not await process.keeper.settle()
    assert process.keeper._settling == []


async def test_oldest_segments_go_by_age_and_by_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping.segments, "SEGMENT_BYTES", 1)  # one a flush
    store = DirectoryStore(tmp_path)
    process = Process(MemoryLog(), store, Budget(days=30, bytes_max=600))
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        for _ in range(20):
            await process.commit(isr_changed(0, (0, 1)))
            await process.keeper.settle()
            await process.commit(isr_changed(0, (0, 1, 2), cause="IsrExpand"))
            await process.keeper.settle()
        kept = await segments_in(store)
        assert 1 < len(kept) < 10
        assert sum(one.size for one, _ in kept) <= 600
        process.ms += 31 * DAY_MS
        await process.commit(isr_changed(0, (0, 1)))
        await process.keeper.settle()
        await process.keeper.settle()
    (last,) = await segments_in(store)
    assert isrs(rows_of(last[1])) == [(0, 1)]


async def test_clock_that_is_ahead_ends_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping.segments, "SEGMENT_BYTES", 1)  # one a flush
    store = DirectoryStore(tmp_path)
    process = Process(MemoryLog(), store)
    process.keeper = HistoryKeeper(process.archive, CLUSTER_ID, lambda: process.ms, lambda: MS)
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        await process.keeper.settle()
        process.ms += 400 * DAY_MS
        for isr in ((0, 1), (0,)):
            await process.commit(isr_changed(0, isr))
            await process.keeper.settle()
    assert isrs(await archived(store)) == [(0, 1, 2), (0, 1), (0,)]


def test_term_ages_history_by_the_earlier_clock(tmp_path: Path) -> None:
    archive = Archive(DirectoryStore(tmp_path), str(CLUSTER_ID), Budget())
    kube = SimpleNamespace(answered_ms=None)
    parts = SimpleNamespace(history=lambda *_: archive, now_ms=lambda: MS, kube=kube)
    keeper = led_cluster._history_of(parts, ("kafka", "main"), CLUSTER_ID)  # type: ignore[arg-type]
    assert keeper is not None
    assert keeper._agreed_ms() == MS
    for told in (MS - DAY_MS, MS + DAY_MS):
        kube.answered_ms = told
        assert keeper._agreed_ms() == min(told, MS)


async def test_damaged_segment_is_left_and_next_continues(
    tmp_path: Path,
) -> None:
    store = DirectoryStore(tmp_path)
    log = MemoryLog()
    first = Process(log, store)
    await first.lead()
    async with keeping_history(first):
        await first.make_topic()
        await first.keeper.settle()
    (path,) = tmp_path.glob("history-*")
    path.write_bytes(b"not ours\n")
    second = Process(log, store)
    await second.lead()
    async with keeping_history(second):
        await second.commit(isr_changed(0, (0, 1)))
        await second.keeper.settle()
    damaged, good = await segments_in(store)
    with pytest.raises(UnreadableSegment):
        rows_of(damaged[1])
    assert isrs(rows_of(good[1])) == [(0, 1, 2), (0, 1)], "made again of the log"


async def test_archive_on_api_server_has_no_owner() -> None:
    kube = ScriptedKube()
    process = Process(MemoryLog(), KubeStore(kube, "kafka", "main", CLUSTER_ID))
    await process.lead()
    async with keeping_history(process):
        await process.make_topic()
        await process.keeper.settle()
    (found,) = (await kube.list(CONFIG_MAPS, "kafka")).items
    assert found["metadata"]["name"] == f"main-{CLUSTER_UID.replace('-', '')[:12]}-history-000000"
    assert "plimsoll.dev/cluster" not in found["metadata"]["labels"]
    assert "ownerReferences" not in found["metadata"]


@pytest.mark.parametrize("packed", [b"", b"junk", b"x\x9c"])
def test_segment_of_strange_bytes_is_unreadable(
    packed: bytes, a_header: Callable[[], ArchiveSegment]
) -> None:
    with pytest.raises(UnreadableSegment):
        rows_of(ArchiveSegment(header=a_header().header, packed=packed))


@pytest.fixture
def a_header() -> Callable[[], ArchiveSegment]:
    header = keeping.segments.unreadable("history-7.zlib")
    assert header is not None
    return lambda: ArchiveSegment(header=header, packed=b"")
