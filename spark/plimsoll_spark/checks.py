"""The checks: read all records back through Spark's Kafka source and join them with the ledger.

Called by `verification` when the ledger is complete. Writes the records it read as Parquet beside
the ledger, so that each check reads the same bytes, once. Computes counts; `verdict` judges them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import ArrowInvalid
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from plimsoll_spark.login import java
from plimsoll_spark.records import salt_of
from plimsoll_spark.schemas import ACKED, FAILED, LEDGER, RANGES, UNKNOWN
from plimsoll_spark.settings import Settings
from plimsoll_spark.topics import OffsetRange, Ranges
from plimsoll_spark.transforms import copies, fates, order, pace, parse, stalls
from plimsoll_spark.transforms import gaps as gap
from plimsoll_spark.values import Bin, Counts, Example, Findings, Latency, Stall

MAX_EXAMPLES = 20
MAX_BINS = 240
SMALLEST_BIN_MS = 100
MAX_POLL_RECORDS = 10_000
"""After each poll of its consumer, Spark's source asks a broker for the log's start and its end.
Kafka's default is 500 records, a quarter of what one Fetch returns here."""


def read_ledger(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.schema(LEDGER).parquet(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Totals of the ledger."""

    # Number of records by outcome.
    outcomes: Mapping[str, int]
    # Per partition, the first acked offset and the one after the last.
    acked: Mapping[int, tuple[int, int]]


def settled(ledger: DataFrame) -> Settled:
    """Return both totals from one query."""
    edges = (F.min("offset").alias("first"), (F.max("offset") + 1).alias("end"))
    counted = ledger.groupBy("outcome", "partition").agg(F.count("*").alias("records"), *edges)
    outcomes: Counter[str] = Counter()
    acked = {}
    for row in counted.collect():
        outcomes[row["outcome"]] += row["records"]
        # An ack may name no offset.
        if row["outcome"] == ACKED and row["first"] is not None:
            acked[row["partition"]] = (row["first"], row["end"])
    return Settled(outcomes=outcomes, acked=acked)


def with_added(before: Ranges, partitions: Iterable[int]) -> Ranges:
    """Return the logs as the run found them; partitions added since began empty."""
    empty = OffsetRange(log_start_offset=0, log_end_offset=0)
    return dict.fromkeys(sorted(set(partitions)), empty) | before


def left_by(ranges: Ranges, then: Ranges) -> Ranges:
    """Return the part of `ranges` that retention kept while it was read; `then`: the logs
    afterwards."""
    found: Ranges = {}
    for partition, span in ranges.items():
        start = max(span.log_start_offset, then[partition].log_start_offset)
        end = span.log_end_offset
        found[partition] = OffsetRange(log_start_offset=min(start, end), log_end_offset=end)
    return found


def expected(now: Ranges, before: Ranges, acked: Mapping[int, tuple[int, int]]) -> Ranges:
    """Return the offsets that this run can have written: from each log's end at the run's start.

    An ack below that start is a fault of the log, and is included. So is an end that moved back:
    the offsets between are missing.
    """
    found: Ranges = {}
    for partition, there in now.items():
        begin = before[partition].log_end_offset
        first = min(begin, acked.get(partition, (begin, begin))[0], there.log_end_offset)
        start = max(there.log_start_offset, first)
        end = max(there.log_end_offset, begin, start)
        found[partition] = OffsetRange(log_start_offset=start, log_end_offset=end)
    return found


def readable(wanted: Ranges, now: Ranges) -> Ranges:
    """Return the part of `wanted` that the logs hold."""
    return {
        partition: OffsetRange(
            log_start_offset=min(span.log_start_offset, now[partition].log_end_offset),
            log_end_offset=min(span.log_end_offset, now[partition].log_end_offset),
        )
        for partition, span in wanted.items()
    }


def read_log(spark: SparkSession, settings: Settings, ranges: Ranges, run: str) -> DataFrame:
    """Return all records in the ranges, as rows of the log table."""
    topic = settings.topic
    starts = {str(p): r.log_start_offset for p, r in sorted(ranges.items())}
    ends = {str(p): r.log_end_offset for p, r in sorted(ranges.items())}
    options = {
        "kafka.bootstrap.servers": settings.bootstrap,
        "kafka.client.id": "plimsoll-verify",
        "kafka.max.poll.records": str(MAX_POLL_RECORDS),
        **java(settings.login),
        "assign": json.dumps({topic: sorted(ranges)}),
        "startingOffsets": json.dumps({topic: starts}),
        "endingOffsets": json.dumps({topic: ends}),
        # By default Spark stops at the first missing offset; the checks need all of them.
        "failOnDataLoss": "false",
        "fetchOffset.numRetries": "10",
        "fetchOffset.retryIntervalMs": "500",
    }
    return parse.parse_log(spark.read.format("kafka").options(**options).load(), salt_of(run))


def rows_so_far(copy: Path) -> int:
    """Return how many rows Spark has copied, counting the files of finished tasks."""
    rows = 0
    # Unlike `rglob`, it goes on where Spark removes a directory meanwhile.
    for directory, _, names in os.walk(copy):
        for name in names:
            if not name.endswith(".parquet"):
                continue
            try:
                rows += pq.read_metadata(Path(directory, name)).num_rows
            except (OSError, ArrowInvalid):
                continue  # it is being written, or was just moved to its place
    return rows


def ranges_table(spark: SparkSession, ranges: Ranges) -> DataFrame:
    rows = [(p, r.log_start_offset, r.log_end_offset) for p, r in sorted(ranges.items())]
    return spark.createDataFrame(rows, RANGES)


def examine(
    settings: Settings, sent: Settled, ledger: DataFrame, log: DataFrame, ranges: DataFrame
) -> Findings:
    """Run every check, also those that do not decide the verdict: their counts are shown too."""
    fated = fates.fates(ledger, log, ranges)
    per = order.IDEMPOTENT if settings.produce.is_idempotent else order.PER_KEY
    behind = order.out_of_order(log, per=per)
    missing = gap.gaps(log, ranges)
    owned = {row["ours"]: row for row in copies.counted(log).collect()}
    read = owned[True]["records"] if True in owned else 0
    tally = fates.tally(fated)
    counts = Counts(
        sent=sum(sent.outcomes.values()),
        acked=sent.outcomes.get(ACKED, 0),
        failed=sent.outcomes.get(FAILED, 0),
        unknown=sent.outcomes.get(UNKNOWN, 0),
        read=read,
        foreign=owned[False]["records"] if False in owned else 0,
        lost=tally[fates.LOST],
        misplaced=tally[fates.MISPLACED],
        mismatched=tally[fates.MISMATCHED],
        expired=tally[fates.EXPIRED],
        duplicated=read - owned[True]["different"] if read else 0,
        out_of_order=behind.count(),
        gaps=missing.count(),
    )
    wrong = fated.where(~F.col("fate").isin(fates.KEPT, fates.EXPIRED))
    kinds = (
        (wrong, F.col("fate"), counts.lost + counts.misplaced + counts.mismatched),
        (copies.extra_copies(log), F.lit("duplicated"), counts.duplicated),
        (behind, F.lit("outOfOrder"), counts.out_of_order),
        (missing, F.lit("gap"), counts.gaps),
    )
    examples = _examples(settings.topic, kinds)
    latency, bin_ms = _latency(ledger)
    return Findings(
        counts=counts,
        latency=latency,
        stalls=_stalls(ledger),
        pace=_pace(ledger, bin_ms),
        bin_ms=bin_ms,
        examples=examples,
    )


def _examples(topic: str, kinds: tuple[tuple[DataFrame, Column, int], ...]) -> tuple[Example, ...]:
    """Return a few examples of each kind, so that no kind crowds out the others. `kinds`: rows,
    name and count; a kind with count 0 is skipped, since the query would cost as much."""
    found: list[Example] = []
    for rows, kind, count in kinds:
        if not count:
            continue
        placed = rows.select("partition", "offset", kind.alias("kind"))
        few = placed.orderBy("partition", "offset").limit(MAX_EXAMPLES // len(kinds)).collect()
        found += [
            Example(
                topic=topic,
                partition=row["partition"],
                offset=row["offset"] if row["offset"] is not None else 0,
                kind=row["kind"],
            )
            for row in few
        ]
    return tuple(found)


def _latency(ledger: DataFrame) -> tuple[Latency, int]:
    row = pace.latency(ledger).collect()[0]
    if row["worst"] is None:
        return Latency(), SMALLEST_BIN_MS
    span_ms = row["last_ack_ms"] - row["first_send_ms"]
    bin_ms = max(SMALLEST_BIN_MS, int(span_ms / MAX_BINS) + 1)
    names = ("p50", "p90", "p99", "p999", "worst")
    return Latency(**{name: round(row[name], 2) for name in names}), bin_ms


def _stalls(ledger: DataFrame) -> tuple[Stall, ...]:
    return tuple(
        Stall(
            partition=row["partition"],
            milliseconds=round(row["ms"], 1),
            from_ms=row["from_ms"],
            to_ms=row["to_ms"],
        )
        for row in stalls.stalls(ledger).collect()
    )


def _pace(ledger: DataFrame, bin_ms: int) -> tuple[Bin, ...]:
    return tuple(
        Bin(
            start_ms=row["start_ms"],
            acked=row["acked"],
            p50=round(row["p50"], 2),
            p99=round(row["p99"], 2),
            worst=round(row["worst"], 2),
        )
        for row in pace.pace(ledger, bin_ms).collect()
    )
