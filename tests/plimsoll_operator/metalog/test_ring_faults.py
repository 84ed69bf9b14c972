"""What the Kubernetes shell makes of an API server's faults: certainty, or nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.plimsoll_operator.metalog.fake_api import DirectApi, Json
from tests.plimsoll_operator.metalog.shells import FAST, PLACE, SLOTS, HttpShell, RingShell
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import (
    AppendConflict,
    AppendRefused,
    LogCorrupt,
    LogRegressed,
    LogUnavailable,
    RestoredHistory,
    SnapshotRequired,
)
from plimsoll_operator.metalog.kubernetes_log import RingLog, RingOptions

OUTCOMES = ["lose_reply", "lose_request", "fail_before", "fail_after", "delay", "throttle"]


@pytest.mark.parametrize("first", OUTCOMES)
@pytest.mark.parametrize("second", [*OUTCOMES, None])
async def test_unknown_outcome_is_resolved_to_exactly_one_commit(
    ring: RingShell, first: str, second: str | None
) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    names = [name for name in (first, second) if name is not None]
    ring.faults.add("PUT", *(getattr(ring.faults, name) for name in names))
    await writer.put("once")
    ring.faults.land()
    await writer.put("next")
    assert ring.faults.all_happened
    assert image_of(await ring.log().open()) == [*writer.image[:1], "once", "next"]


@pytest.mark.parametrize("fault", [*OUTCOMES, "hang"])
async def test_append_with_unknown_outcome_is_written_once(http: HttpShell, fault: str) -> None:
    writer = Writer(http.log())
    await writer.take_over()
    http.faults.add("PUT", *[getattr(http.faults, fault)] * 2)
    async with asyncio.timeout(30):
        await writer.put("once")
    http.faults.land()
    await writer.put("next")
    assert http.faults.all_happened
    assert image_of(await http.log().open()) == [*writer.image[:1], "once", "next"]


async def test_append_repeats_only_the_same_bytes(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    ring.store.requests.clear()
    ring.faults.add("PUT", ring.faults.fail_after, ring.faults.throttle)
    await writer.put("once")
    sent = [request.body for request in ring.store.requests if request.method == "PUT"]
    assert len(sent) == 2
    assert len(set(sent)) == 1


@pytest.mark.parametrize("fault", ["forbid", "too_large"])
async def test_refusal_is_final_for_its_batch_alone(ring: RingShell, fault: str) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    ring.faults.add("PUT", getattr(ring.faults, fault))
    with pytest.raises(AppendRefused):
        await writer.put("refused")
    await writer.put("accepted")
    assert image_of(await ring.log().open()) == [*writer.image[:1], "accepted"]


async def test_refusal_after_an_unknown_outcome_proves_nothing(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    ring.faults.add("PUT", ring.faults.fail_after, ring.faults.forbid)
    await writer.put("committed all the same")
    assert image_of(await ring.log().open()) == writer.image


async def test_externally_touched_slot_is_still_written(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    slot = ("metadatabatches", f"{PLACE.prefix}-0001")
    ring.store.objects.edit(slot, annotations={"touched": "yes"})
    await writer.put("a")
    assert image_of(await ring.log().open()) == writer.image


def drop_a_field(item: Json) -> None:
    for record in item["spec"].get("records", []):
        record.pop("broker_ids", None)


def drop_a_record(item: Json) -> None:
    if item["spec"].get("records"):
        item["spec"]["records"].pop()


@pytest.mark.parametrize("mutate", [drop_a_field, drop_a_record])
async def test_batch_stored_otherwise_than_sent_is_never_applied(
    ring: RingShell, mutate: Callable[[Json], None]
) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    ring.store.mutate = mutate
    with pytest.raises(LogCorrupt):
        await writer.put("a")
    with pytest.raises(AppendConflict, match="reopened"):
        await writer.put("b")
    ring.store.mutate = None
    with pytest.raises(LogCorrupt, match="checksum"):
        await ring.log().open()


async def test_slot_deleted_by_hand_stops_the_log(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.put("a")
    del ring.store.objects["metadatabatches", f"{PLACE.prefix}-0002"]
    with pytest.raises(LogCorrupt, match="was deleted"):
        await writer.put("b")
    with pytest.raises(LogRegressed, match="was deleted"):
        await ring.log().open()


async def test_slot_deleted_and_made_again_stops_the_log(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    ring.store.objects.edit(("metadatabatches", f"{PLACE.prefix}-0001"), uid="another")
    with pytest.raises(LogCorrupt, match="recreated"):
        await writer.put("b")


async def fill(writer: Writer) -> None:
    for number in range(SLOTS):
        try:
            await writer.put(f"{number}")
        except SnapshotRequired:
            return
    raise AssertionError("a slot was used again without a snapshot")


async def test_full_ring_requests_snapshot_and_holds_it(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await fill(writer)
    assert writer.log.needs_snapshot()
    assert writer.tip.next_sequence == SLOTS - SLOTS // 8
    successor = Writer(ring.log())
    await successor.take_over()
    assert successor.log.needs_snapshot()
    await successor.snapshot()
    await successor.write(3 * SLOTS, "on ")
    assert image_of(await ring.log().open()) == successor.image


async def test_many_terms_leave_room_for_snapshot(
    ring: RingShell,
) -> None:
    for number in range(3 * SLOTS):
        writer = Writer(ring.log(), f"w{number}")
        await writer.take_over()
    assert image_of(await ring.log().open()) == writer.image


async def test_slot_under_unannounced_snapshot_is_not_reused(
    ring: RingShell,
) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.put("a")
    await writer.write_snapshot()
    successor = Writer(ring.log())
    await successor.take_over()
    await fill(successor)
    assert successor.tip.next_sequence < SLOTS


async def test_release_empties_large_slots_and_names_owner(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.put("large", padding=40_000)
    await writer.put("small")
    await writer.snapshot()
    specs = [
        ring.store.objects["metadatabatches", f"{PLACE.prefix}-{slot:04d}"]["spec"]
        for slot in range(3)
    ]
    assert ["records" in spec for spec in specs] == [True, False, True]
    assert (specs[1]["sequence"], specs[1]["emptied"]) == (1, True)
    assert image_of(await ring.log().open()) == writer.image


async def test_deposed_writer_that_empties_late_disturbs_nobody(ring: RingShell) -> None:
    old, new = Writer(ring.log(), "old"), Writer(ring.log(), "new")
    await old.take_over()
    await old.put("large", padding=40_000)
    taken = await old.write_snapshot()
    await old.put_records([taken])
    ring.faults.add("PUT", ring.faults.delay)
    await old.log.release(taken)
    await new.take_over()
    ring.faults.land()
    await new.write(3 * SLOTS, "on ")
    assert image_of(await ring.log().open()) == new.image


async def test_objects_carry_cluster_id_without_owner(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.snapshot()
    for (_, name), item in ring.store.objects.items():
        assert name.startswith("demo-5f2b1c3a9d4e-")
        assert "ownerReferences" not in item["metadata"]
        assert item["metadata"]["labels"]["internal.plimsoll.dev/cluster-id"] == str(
            PLACE.cluster_id
        )
    names = [name for plural, name in ring.store.objects if plural == "metadatabatches"]
    assert len(names) == SLOTS


async def test_list_expired_during_read_is_repeated(
    ring: RingShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll_operator.metalog.kube_objects.PAGE_OBJECTS", 5)
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.write(3, "a")
    ring.faults.add("GET", *[ring.expire_pages] * 3)
    assert image_of(await ring.log().open()) == writer.image


async def test_list_expired_outside_of_open_is_an_outage(
    ring: RingShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lists objects tries again, as after any other failure of the API server."""
    monkeypatch.setattr("plimsoll_operator.metalog.kube_objects.PAGE_OBJECTS", 1)
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.snapshot()
    taken = await writer.write_snapshot()
    await writer.put_records([taken])
    history = RestoredHistory(image_bytes=b"[]", end_offset=9, nonce="n", controller_epoch=5)
    log = writer.log
    listings: list[tuple[int, Callable[[], Awaitable[object]]]] = [
        (2, log.lost),
        (2, log.remains),
        (2, log.newest_snapshot),
        (4, lambda: log.release(taken)),  # it reads the snapshot before
        (2, lambda: ring.log().restore(history)),
    ]
    for reads, listing in listings:
        ring.faults.add("GET", *[ring.expire_pages] * reads)
        with pytest.raises(LogUnavailable, match="expired"):
            await listing()
    await log.release(taken)
    assert image_of(await ring.log().open()) == writer.image


