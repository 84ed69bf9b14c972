"""The checks: reads everything back through Spark's own Kafka source, joins it with the ledger.

Called by `verification` when the ledger is complete.  Writes what it read as Parquet beside the
ledger, so that each check reads the same bytes, once.  Decides nothing: `verdict` does.
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
"""Spark's source asks a broker twice, for a log's start and for its end, after each poll of its
consumer; Kafka's default is 500 records, a quarter of what one Fetch brings here."""


def read_ledger(spark: SparkSession, path: Path) -> DataFrame:
    """The ledger table."""
    return spark.read.schema(LEDGER).parquet(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What the ledger says of the records in all."""

    # How many there are of each outcome.
    outcomes: Mapping[str, int]
    # Per partition, the first acked offset and the one after the last.
    acked: Mapping[int, tuple[int, int]]


def settled(ledger: DataFrame) -> Settled:
    """One query for both."""
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
    """The logs as the run found them; those of partitions that were added since began empty."""
    empty = OffsetRange(log_start_offset=0, log_end_offset=0)
    return dict.fromkeys(sorted(set(partitions)), empty) | before


def left_by(ranges: Ranges, then: Ranges) -> Ranges:
    """Of `ranges`, what was not deleted while it was read; `then`: as the logs are afterwards."""
    found: Ranges = {}
    for partition, span in ranges.items():
        start = max(span.log_start_offset, then[partition].log_start_offset)
        end = span.log_end_offset
        found[partition] = OffsetRange(log_start_offset=min(start, end), log_end_offset=end)
    return found


def expected(now: Ranges, before: Ranges, acked: Mapping[int, tuple[int, int]]) -> Ranges:
    """What this run can have written: from where each log ended when it began.

    An ack below that end would be the log's fault, and belongs to it as well.  So does an end that
    moved back: the offsets between are missing.
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
    """As much of it as the log has."""
    return {
        partition: OffsetRange(
            log_start_offset=min(span.log_start_offset, now[partition].log_end_offset),
            log_end_offset=min(span.log_end_offset, now[partition].log_end_offset),
        )
        for partition, span in wanted.items()
    }


def read_log(spark: SparkSession, settings: Settings, ranges: Ranges, run: str) -> DataFrame:
    """Everything between the ranges' starts and ends, as rows of the log table."""
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
        # Spark would stop at the first missing offset; finding them all is what we are here for.
        "failOnDataLoss": "false",
        "fetchOffset.numRetries": "10",
        "fetchOffset.retryIntervalMs": "500",
    }
    return parse.parse_log(spark.read.format("kafka").options(**options).load(), salt_of(run))


def rows_so_far(copy: Path) -> int:
    """How many rows Spark has copied: those of the files that its tasks have finished."""
    rows = 0
    # Unlike `rglob`, it goes on where Spark removes a directory meanwhile.
    for directory, _, names in os.walk(copy):
        for name in names:
            if not name.endswith(".parquet"):
                continue
            try:
                rows += pq.read_metadata(Path(directory, name)).num_rows
            except (OSError, ArrowInvalid):
                continue  # it is being written, or was moved to its place just now
    return rows


def ranges_table(spark: SparkSession, ranges: Ranges) -> DataFrame:
    """The ranges as a table."""
    rows = [(p, r.log_start_offset, r.log_end_offset) for p, r in sorted(ranges.items())]
    return spark.createDataFrame(rows, RANGES)


def examine(
    settings: Settings, sent: Settled, ledger: DataFrame, log: DataFrame, ranges: DataFrame
) -> Findings:
    """Runs every check, whether its violation is asked for or not: the counts are shown anyway."""
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
    """A few of each kind, so that one kind cannot crowd out the others.  `kinds`: the rows, what
    they are called, and how many there are: what is not there costs as much to look for."""
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
