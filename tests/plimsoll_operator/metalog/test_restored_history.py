"""A restored history takes the place of a log, whatever is left of that, at one commit."""

from __future__ import annotations

import json

import pytest
from tests.plimsoll_operator.metalog.shells import PLACE, Crash, RingShell, Shell
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import (
    AppendConflict,
    LogRegressed,
    MetadataLog,
    RestoredHistory,
)

STEPS_MAX = 60


def history(*, epoch: int = 50) -> RestoredHistory:
    return RestoredHistory(
        image_bytes=json.dumps(["x", "y", "z"]).encode(),
        end_offset=40,
        nonce="of-z",
        controller_epoch=epoch,
    )


async def continued(log: MetadataLog) -> None:
    """The log is the history, and a term follows it."""
    opened = await log.open()
    assert opened.restored
    assert image_of(opened) == ["x", "y", "z"]
    assert (opened.tip.next_offset, opened.tip.nonce) == (40, "of-z")
    writer = Writer(log)
    await writer.take_over()
    assert writer.epoch == 51
    await writer.put("more")
    assert image_of(await log.open()) == writer.image
    await writer.take_over()
    await writer.snapshot()
    await writer.put("and more")
    opened = await log.open()
    assert image_of(opened) == writer.image
    assert await log.lost() == ()


async def opened(shell: Shell) -> tuple[MetadataLog, list[str] | None]:
    """A process that opens the log, and its image; None if the log lacks records."""
    log = shell.log()
    try:
        return log, image_of(await log.open())
    except LogRegressed:
        return log, None


async def test_restored_history_replaces_older_log(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    await writer.put("a", "b")
    await writer.snapshot()
    await writer.put("c")
    await writer.log.restore(history())
    await continued(writer.log)


async def test_restored_history_begins_an_empty_log(shell: Shell) -> None:
    log = shell.log()
    await log.open()
    await log.restore(history())
    await continued(log)


async def test_writer_of_replaced_log_is_deposed(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.put("a")
    await ring.log().restore(history())
    with pytest.raises(AppendConflict):
        await writer.put("b")
    await continued(ring.log())


@pytest.mark.parametrize("lost", [(3,), (1, 2, 3, 4), tuple(range(16))])
async def test_ring_with_deleted_batches_is_restored(
    ring: RingShell, lost: tuple[int, ...]
) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    for name in ("a", "b"):
        await writer.put(name)
    await writer.snapshot()
    await writer.put("c")
    for number in lost:
        del ring.store.objects["metadatabatches", f"{PLACE.prefix}-{number:04d}"]
    log = ring.log()
    if len(lost) < 16:
        with pytest.raises(LogRegressed):
            await log.open()
    await log.restore(history())
    await continued(log)


async def test_restore_that_dies_half_way_is_repeated(mortal: Shell) -> None:
    for step in range(STEPS_MAX):
        await mortal.reset()
        writer = Writer(mortal.log())
        await writer.take_over()
        await writer.put("a")
        before = list(writer.image)
        with pytest.MonkeyPatch.context() as patch:
            log, _ = await opened(mortal)
            mortal.crash_at(step, "after", patch)
            try:
                await log.restore(history())
                died = False
            except (Crash, BaseExceptionGroup):
                died = True
        log, image = await opened(mortal)
        assert image in (None, before, ["x", "y", "z"])
        await log.restore(history())
        await continued(log)
        if not died:
            return
    raise AssertionError("the restore never ended")


async def test_snapshots_end_outlives_lost_batches(shell: Shell) -> None:
    """By it the restore knows of records that no copy has."""
    log = shell.log()
    await log.open()
    assert await log.newest_snapshot() is None
    writer = Writer(log)
    await writer.take_over()
    await writer.put("a")
    taken = await writer.snapshot()
    await writer.put("b")
    found = await log.newest_snapshot()
    assert found is not None
    assert found.end_offset == taken.end_offset
    assert found.nonce == log.nonce_at(taken.end_offset)


async def test_deposed_writer_keeps_snapshot_of_restored_history(ring: RingShell) -> None:
    """It stood still after its `SnapshotTaken`, while the log was restored to an earlier end."""
    deposed = Writer(ring.log())
    await deposed.take_over()
    await deposed.put(*(f"given up {number}" for number in range(60)))
    taken = await deposed.write_snapshot()
    await deposed.put_records([taken])
    assert taken.end_offset > history().end_offset
    await ring.log().restore(history())
    await deposed.log.release(taken)
    await continued(ring.log())
