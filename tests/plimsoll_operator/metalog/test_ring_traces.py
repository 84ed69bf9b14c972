"""The traces by which earlier drafts of the log lost metadata, each played on the ring."""

import asyncio
from contextlib import suppress

import pytest
from tests.plimsoll_operator.metalog.shells import SLOTS, RingShell
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import AppendConflict, LogRegressed


async def cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("stale_list", [False, True])
async def test_trace_r1_stalled_candidate_does_not_commit(
    ring: RingShell, stale_list: bool
) -> None:
    """The candidate read up to 1; its batch 2 lands after 2 was committed, snapshotted, freed."""
    active, candidate = Writer(ring.log(), "X"), Writer(ring.log(), "W")
    await active.take_over()
    await active.put("1")
    if stale_list:
        ring.store.frozen = ring.store.backup()
        await active.put("2")
    await candidate.open()
    ring.store.frozen = None
    term = candidate.term()
    assert term.sequence == 2
    if not stale_list:
        await active.put("2")
    await active.snapshot()
    with pytest.raises(AppendConflict):
        await candidate.send(term)
    while active.tip.next_sequence <= SLOTS + 3:
        await active.write(1, "round ")
    await active.snapshot()
    await candidate.take_over()
    assert candidate.image[:-1] == active.image


async def test_trace_r2_unfound_append_may_exist(ring: RingShell) -> None:
    """a is sent and seems lost, b is decided anew, a lands late, then a successor, then b."""
    first = Writer(ring.log(), "X")
    await first.take_over()
    ring.faults.add("PUT", ring.faults.delay, ring.faults.hang)
    attempt_a = asyncio.create_task(first.put("a"))
    await ring.faults.drained()
    await cancelled(attempt_a)
    await first.open()
    assert "a" not in first.image
    ring.faults.add("PUT", ring.faults.delay, ring.faults.hang)
    attempt_b = asyncio.create_task(first.put("b"))
    await ring.faults.drained()
    late_a, late_b = ring.faults.late
    ring.faults.late = []
    ring.store.handle(late_a)
    successor = Writer(ring.log(), "Y")
    await successor.take_over()
    assert successor.image[1] == "a"
    await successor.snapshot()
    ring.store.handle(late_b)
    ring.faults.gate.set()
    with pytest.raises(AppendConflict):
        await attempt_b
    assert first.acked == successor.image[:1]
    assert image_of(await ring.log().open()) == successor.image
    while successor.tip.next_sequence <= SLOTS + 3:
        await successor.write(1, "round ")
    ring.store.handle(late_b)
    assert image_of(await ring.log().open()) == successor.image


async def test_trace_r3_deposed_writers_snapshot_destroys_nothing(
    ring: RingShell,
) -> None:
    """X's chunks are cleared away as torn, then X writes the index and believes it complete."""
    first, second = Writer(ring.log(), "X"), Writer(ring.log(), "Y")
    await first.take_over()
    await first.put("a")
    ring.faults.add("POST", ring.store_and_go_on, ring.faults.hang)
    attempt = asyncio.create_task(first.write_snapshot())
    await ring.faults.drained()
    await second.take_over()
    await second.put("b")
    kept = await second.snapshot()
    ring.faults.gate.set()
    torn = await attempt
    assert await ring.snapshot_names() == sorted([torn.name, kept.name])
    with pytest.raises(AppendConflict):
        await first.put_records([torn])
    with pytest.raises(AppendConflict):
        await first.log.release(torn)
    opened = await ring.log().open()
    assert opened.snapshot is not None
    assert opened.snapshot.name == kept.name
    assert image_of(opened) == second.image


async def test_trace_r3_two_snapshot_writers_never_mix(ring: RingShell) -> None:
    first, second = Writer(ring.log(), "X"), Writer(ring.log(), "Y")
    await first.take_over()
    await first.put("a")
    await second.open()
    taken = [await writer.write_snapshot() for writer in (first, second)]
    assert taken[0].end_offset == taken[1].end_offset
    assert taken[0].name != taken[1].name
    assert image_of(await ring.log().open()) == first.image


async def test_trace_r7_surviving_writer_notices_restored_storage(
    ring: RingShell,
) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.write(2, "kept ")
    backup = ring.store.backup()
    await writer.write(3, "lost ")
    ring.store.restore(backup)
    with pytest.raises(LogRegressed, match="went back"):
        await writer.put("onto a hole")
    with pytest.raises(AppendConflict, match="reopened"):
        await writer.put("more")


async def test_trace_r7_a_hole_is_never_read_over(ring: RingShell) -> None:
    """Foreign load has carried the restored storage's versions past what the writer saw."""
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.write(2, "kept ")
    backup = ring.store.backup()
    await writer.write(3, "lost ")
    ring.store.restore(backup)
    ring.store.server.store.revision += 1000
    await writer.put("onto a hole")
    with pytest.raises(LogRegressed, match="batches 3 to 5 of the metadata log are missing"):
        await ring.log().open()


async def test_trace_r7_second_history_has_another_nonce(
    ring: RingShell,
) -> None:
    writer = Writer(ring.log(), "first")
    await writer.take_over()
    await writer.write(2, "kept ")
    backup = ring.store.backup()
    await writer.write(3, "lost ")
    known = {offset: writer.log.nonce_at(offset) for offset in range(1, 7)}
    ring.store.restore(backup)
    other = Writer(ring.log(), "second")
    await other.take_over()
    await other.write(5, "again ")
    now = {offset: other.log.nonce_at(offset) for offset in range(1, 7)}
    assert [known[offset] == now[offset] for offset in range(1, 7)] == [True] * 3 + [False] * 3


async def test_trace_r7_restored_slot_in_conflict_is_named(ring: RingShell) -> None:
    """The slot has gone back two laps: neither ours, nor a successor's, nor what we replaced."""
    writer = Writer(ring.log())
    await writer.take_over()
    backup = ring.store.backup()
    while writer.tip.next_sequence < 2 * SLOTS:
        await writer.write(1, "round ")
    ring.store.restore(backup)
    with pytest.raises(LogRegressed, match="went back in time"):
        await writer.put("x")


async def test_snapshot_beyond_the_log_is_a_regressed_log(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.put("a")
    backup = ring.store.backup()
    await writer.put("b")
    await writer.write_snapshot()
    ring.store.restore_kind("metadatabatches", backup)
    with pytest.raises(LogRegressed, match="lost committed batches"):
        await ring.log().open()
