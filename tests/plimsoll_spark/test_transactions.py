"""The markers of other clients' transactions take offsets, and are neither gaps nor records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_spark.replica_model import (
    Replica,
    audited,
    marker,
    plain_batch,
    record,
    replica,
    sealed,
)
from tests.plimsoll_spark.test_brokers_change import Server
from tests.plimsoll_spark.test_mirror_compare import WHOLE, pieces

from plimsoll_spark import mirror_compare, run_reader
from plimsoll_spark.audit_verdict import AuditFindings, Mirrored, judge_audit
from plimsoll_spark.batch_source import OffsetSpan, arrow_rows
from plimsoll_spark.batches import (
    TRANSACTIONAL,
    AbortedTransaction,
    Batch,
    aborted_among,
    is_abort,
    scan,
)
from plimsoll_spark.markers import markers_at, without_markers
from plimsoll_spark.mirror_compare import MirrorResult, Piece, compare_mirror
from plimsoll_spark.partition_reader import OutOfTime
from plimsoll_spark.range_check import Gap, LogRows, Span, gaps_in
from plimsoll_spark.replica_reader import Connections, Place, RateLimit, ReplicaReader
from plimsoll_spark.rolling_judge import Reading
from plimsoll_spark.values import Audited

PLACE = Place("t", 0, 0, "h", 1)


def transaction(base: int, count: int = 3, *, producer: int = 7, commits: bool = True) -> bytes:
    records = [record(at, b"k%d" % (base + at), b"v") for at in range(count)]
    data = sealed(base, records, attributes=TRANSACTIONAL, producer=producer)
    return data + marker(base + count, producer, commits=commits)


def split(logs: Sequence[bytes]) -> list[bytes]:
    """The batches of the bytes, one by one."""
    data, found = b"".join(logs), []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        found.append(data[:size])
        data = data[size:]
    return found


LOG = split([plain_batch(0), transaction(3), transaction(7, commits=False), plain_batch(11)])


def scanned(log: Sequence[bytes]) -> list[Batch]:
    return scan(memoryview(b"".join(log)), 0, 2**62).batches


def serve(monkeypatch: pytest.MonkeyPatch, held: Replica) -> None:
    server = Server(held, None)
    monkeypatch.setattr(Connections, "to", lambda self, place: server)


def test_audit_counts_markers_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = audited(monkeypatch, tmp_path, [replica(LOG), replica(LOG)])
    assert (found.findings, found.is_equal) == ((), True)
    assert (found.batches, found.records, found.markers) == (6, 12, 2)


def test_verdict_states_markers_only_if_any() -> None:
    one = Audited(topics=1, partitions=1, replicas=1, batches=6, records=12, markers=2)
    told = judge_audit(("NoGap",), AuditFindings(audited=one))
    assert "6 batches with 12 records and 2 markers of transactions of 1 topics" in told.message
    mirrored = Mirrored(compared=9, extra=0, behind=0, aborted=3, markers=2)
    told = judge_audit(("MirrorEqual",), AuditFindings(audited=one, mirrored=mirrored))
    assert "the source's 2 markers of transactions and 3 records of aborted" in told.message


def test_source_rows_of_markers_have_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, replica(LOG))
    reader = ReplicaReader(
        Connections({}), PLACE, own_copy=True, until_s=2**40, limit=RateLimit(None)
    )
    (rows,) = arrow_rows(OffsetSpan(PLACE, 0, 14), reader.read(0, 14))
    told = rows.to_pydict()
    assert told["records"] == [3, 3, 0, 3, 0, 3]
    assert told["isControl"] == [False, False, True, False, True, False]
    assert told["isTransactional"] == [False, True, True, True, True, False]


def test_type_of_marker_is_read() -> None:
    kinds = [
        is_abort(memoryview(data), batch)
        for data, batch in zip(LOG, scanned(LOG), strict=True)
        if batch.base_offset in (6, 10)
    ]
    assert kinds == [False, True]


def test_aborted_records_end_with_the_marker() -> None:
    log = split([transaction(0, commits=False), transaction(4), plain_batch(8)])
    named = [AbortedTransaction(7, 0)]
    assert aborted_among(scanned(log), named) == {0}
    assert aborted_among(scanned(log)[1:], [AbortedTransaction(7, 0)]) == frozenset()
    between = split([transaction(0, producer=8), transaction(4, commits=False)])
    assert aborted_among(scanned(between), [AbortedTransaction(7, 4)]) == {4}


# --- gaps -----------------------------------------------------------------------------------------


def test_only_offsets_without_markers_are_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    holed = [*LOG[:2], *LOG[2:4], *split([plain_batch(13)])]  # 10 to 12 were cut out
    serve(monkeypatch, replica(holed))
    offsets = np.array([0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 15])
    gaps = gaps_in(Span(partition=0, first=0, end=16), offsets)
    markers = markers_at(PLACE, {}, gaps, 2**40)
    assert markers.tolist() == [6]
    assert without_markers(gaps, markers) == (Gap(first=10, end=13),)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_offset_is_record_marker_or_gap(records: set[int], markers: set[int]) -> None:
    span = Span(partition=0, first=0, end=61)
    held = np.array(sorted(records), np.int64)
    left = without_markers(gaps_in(span, held), np.array(sorted(markers), np.int64))
    missing = {at for gap in left for at in range(gap.first, gap.end)}
    assert missing == set(range(61)) - records - markers


def test_unreachable_broker_leaves_gaps_unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    away = replica(LOG)
    away.reachable = False
    serve(monkeypatch, away)
    monkeypatch.setattr("plimsoll_spark.replica_reader.AWAY_S", 0.0)
    with pytest.raises(OutOfTime, match="t-0 from 6 on cannot be judged"):
        markers_at(PLACE, {}, [Gap(first=6, end=7)], 2**40)


def test_reading_ends_before_unexplained_gap() -> None:
    columns = {name: np.arange(6) for name in ("offset", "producer", "sequence", "key")}
    log = LogRows(**columns, ours=np.ones(6, np.bool_))
    bad = (Gap(first=2, end=3), Gap(first=5, end=6))
    whole = Reading(span=Span(partition=0, first=0, end=9), log=log, bad=bad)
    part = run_reader.before(whole, 4)
    assert (part.span.end, part.log.offset.tolist(), part.bad) == (4, [0, 1, 2, 3], bad[:1])


# --- compacted topics -----------------------------------------------------------------------------


def test_aborted_records_that_a_cleaner_removed_are_healthy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    item = {"first": 0, "end": 14, "compacted": True, "record_by_record": True}
    cleaned = [*LOG[:3], *LOG[4:]]
    found = audited(monkeypatch, tmp_path, [replica(LOG), replica(cleaned)], **item)
    assert found.findings == ()
    lacking = [*LOG[:1], *LOG[2:]]
    found = audited(monkeypatch, tmp_path, [replica(LOG), replica(lacking)], **item)
    (lost,) = found.findings
    assert (lost.kind, lost.first, lost.last, lost.brokers) == ("missing", 3, 5, (1,))


# --- mirrors --------------------------------------------------------------------------------------


def mirrored(source: Sequence[int], aborted: range, mirror: Sequence[int]) -> MirrorResult:
    def ours():
        for piece in pieces(source):
            flags = np.isin(piece.content, np.array(aborted))
            yield Piece(piece.offset, piece.content, flags)

    return compare_mirror(ours(), pieces(mirror, 3), source_begins=True, mirror_begins=True)


@pytest.mark.parametrize("window", [4, 20_000])
@pytest.mark.parametrize("aborted", [range(100, 103), range(107, 119), range(125, 130)])
@pytest.mark.parametrize("copied", [True, False])
def test_aborted_records_may_be_in_the_mirror(
    monkeypatch: pytest.MonkeyPatch, window: int, aborted: range, copied: bool
) -> None:
    monkeypatch.setattr(mirror_compare, "WINDOW", window)
    mirror = [one for one in WHOLE if copied or one not in aborted]
    found = mirrored(WHOLE, aborted, mirror)
    assert (found.counts, found.extra, found.behind) == ({}, 0, 0)
    assert found.compared == len(mirror)


def test_committed_record_beside_aborted_ones_is_missed() -> None:
    found = mirrored(WHOLE, range(107, 119), [one for one in WHOLE if not 106 <= one < 120])
    assert found.counts == {"unmirrored": 2}
    assert [(one.first, one.last) for one in found.differences] == [(12, 38)]