async def test_ring_of_another_size_is_refused(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    await writer.write(SLOTS + 4, "a")
    other = RingLog(DirectApi(ring.faults), PLACE, RingOptions(slots=SLOTS // 2, backoff_ms=0))
    with pytest.raises(LogCorrupt, match="does not fit the metadata log"):
        await other.open()
    other = RingLog(DirectApi(ring.faults), PLACE, RingOptions(slots=SLOTS * 2, backoff_ms=0))
    with pytest.raises(LogCorrupt, match="does not fit the metadata log"):
        await other.open()


async def test_silent_api_server_fails_opening_in_bounded_time(
    ring: RingShell,
) -> None:
    ring.faults.add("GET", *[ring.faults.lose_request] * 1000)
    with pytest.raises(LogUnavailable, match="does not answer"):
        await ring.log().open()


async def test_standby_outlives_an_api_server_that_is_away(ring: RingShell) -> None:
    writer = Writer(ring.log())
    await writer.take_over()
    stream: Any = ring.log().watch()
    ring.faults.add("GET", *[ring.faults.lose_request] * 70)
    image = image_of(await anext(stream))
    assert image == writer.image
    ring.faults.add("GET", *[ring.faults.lose_request] * 70)
    await writer.put("a")
    batch = await asyncio.wait_for(anext(stream), 30)
    assert batch.nonce == writer.tip.nonce
    await stream.aclose()


def test_defaults_are_the_documented_ones() -> None:
    assert (RingOptions().slots, RingOptions().attempt_timeout_ms) == (1024, 2000)
    assert FAST.slots == SLOTS
