"""An audit finds each fault of a replica's file, with broker and offset, and nothing in healthy
ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.plimsoll_spark.replica_model import (
    Replica,
    audited,
    plain_batch,
    record,
    replica,
    sealed,
)

from plimsoll_spark.audit import summed
from plimsoll_spark.audit_range import FINDINGS_MAX, finished_ranges
from plimsoll_spark.audit_settings import AUDIT_CHECKS
from plimsoll_spark.audit_verdict import judge_audit
from plimsoll_spark.broker_connection import Standing
from plimsoll_spark.replica_reader import ReplicaReader

BATCHES = 12
SIZE = len(plain_batch(0))
BASES = [3 * number for number in range(BATCHES)]


def three() -> list[Replica]:
    held = [replica([plain_batch(base, content=b"%2d" % base) for base in BASES]) for _ in range(3)]
    return held


def place_of(held: Replica, base: int) -> int:
    at = 0
    while struct.unpack_from(">q", held.file, at)[0] != base:
        at += struct.unpack_from(">i", held.file, at + 8)[0] + 12
    return at


def cut_out(held: Replica, base: int) -> None:
    at = place_of(held, base)
    del held.file[at : at + struct.unpack_from(">i", held.file, at + 8)[0] + 12]


def flip(held: Replica, base: int, byte: int) -> None:
    held.file[place_of(held, base) + byte] ^= 1


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    return lambda held, **item: audited(monkeypatch, tmp_path, held, **item)


def told(found) -> list[tuple]:
    return [(one.kind, one.first, one.last, one.brokers) for one in found.findings]


def test_healthy_replicas_have_no_findings(audit) -> None:
    found = audit(three())
    assert (found.findings, found.unread, found.is_equal) == ((), (), True)
    assert (found.batches, found.records) == (BATCHES, 3 * BATCHES)


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("byte", [18, 30, 70])
def test_flipped_byte_is_unreadable_there(audit, broker: int, byte: int) -> None:
    """In the CRC, in the header it covers, in a record."""
    held = three()
    flip(held[broker], 6, byte)
    assert told(audit(held)) == [("unreadable", 6, 8, (broker,))]


def test_flipped_byte_on_all_replicas_names_all(audit) -> None:
    held = three()
    for one in held:
        flip(one, 6, 70)
    assert told(audit(held)) == [("unreadable", 6, 8, (0, 1, 2))]


def test_finding_names_valid_replicas_and_leader(audit) -> None:
    held = three()
    flip(held[0], 6, SIZE - 2)
    cut_out(held[1], 6)
    (missing, unreadable) = sorted(audit(held).findings, key=lambda one: one.kind)
    assert (missing.brokers, missing.valid, missing.leader) == ((1,), (2,), 0)
    assert (unreadable.brokers, unreadable.valid, unreadable.leader) == ((0,), (2,), 0)


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ((1,), "its CRC is wrong); brokers 0 (the leader) and 2 have a valid replica there: let b"),
        (
            (0,),
            "(the leader) (its CRC is wrong); brokers 1 and 2 have a valid replica there: let a",
        ),
        ((0, 1, 2), "no replica that was read is valid there"),
    ],
)
def test_verdict_says_where_damaged_place_is_valid(audit, damaged, words: str) -> None:
    held = three()
    for broker in damaged:
        flip(held[broker], 6, SIZE - 2)
    assert words in judge_audit(AUDIT_CHECKS, summed([], [audit(held)])).message


def test_flipped_leader_epoch_is_a_difference(audit) -> None:
    """It is outside of the CRC."""
    held = three()
    flip(held[2], 6, 15)
    kinds = {(one.kind, one.first, one.brokers) for one in audit(held).findings}
    assert ("different", 6, (2,)) in kinds
    assert ("epochs", 9, (2,)) in kinds


def test_flipped_length_hides_few_batches(audit) -> None:
    held = three()
    flip(held[1], 6, 8)
    (found,) = audit(held).findings
    assert (found.kind, found.first, found.brokers) == ("unreadable", 6, (1,))
    assert found.last <= 6 + 3 * 4, "the index finds the batches behind"


def test_batch_cut_out_is_missing_there(audit) -> None:
    held = three()
    cut_out(held[1], 6)
    assert told(audit(held)) == [("missing", 6, 8, (1,))]


def test_batch_cut_out_everywhere_is_gap(audit) -> None:
    held = three()
    for one in held:
        cut_out(one, 6)
    assert told(audit(held)) == [("gap", 6, 8, (0, 1, 2))]


def test_replaced_batch_is_a_difference(audit) -> None:
    held = three()
    at = place_of(held[1], 6)
    held[1].file[at : at + SIZE + 3] = plain_batch(6, content=b"xx")
    assert told(audit(held)) == [("different", 6, 8, (1,))]


def test_replaced_leaders_batch_names_leader(audit) -> None:
    held = three()
    at = place_of(held[0], 6)
    held[0].file[at : at + SIZE + 3] = plain_batch(6, content=b"xx")
    assert told(audit(held)) == [("different", 6, 8, (0,))]


def test_swapped_batches_are_found_there(audit) -> None:
    held = three()
    a, b, end = (place_of(held[1], base) for base in (6, 9, 12))
    held[1].file[a:end] = held[1].file[b:end] + held[1].file[a:b]
    found = audit(held)
    assert found.findings
    assert {one.brokers for one in found.findings} == {(1,)}
    assert told(found)[0] == ("missing", 6, 8, (1,))


def test_truncated_file_ends_where_it_ends(audit) -> None:
    held = three()
    del held[2].file[place_of(held[2], 30) + 10 :]
    assert told(audit(held)) == [("unreadable", 30, 35, (2,))]


def test_replica_in_sync_that_ends_early_is_short(audit) -> None:
    held = three()
    del held[2].file[place_of(held[2], 30) :]
    held[2].high_watermark = 30
    assert told(audit(held)) == [("short", 30, 35, (2,))]


def ends_early(held: list[Replica]) -> list[Replica]:
    del held[2].file[place_of(held[2], 30) :]
    held[2].high_watermark = 30
    return held


def test_replica_that_left_isr_is_unread(audit) -> None:
    standing = iter([Standing(0, frozenset({0, 1, 2}))] * 3 + [Standing(0, frozenset({0, 1}))] * 3)
    found = audit(ends_early(three()), standing=lambda: next(standing))
    assert [(one.broker, one.first) for one in found.unread] == [(2, 30)]
    assert found.findings == ()


def test_short_replica_under_new_leader_is_unread(audit) -> None:
    epochs = iter([0, 0, 0, 0, 0, 1])
    isr = frozenset({0, 1, 2})
    found = audit(ends_early(three()), standing=lambda: Standing(next(epochs), isr))
    assert [(one.broker, one.first) for one in found.unread] == [(2, 30)]
    assert found.findings == ()


def test_short_replica_that_catches_up_is_fine(audit) -> None:
    held = ends_early(three())
    isr = frozenset({0, 1, 2})

    def caught_up() -> Standing:
        held[2].file, held[2].high_watermark = three()[2].file, held[0].high_watermark
        return Standing(0, isr)

    found = audit(held, standing=caught_up)
    assert (found.findings, found.unread, found.is_equal) == ((), (), True)


def test_lagging_replica_out_of_sync_is_fine(audit) -> None:
    held = three()
    del held[2].file[place_of(held[2], 30) :]
    held[2].high_watermark = 30
    found = audit(held, in_sync={0, 1})
    assert (found.findings, found.unread) == ((), ())


def test_broker_away_is_told_as_unread(audit) -> None:
    held = three()
    held[1].reachable = False
    found = audit(held)
    assert [(one.broker, one.first) for one in found.unread] == [(1, 0)]
    assert found.findings == ()


@pytest.mark.parametrize("in_sync", [{0, 1, 2}, {0, 1}])
def test_quota_does_not_hide_damage(audit, in_sync) -> None:
    held = three()
    flip(held[2], 12, 64)
    held[2].held_back = 5
    assert told(audit(held, in_sync=in_sync)) == [("unreadable", 12, 14, (2,))]


@pytest.mark.parametrize("in_sync", [{0, 1, 2}, {0, 1}])
def test_quota_until_the_end_is_unread(audit, in_sync) -> None:
    held = three()
    held[2].held_back = 10**9
    found = audit(held, in_sync=in_sync, until_s=0)
    assert [(one.broker, one.why) for one in found.unread] == [(2, "the time was up")]
    assert found.findings == ()


def test_starved_broker_is_asked_again(audit) -> None:
    held = three()
    held[1].empty = 12
    found = audit(held, away_s=60.0)
    assert (found.findings, found.unread, found.is_equal) == ((), (), True)


def test_broker_starved_for_good_is_unread(audit) -> None:
    held = three()
    held[1].empty = 10**9
    found = audit(held)
    assert [(one.broker, one.first) for one in found.unread] == [(1, 0)]
    assert found.findings == ()


def test_longest_name_of_topic_is_audited(audit) -> None:
    assert audit(three(), topic="x" * 249).records == 3 * BATCHES


def test_result_of_finished_range_is_kept(audit, tmp_path: Path) -> None:
    held = three()
    flip(held[1], 12, 64)
    found = audit(held)
    assert finished_ranges(tmp_path) == [found]


def test_rare_kind_behind_many_findings_is_told(audit) -> None:
    """A batch that all replicas lack follows more differences than are kept."""
    bases = [3 * number for number in range(2 * FINDINGS_MAX + 20)]
    held = [
        replica([plain_batch(base, epoch=one * (base // 3 % 2)) for base in bases])
        for one in (0, 1)
    ]
    for one in held:
        cut_out(one, bases[-3])
    found = audit(held)
    assert len(found.findings) <= FINDINGS_MAX
    assert set(found.counts) == {one.kind for one in found.findings}
    verdict = judge_audit(AUDIT_CHECKS, summed([], [found]))
    assert verdict.reason.value == "OffsetsMissing"


def test_retention_is_told_from_loss(audit) -> None:
    """A replica removed its first segment; the others have not yet."""
    held = three()
    del held[1].file[: place_of(held[1], 9)]
    held[1].start, held[1].index = 9, []
    assert audit(held).findings == ()


def test_reader_tells_where_retention_went_ahead(audit, monkeypatch: pytest.MonkeyPatch) -> None:
    held, skipped = three()[:1], []
    read, fetch = ReplicaReader.read, held[0].fetch

    def fetch_one(offset: int, max_bytes: int):
        fetched = fetch(offset, SIZE)
        held[0].start = 15 if offset >= 6 else 0
        return fetched

    def told_read(self, *asked):
        found = read(self, *asked)
        skipped.extend(found.skipped_to)
        return found

    monkeypatch.setattr(held[0], "fetch", fetch_one)
    monkeypatch.setattr(ReplicaReader, "read", told_read)
    assert audit(held).findings == ()
    assert skipped == [15]


def test_ranges_meet_inside_a_batch(audit) -> None:
    first, second = (audit(three(), first=a, end=b) for a, b in ((0, 16), (16, 36)))
    assert (first.findings, second.findings) == ((), ())
    assert first.batches + second.batches == BATCHES


@st.composite
def faults(draw: st.DrawFn) -> tuple[str, int, int, int]:
    kind = draw(st.sampled_from(["flip", "cut", "truncate"]))
    base = draw(st.sampled_from(BASES))
    return kind, draw(st.integers(0, 2)), base, draw(st.integers(0, SIZE - 1))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(faults(), min_size=1, max_size=3, unique_by=lambda one: one[1]))
def test_no_damage_passes_and_none_is_invented(audit, damage) -> None:
    """Each damaged replica is named, at or before the damage; no undamaged one is."""
    held = three()
    for kind, broker, base, byte in damage:
        if kind == "flip":
            flip(held[broker], base, byte)
        elif kind == "cut":
            cut_out(held[broker], base)
        else:
            del held[broker].file[place_of(held[broker], base) + byte :]
    found = audit(held)
    named = {broker for one in found.findings for broker in one.brokers}
    damaged = {broker for _, broker, _, _ in damage}
    assert found.findings
    if len(damage) == 1:
        assert named == damaged
        ((_, _, base, _),) = damage
        assert min(one.first for one in found.findings) <= base + 2


# --- compacted topics -----------------------------------------------------------------------------


def keyed(base: int, *rows: tuple[int, bytes, bytes | None], last: int) -> bytes:
    """A batch with records (offset delta, key, value) up to offset delta `last`."""
    return sealed(base, [record(*row) for row in rows], last_delta=last)


FULL = [
    keyed(0, (0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), last=2),
    keyed(3, (0, b"c", b"1"), (1, b"c", None), last=1),
    keyed(5, (0, b"b", b"2"), (1, b"d", b"1"), last=1),
]
CLEANED = [keyed(0, (2, b"a", b"2"), last=2), FULL[2]]
"""The tombstone of `c` went too, and its batch."""


def by_record(audit, held: list[Replica]):
    first = audit(held, compacted=True)
    if first.is_equal:
        return first
    return audit(held, compacted=True, record_by_record=True)


def test_replicas_compacted_differently_are_equal(audit) -> None:
    held = [replica(FULL), replica(CLEANED), replica(FULL)]
    assert by_record(audit, held).findings == ()


def test_lost_newest_record_of_key_is_found(audit) -> None:
    held = [replica(FULL), replica(CLEANED), replica(FULL)]
    cut_out(held[1], 0)
    assert told(by_record(audit, held)) == [("missing", 2, 2, (1,))]


def test_changed_record_of_compacted_topic_is_found(audit) -> None:
    other = [keyed(0, (2, b"a", b"x"), last=2), FULL[2]]
    held = [replica(FULL), replica(other), replica(FULL)]
    found = by_record(audit, held)
    assert ("different", 2, 2, (1,)) in told(found)


def test_damage_in_compacted_topic_is_unreadable(audit) -> None:
    held = [replica(FULL), replica(CLEANED), replica(FULL)]
    flip(held[2], 5, 70)
    found = audit(held, compacted=True)
    assert told(found) == [("unreadable", 5, 6, (2,))]


def test_missing_offsets_of_compacted_topic_are_noted(audit) -> None:
    """Nobody knows if compaction removed them where the configuration may not be read."""
    held = three()
    assert not audit(held, compacted=True).excused
    cut_out(held[1], 6)
    assert not audit(held, compacted=True).excused, "the others hold them"
    for one in (0, 2):
        cut_out(held[one], 6)
    found = audit(held, compacted=True)
    assert (found.excused, found.findings) == (True, ())
    assert summed([], [found], ("t",)).excused == ("t",)


def test_replica_outside_isr_that_ends_early_is_noted(audit) -> None:
    held = three()
    held[2].high_watermark = 12
    del held[2].file[place_of(held[2], 12) :]
    found = audit(held, in_sync={0, 1})
    assert (found.findings, found.unread, found.behind) == ((), (), (2,))
    assert summed([], [found]).behind == 1
