"""Slots of the metadata log: which are made and when, and what one that is missing means."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.plimsoll_operator.metalog.fake_api import DirectApi
from tests.plimsoll_operator.metalog.shells import FAST, PLACE, RingShell
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import LogRegressed, LogUnavailable
from plimsoll_operator.metalog.kubernetes_log import MAKES_MAX, RingLog, logger
from plimsoll_operator.metalog.ring import Ring


def delete_slots(ring: RingShell, numbers: Iterable[int]) -> None:
    for number in numbers:
        del ring.store.objects["metadatabatches", f"{PLACE.prefix}-{number:04d}"]


async def written(ring: RingShell, count: int, written_ms: int) -> RingLog:
    """A log of so many batches with the term's, in a ring of 200; nothing is made any more."""
    log = RingLog(DirectApi(ring.faults), PLACE, replace(FAST, slots=200))
    writer = Writer(log, written_ms=written_ms)
    await writer.take_over()
    while writer.tip.next_sequence < count:
        if log.needs_snapshot():
            await writer.snapshot()
        await writer.put("on")
    await log.close()
    return log


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 33, 64, 65, 80, 95, 96, 97, 130, 184, 199, 200, 201, 300])
@pytest.mark.parametrize("and_those_ahead", [False, True])
async def test_deleted_slot_of_newest_batch_is_noticed(
    ring: RingShell, count: int, and_those_ahead: bool
) -> None:
    log = await written(ring, count, written_ms=1)
    newest = count - 1
    there = [number for number in range(200) if log._ring.unmade([number]) == []]
    ahead = [number for number in there if number > newest] if and_those_ahead else []
    delete_slots(ring, [newest % 200, *ahead])
    with pytest.raises(LogRegressed, match="was deleted"):
        await log.open()


async def test_batch_is_written_after_successors_slot_exists(
    ring: RingShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ring, "runs_short", lambda *_: [])
    log = RingLog(DirectApi(ring.faults), PLACE, replace(FAST, slots=80))
    writer = Writer(log)
    await writer.take_over()
    await writer.put("on")
    ring.faults.add("POST", ring.faults.forbid)
    with pytest.raises(LogUnavailable, match="cannot create"):
        await writer.put("refused")
    assert image_of(await log.open()) == writer.image
    assert batches(ring) == 3
    await log.close()


async def test_new_log_creates_slots_as_it_grows(ring: RingShell) -> None:
    options = replace(FAST, slots=200)
    log = RingLog(DirectApi(ring.faults), PLACE, options)
    writer = Writer(log)
    await writer.open()
    assert len(ring.store.objects) == 64
    await writer.take_over()
    assert len(ring.store.objects) == 64, "half of them are still ahead of the next batch"
    await writer.write(150, "on ")
    await log.close()
    again = RingLog(DirectApi(ring.faults), PLACE, options)
    successor = Writer(again)
    await successor.take_over()
    assert successor.image[:-1] == writer.image
    await successor.write(250, "on and on ")
    await again.close()
    assert len([name for plural, name in ring.store.objects if plural == "metadatabatches"]) == 200


def batches(ring: RingShell) -> int:
    return len([name for plural, name in ring.store.objects if plural == "metadatabatches"])


async def short_of_slots(log: RingLog) -> Writer:
    """With so many batches that those of later ones are being made."""
    writer = Writer(log)
    await writer.take_over()
    while log._making is None:
        await writer.put("on")
    return writer


async def _made(log: RingLog) -> None:
    assert log._making is not None
    await asyncio.wait([log._making])


async def test_slots_whose_making_is_refused_are_tried_again(ring: RingShell) -> None:
    log = RingLog(DirectApi(ring.faults), PLACE, replace(FAST, slots=200))
    refused = [ring.faults.forbid] * 8
    ring.faults.add("POST", *[ring.store_and_go_on] * 70, *refused)
    await short_of_slots(log)
    await _made(log)
    assert batches(ring) == 96
    await log.close()


async def test_missing_slots_are_created_when_needed(
    ring: RingShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ring, "runs_short", lambda *_: [])
    log = RingLog(DirectApi(ring.faults), PLACE, replace(FAST, slots=80))
    writer = Writer(log)
    await writer.take_over()
    await writer.write(100, "on ")
    assert image_of(await log.open()) == writer.image
    await log.close()


async def test_slots_that_failed_are_created_later(
    ring: RingShell, caplog: pytest.LogCaptureFixture
) -> None:
    log = RingLog(DirectApi(ring.faults), PLACE, replace(FAST, slots=80))
    # Four at once at first; then the first of them, alone.
    refused = [ring.faults.forbid] * (4 + MAKES_MAX - 1)
    ring.faults.add("POST", *[ring.store_and_go_on] * 64, *refused)
    writer = await short_of_slots(log)
    await _made(log)
    assert batches(ring) == 64
    said = [one.message for one in caplog.records if one.name == logger.name]
    assert len(said) == 2, "once when it begins, once when it is given up"
    assert said[0].startswith("the operator cannot create 16 MetadataBatch objects")
    assert said[1].startswith("the operator gave up creating 16 MetadataBatch objects ahead")
    await writer.write(100, "on ")
    assert image_of(await log.open()) == writer.image
    await log.close()
