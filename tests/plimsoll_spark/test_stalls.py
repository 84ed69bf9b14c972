"""How long writes stood still, from the ledger's times alone."""

import pytest
from pyspark.sql import SparkSession
from tests.plimsoll_spark.tables import T0_MS, Sent, ledger_table

from plimsoll_spark.schemas import UNKNOWN
from plimsoll_spark.transforms.pace import latency, pace
from plimsoll_spark.transforms.stalls import stalls

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves its idle sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# (send, settled, outcome), in ms after T0
Times = tuple[float, float, str]


def rows(partition: int | None, *times: Times) -> list[Sent]:
    return [
        Sent(
            producer=0,
            sequence=number,
            partition=partition,
            offset=number,
            outcome=outcome,
            send_ms=T0_MS + send,
            settled_ms=T0_MS + settled,
        )
        for number, (send, settled, outcome) in enumerate(times)
    ]


def longest(spark: SparkSession, sent: list[Sent]) -> dict[int, tuple[float, float]]:
    found = stalls(ledger_table(spark, sent)).collect()
    return {r["partition"]: (r["from_ms"] - T0_MS, r["to_ms"] - T0_MS) for r in found}


def test_stall_lies_between_two_acks_while_records_waited(spark: SparkSession) -> None:
    sent = rows(0, (0, 5, "acked"), (3, 700, "acked"), (650, 701, "acked"))
    assert longest(spark, sent) == {0: (5, 700)}


def test_silence_in_which_nothing_waited_is_no_stall(spark: SparkSession) -> None:
    sent = rows(0, (0, 5, "acked"), (5_000, 5_030, "acked"))
    assert longest(spark, sent) == {0: (5_000, 5_030)}


def test_connecting_is_no_stall_but_a_partition_that_is_late_has_one(spark: SparkSession) -> None:
    prompt, late = rows(0, (10, 400, "acked"), (20, 410, "acked")), rows(1, (10, 1_500, "acked"))
    assert longest(spark, prompt + late) == {0: (400, 410), 1: (400, 1_500)}


def test_record_that_never_gets_an_answer_prolongs_the_stall(spark: SparkSession) -> None:
    sent = rows(0, (0, 5, "acked"), (10, 900, UNKNOWN), (800, 1_000, "acked"))
    assert longest(spark, sent) == {0: (10, 1_000)}


def test_partitions_are_told_apart_and_records_without_one_left_out(spark: SparkSession) -> None:
    first = rows(0, (0, 1, "acked"), (2, 50, "acked"))
    second = rows(1, (0, 1, "acked"), (2, 90, "acked"))
    nowhere = rows(None, (0, 9_000, UNKNOWN))
    assert longest(spark, first + second + nowhere) == {0: (2, 50), 1: (2, 90)}


def test_stall_does_not_count_time_between_a_failed_record_and_the_next_one(
    spark: SparkSession,
) -> None:
    sent = rows(0, (0, 5, "acked"), (10, 900, UNKNOWN), (5_000, 5_030, "acked"))
    assert longest(spark, sent) == {0: (10, 900)}


def test_stall_is_found_among_many_records(spark: SparkSession) -> None:
    times = [(float(n), n + 4.0 + (500.0 if n >= 2_000 else 0.0), "acked") for n in range(4_000)]
    assert longest(spark, rows(3, *times)) == {3: (2_003, 2_504)}


def test_pace_counts_acks_by_the_time_they_came(spark: SparkSession) -> None:
    sent = rows(0, (0, 10, "acked"), (0, 20, "acked"), (0, 260, "acked"), (0, 270, UNKNOWN))
    table = ledger_table(spark, sent)
    bins = [(r["start_ms"] - T0_MS, r["acked"], r["worst"]) for r in pace(table, 100).collect()]
    assert bins == [(0, 2, 20), (200, 1, 260)]
    whole = latency(table).collect()[0]
    assert (whole["p50"], whole["worst"]) == (20, 260)
