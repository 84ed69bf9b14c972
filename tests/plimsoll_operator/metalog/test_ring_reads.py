"""What opening the metadata log reads again: only what was added, unless that may be wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.plimsoll_operator.metalog.fake_api import DirectApi
from tests.plimsoll_operator.metalog.shells import FAST, PLACE, RingShell
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import AppendConflict, LogRegressed
from plimsoll_operator.metalog.kubernetes_log import RingLog
from plimsoll_operator.metalog.ring import ADDED_MAX, READ_AT_ONCE

SLOTS = 64
"""As many as are made at first."""
READS_MAX = 8
"""Reads of single objects by which a log is opened again after a few batches."""


class Reads:
    """The reads of batches since it was made."""

    def __init__(self, ring: RingShell) -> None:
        self._requests = ring.store.requests
        self._requests.clear()

    @property
    def lists(self) -> int:
        return len([r for r in self._batches() if r.name is None])

    @property
    def slots(self) -> int:
        return len([r for r in self._batches() if r.name is not None])

    def _batches(self) -> list:
        return [r for r in self._requests if not r.writes and r.plural == "metadatabatches"]


def a_writer(ring: RingShell, name: str = "w") -> Writer:
    return Writer(RingLog(DirectApi(ring.faults), PLACE, replace(FAST, slots=SLOTS)), name)


async def two_writers(ring: RingShell, batches: int = 30) -> tuple[Writer, Writer]:
    """Writers that both have led; the second one does."""
    one, two = a_writer(ring, "one"), a_writer(ring, "two")
    await one.take_over()
    await one.write(batches, "a")
    await one.snapshot()
    await one.write(5, "b")
    await two.take_over()
    return one, two


async def same_as_read_anew(ring: RingShell, writer: Writer) -> None:
    assert image_of(await a_writer(ring).log.open()) == writer.image


async def test_second_opening_reads_added_batches_alone(ring: RingShell) -> None:
    one, two = await two_writers(ring)
    await two.write(3, "c")
    reads = Reads(ring)
    await one.open()
    assert (reads.lists, reads.slots) == (0, READS_MAX)
    assert one.image == two.image
    await one.take_over()
    await one.write(3 * SLOTS, "d")
    await same_as_read_anew(ring, one)


async def test_every_lost_race_reads_a_few_slots(ring: RingShell) -> None:
    """Operators that depose each other all the time cost an API server little."""
    writers = await two_writers(ring)
    reads = Reads(ring)
    races = 20
    for number in range(races):
        loser, winner = writers[number % 2], writers[(number + 1) % 2]
        await loser.open()
        await winner.take_over()
        with pytest.raises(AppendConflict):
            await loser.begin()
    assert reads.lists == 0
    assert reads.slots <= races * 2 * READS_MAX
    await same_as_read_anew(ring, writers[races % 2])


async def test_append_cut_off_is_found_by_next_opening(ring: RingShell) -> None:
    _, two = await two_writers(ring)
    ring.faults.add("PUT", ring.faults.delay, ring.faults.hang)
    writing = asyncio.create_task(two.put("late"))
    await ring.faults.drained()
    writing.cancel()
    await asyncio.wait([writing])
    ring.faults.land()
    reads = Reads(ring)
    await two.open()
    assert reads.lists == 0
    assert two.image[-1] == "late"
    await same_as_read_anew(ring, two)


async def many_batches(ring: RingShell, writer: Writer) -> None:
    for _ in range(ADDED_MAX + READ_AT_ONCE):
        await writer.put("c")


async def another_lap(ring: RingShell, writer: Writer) -> None:
    await writer.write(SLOTS + 1, "c")


async def a_snapshot(ring: RingShell, writer: Writer) -> None:
    await writer.snapshot()


async def deleted_and_mended(ring: RingShell, writer: Writer) -> None:
    del ring.store.objects["metadatabatches", f"{PLACE.prefix}-0020"]
    await writer.snapshot()
    await writer.log.mend()


async def touched(ring: RingShell, writer: Writer) -> None:
    number = (writer.tip.next_sequence - 1) % SLOTS
    await writer.put("on")
    ring.store.objects.edit(
        ("metadatabatches", f"{PLACE.prefix}-{number:04d}"), annotations={"touched": "yes"}
    )


CHANGES = [many_batches, another_lap, a_snapshot, deleted_and_mended, touched]


@pytest.mark.parametrize("change", CHANGES)
async def test_changes_that_reach_older_slots_are_read_whole(
    ring: RingShell, change: Callable[[RingShell, Writer], Awaitable[None]]
) -> None:
    one, two = await two_writers(ring)
    await one.open()
    await change(ring, two)
    reads = Reads(ring)
    await one.open()
    assert reads.lists > 0
    assert one.image == two.image
    await one.take_over()
    await one.write(2 * SLOTS, "d")
    await same_as_read_anew(ring, one)


async def test_log_restored_to_earlier_state_is_read_whole(ring: RingShell) -> None:
    one, two = await two_writers(ring)
    backup = ring.store.backup()
    await two.write(5, "lost")
    await one.open()
    ring.store.restore(backup)
    reads = Reads(ring)
    opened = await one.open()
    assert reads.lists > 0
    assert "lost0" not in image_of(opened)
    await same_as_read_anew(ring, one)


async def test_batches_restored_without_snapshots_are_refused(ring: RingShell) -> None:
    one, two = await two_writers(ring)
    await one.open()
    backup = ring.store.backup()
    await two.write(3, "lost")
    await two.snapshot()
    ring.store.restore_kind("metadatabatches", backup)
    with pytest.raises(LogRegressed):
        await one.open()


def slot_of(sequence: int) -> tuple[str, str]:
    return "metadatabatches", f"{PLACE.prefix}-{sequence % SLOTS:04d}"


def emptied_by_edit(ring: RingShell, sequence: int, uid: str | None = None) -> None:
    """Another client removes the batch from its slot."""
    stored = ring.store.objects.stored(slot_of(sequence))
    spec = {name: stored.body["spec"][name] for name in ("clusterId", "slot")}
    metadata = {**stored.metadata, "uid": uid or stored.metadata["uid"]}
    ring.store.server.store.put(
        stored.resource, {**stored.body, "metadata": metadata, "spec": spec}
    )


def recreated(ring: RingShell, sequence: int) -> None:
    """Another client deletes the slot and creates it again, unused."""
    emptied_by_edit(ring, sequence, uid="another-uid")


LOSSES = [recreated, emptied_by_edit]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("lost", range(1, READ_AT_ONCE + 2))
@pytest.mark.parametrize("newer", [1, READ_AT_ONCE + 1])
async def test_emptied_slot_before_newer_batch_is_refused(
    ring: RingShell, lose: Callable[[RingShell, int], None], lost: int, newer: int
) -> None:
    """`lost`: batches after the last one that the opening writer knows."""
    one, two = await two_writers(ring)
    await one.open()
    known = one.tip.next_sequence - 1
    await two.write(lost + newer, "c")
    lose(ring, known + lost)
    for _ in range(2):
        with pytest.raises(LogRegressed):
            await one.open()


@pytest.mark.parametrize("lost", range(1, READ_AT_ONCE))
async def test_newer_batch_behind_unchanged_slot_is_refused(ring: RingShell, lost: int) -> None:
    """The API server returns a slot as it was before its batch."""
    one, two = await two_writers(ring)
    await one.open()
    number = one.tip.next_sequence - 1 + lost
    before = ring.store.objects.stored(slot_of(number))
    await two.write(lost + 1, "c")
    backup = ring.store.backup()
    root, key = before.resource.root, before.key
    table = {**backup.tables[root], key: before}
    ring.store.restore(replace(backup, tables={**backup.tables, root: table}))
    with pytest.raises(LogRegressed):
        await one.open()


@pytest.mark.parametrize("lose", LOSSES)
async def test_emptied_last_slot_is_read_whole(
    ring: RingShell, lose: Callable[[RingShell, int], None]
) -> None:
    """Only a broker's copy can tell what it held."""
    one, two = await two_writers(ring)
    await one.open()
    await two.write(1, "c")
    lose(ring, two.tip.next_sequence - 1)
    reads = Reads(ring)
    await one.open()
    assert reads.lists > 0
    await same_as_read_anew(ring, one)


@pytest.mark.parametrize("added", range(READ_AT_ONCE + 1))
async def test_deleted_slot_after_next_is_made_again(ring: RingShell, added: int) -> None:
    """Else its absence, once the next batch is written, looks like a lost batch."""
    one, two = await two_writers(ring)
    await one.open()
    await two.write(added, "c")
    deleted = slot_of(two.tip.next_sequence + 1)
    del ring.store.objects[deleted]
    await one.take_over()
    assert deleted in ring.store.objects
    await same_as_read_anew(ring, one)
    await one.write(SLOTS, "d")
    await same_as_read_anew(ring, one)
