"""An object of the log, deleted under a writer: noticed, covered by a snapshot, created again."""

import pytest
from tests.plimsoll_operator.metalog.shells import PLACE, RingShell
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import AppendConflict, LogRegressed


def slot(number: int) -> tuple[str, str]:
    return "metadatabatches", f"{PLACE.prefix}-{number:04d}"


async def a_writer(ring: RingShell) -> Writer:
    writer = Writer(ring.log())
    await writer.take_over()
    for name in ("a", "b", "c"):
        await writer.put(name)
    return writer


async def test_untouched_log_has_no_lost_objects(ring: RingShell) -> None:
    writer = await a_writer(ring)
    assert await writer.log.lost() == ()


async def test_snapshot_makes_log_with_deleted_batch_whole(ring: RingShell) -> None:
    writer = await a_writer(ring)
    del ring.store.objects[slot(2)]
    assert await writer.log.lost() == (slot(2)[1],)
    with pytest.raises(LogRegressed):
        await ring.log().open()
    await writer.snapshot()
    await writer.log.mend()
    assert await writer.log.lost() == ()
    assert image_of(await ring.log().open()) == writer.image
    await writer.put("d")
    assert image_of(await ring.log().open()) == writer.image


@pytest.mark.parametrize("holds_batch", [True, False], ids=["with its batch", "empty"])
async def test_slot_recreated_by_another_client_is_lost(ring: RingShell, holds_batch: bool) -> None:
    """As a backup of objects brings it back, under another uid."""
    writer = await a_writer(ring)
    spec = ring.store.objects[slot(2)]["spec"]
    if not holds_batch:
        spec = {name: spec[name] for name in ("clusterId", "slot")}
    ring.store.objects.recreate(slot(2), **spec)
    assert await writer.log.lost() == (slot(2)[1],)
    await writer.snapshot()
    await writer.log.mend()
    assert await writer.log.lost() == ()
    assert image_of(await ring.log().open()) == writer.image
    await writer.put("d")
    assert image_of(await ring.log().open()) == writer.image


async def test_recreated_slot_with_later_batch_stays(ring: RingShell) -> None:
    writer = await a_writer(ring)
    later = writer.tip.next_sequence
    await Writer(ring.log(), "other").take_over()
    spec = ring.store.objects[slot(later)]["spec"]
    ring.store.objects.recreate(slot(later), **spec)
    assert await writer.log.lost() == (slot(later)[1],)
    with pytest.raises(AppendConflict):
        await writer.log.mend()
    assert ring.store.objects[slot(later)]["spec"] == spec


async def test_recreated_slot_serves_at_next_wrap(ring: RingShell) -> None:
    writer = await a_writer(ring)
    del ring.store.objects[slot(1)]
    await writer.snapshot()
    await writer.log.mend()
    for number in range(20):
        if writer.log.needs_snapshot():
            await writer.snapshot()
        await writer.put(f"more {number}")
    assert image_of(await ring.log().open()) == writer.image


async def test_deleted_snapshot_is_found(ring: RingShell) -> None:
    writer = await a_writer(ring)
    await writer.snapshot()
    (name,) = await ring.snapshot_names()
    await ring.tear_snapshot(name)
    assert await writer.log.lost() == (name,)
    await writer.snapshot()
    assert await writer.log.lost() == ()
