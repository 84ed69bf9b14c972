"""The verifier finds every fault that is put into a log, and nothing in a log without one."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.plimsoll_spark.tables import (
    RUN,
    Read,
    Sent,
    agreeing,
    ledger_table,
    log_table,
    moved,
    ranges_table,
)

from plimsoll_spark.checks import examine, settled
from plimsoll_spark.records import salt_of
from plimsoll_spark.schemas import ACKED, UNKNOWN
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.transforms import copies, fates, gaps, order
from plimsoll_spark.transforms.parse import parse_log
from plimsoll_spark.verdict import Reason, judge

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves its idle sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RANGES = ((0, 0, 10), (1, 0, 10))
Fault = Callable[[list[Sent], list[Read]], None]


def tally(spark: SparkSession, fault: Fault, ranges: tuple[tuple[int, int, int], ...] = RANGES):
    sent, read = agreeing()
    fault(sent, read)
    table = ranges_table(spark, *ranges)
    return fates.tally(fates.fates(ledger_table(spark, sent), log_table(spark, read), table))


def test_ack_of_a_record_that_is_not_there_is_a_loss(spark: SparkSession) -> None:
    found = tally(spark, lambda sent, read: read.pop(3))
    assert (found["lost"], found["kept"]) == (1, 19)


def test_other_content_at_the_acked_offset_is_a_mismatch(spark: SparkSession) -> None:
    def corrupt(sent: list[Sent], read: list[Read]) -> None:
        read[3] = replace(read[3], content_hash="0" * 16, ours=False)

    assert tally(spark, corrupt)["mismatched"] == 1


def test_changed_key_is_a_mismatch_even_when_the_value_is_whole(spark: SparkSession) -> None:
    def rename(sent: list[Sent], read: list[Read]) -> None:
        read[3] = replace(read[3], key="somebody-else")

    found = tally(spark, rename)
    assert found["kept"] == 19


def test_record_at_another_offset_than_acked_is_misplaced(spark: SparkSession) -> None:
    def swap(sent: list[Sent], read: list[Read]) -> None:
        read[3], read[4] = moved(read[3], offset=4), moved(read[4], offset=3)

    assert tally(spark, swap)["misplaced"] == 2


def test_record_below_the_logs_start_has_expired_and_is_not_called_lost(
    spark: SparkSession,
) -> None:
    def expire(sent: list[Sent], read: list[Read]) -> None:
        del read[:3]

    found = tally(spark, expire, ((0, 3, 10), (1, 0, 10)))
    assert (found["expired"], found["lost"]) == (3, 0)


def test_ack_without_an_offset_is_kept_wherever_the_record_is(spark: SparkSession) -> None:
    def forget(sent: list[Sent], read: list[Read]) -> None:
        sent[3] = replace(sent[3], offset=None)

    assert tally(spark, forget)["kept"] == 20


def test_duplicates_are_the_copies_after_the_first(spark: SparkSession) -> None:
    _, read = agreeing()
    read += [moved(read[3], offset=10), moved(read[3], offset=11)]
    rows = copies.extra_copies(log_table(spark, read)).collect()
    assert sorted((r["partition"], r["offset"]) for r in rows) == [(0, 10), (0, 11)]


def test_record_behind_a_later_one_is_out_of_order_once(spark: SparkSession) -> None:
    _, read = agreeing()
    read[3], read[4] = moved(read[3], offset=4), moved(read[4], offset=3)
    rows = order.out_of_order(log_table(spark, read), per=order.IDEMPOTENT).collect()
    assert [(r["partition"], r["offset"], r["sequence"]) for r in rows] == [(0, 4, 3)]


def test_late_copy_is_a_duplicate_and_not_disorder(spark: SparkSession) -> None:
    _, read = agreeing()
    read.append(moved(read[3], offset=10))
    assert order.out_of_order(log_table(spark, read), per=order.IDEMPOTENT).count() == 0


def test_gaps_are_found_inside_and_at_both_ends(spark: SparkSession) -> None:
    _, read = agreeing()
    kept = [r for r in read if r.partition == 1 or 2 <= r.offset <= 4 or 6 <= r.offset <= 8]
    rows = gaps.gaps(log_table(spark, kept), ranges_table(spark, *RANGES)).collect()
    found = sorted((r["partition"], r["offset"], r["missing"]) for r in rows)
    assert found == [(0, 0, 2), (0, 5, 1), (0, 9, 1)]


def test_partition_that_lost_everything_is_one_gap(spark: SparkSession) -> None:
    _, read = agreeing()
    kept = [r for r in read if r.partition == 1]
    rows = gaps.gaps(log_table(spark, kept), ranges_table(spark, *RANGES)).collect()
    assert [(r["partition"], r["offset"], r["missing"]) for r in rows] == [(0, 0, 10)]


def test_what_was_deleted_while_it_was_read_is_neither_lost_nor_a_gap(spark: SparkSession) -> None:
    """The start was 0 when the reading began, and is 7: offsets 3 to 6 were gone before."""
    sent, read = agreeing()
    left = [r for r in read if r.partition == 1 or not 3 <= r.offset < 7]
    counts = examined(spark, sent, left, ((0, 7, 10), (1, 0, 10))).counts
    assert (counts.expired, counts.lost, counts.gaps) == (4, 0, 0)


def test_records_tell_whose_they_are_and_whether_they_are_whole(spark: SparkSession) -> None:
    mine = Sent(producer=1, sequence=2**33, partition=0, offset=0)
    broken = mine.value[:-1] + bytes([mine.value[-1] ^ 1])
    values = [mine.value, broken, b"short", b"", None]
    source = spark.createDataFrame(
        [
            (0, n, bytearray(b"k1"), None if v is None else bytearray(v))
            for n, v in enumerate(values)
        ],
        "partition int, offset long, key binary, value binary",
    )
    rows = sorted(parse_log(source, salt_of(RUN)).collect(), key=lambda row: row["offset"])
    assert [row["ours"] for row in rows] == [True, False, False, False, False]
    first = rows[0]
    assert (first["producer"], first["sequence"], first["key"]) == (1, 2**33, "k1")
    assert first["content_hash"] == mine.content_hash
    other = parse_log(source, salt_of("another run")).where("ours").count()
    assert other == 0


def test_ledger_tells_outcomes_and_between_which_offsets_each_partition_was_acked(
    spark: SparkSession,
) -> None:
    sent, _ = agreeing()
    sent[3] = replace(sent[3], offset=None)
    sent[5] = replace(sent[5], outcome=UNKNOWN, partition=None, offset=None)
    sent.append(replace(sent[6], sequence=20, partition=2, offset=None))
    found = settled(ledger_table(spark, sent))
    assert found.outcomes == {ACKED: 20, UNKNOWN: 1}
    assert found.acked == {0: (0, 10), 1: (0, 10)}


def test_nothing_of_ours_in_the_log_is_all_lost_and_nothing_twice(spark: SparkSession) -> None:
    sent, read = agreeing()
    foreign = [replace(one, ours=False, producer=None, sequence=None) for one in read]
    counts = examined(spark, sent, foreign, RANGES).counts
    assert (counts.read, counts.foreign, counts.duplicated) == (0, 20, 0)
    assert counts.mismatched == 20


def test_faults_all_at_once_are_counted_shown_and_judged(spark: SparkSession) -> None:
    sent, read = agreeing()
    clean = examined(spark, sent, read, RANGES)
    assert judge(settings(20), clean.counts, stopped=None, recreated=False).verdict == "Passed"
    assert clean.examples == ()
    read[4], read[5] = moved(read[4], offset=5), moved(read[5], offset=4)
    read.append(moved(read[12], offset=10))
    del read[7]
    found = examined(spark, sent, read, ((0, 0, 10), (1, 0, 11)))
    counts = found.counts
    assert (counts.sent, counts.acked, counts.read) == (20, 20, 20)
    assert (counts.lost, counts.misplaced, counts.duplicated) == (1, 2, 1)
    assert (counts.out_of_order, counts.gaps, counts.foreign) == (1, 1, 0)
    assert {e.kind for e in found.examples} == {
        *("lost", "misplaced", "duplicated", "outOfOrder", "gap")
    }
    verdict = judge(settings(20), counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Violated", Reason.RECORDS_LOST)


def settings(records: int) -> Settings:
    return Settings(name="faults", bootstrap="b", topic="t", produce=Produce(records=records))


def examined(
    spark: SparkSession,
    sent: list[Sent],
    read: list[Read],
    ranges: tuple[tuple[int, int, int], ...],
):
    ledger = ledger_table(spark, sent)
    return examine(
        settings(len(sent)),
        settled(ledger),
        ledger,
        log_table(spark, read),
        ranges_table(spark, *ranges),
    )
