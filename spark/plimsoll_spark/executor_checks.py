"""The checks on executors, which share no disk with the driver.

Called by `run` instead of `checks.examine`. The driver sends each range with its part of the
ledger, and writes the result files. It measures the acks itself, by the ledger that it holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from plimsoll_spark import ledger
from plimsoll_spark.checks import (
    CheckJob,
    ProgressFile,
    RangeItem,
    TimelineItem,
    a_reader,
    partition_timeline,
    progress_path,
    range_findings,
    store,
)
from plimsoll_spark.lanes import on_an_executor, run_in_lanes
from plimsoll_spark.range_check import RangeFindings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A range with its part of the ledger, a Parquet file's content."""

    job: CheckJob
    item: RangeItem
    rows: bytes


def examine(
    spark: SparkSession, job: CheckJob, items: Iterable[RangeItem | TimelineItem], lanes: int
) -> None:
    """Do all `items`, `lanes` at the same time: ranges on executors, timelines in this process.
    Each result is a file in `job.results`, a directory that is created and must not exist."""
    job.results.mkdir()

    def one(item: RangeItem | TimelineItem) -> None:
        if isinstance(item, TimelineItem):
            store(job, item, partition_timeline(job, item))
            return
        rows = ledger.extract(item.groups, item.span.first, item.span.end)
        content = on_an_executor(spark, examine_range, _Sent(job=job, item=item, rows=rows))
        found = msgspec.msgpack.decode(content, type=RangeFindings)
        ProgressFile(progress_path(job, item.span)).write(found.read + found.foreign)
        store(job, item, found)

    run_in_lanes(items, one, lanes)


def examine_range(sent: _Sent) -> bytes:
    """Check one range, in a Spark task, and return its findings as msgpack. Raises `OutOfTime`."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-range-") as directory:
        path = Path(directory, "rows.parquet")
        path.write_bytes(sent.rows)
        job = replace(sent.job, results=Path(directory))
        item = replace(sent.item, groups=ledger.index(Path(directory)).groups)
        with a_reader(job) as reader:
            return msgspec.msgpack.encode(range_findings(job, reader, item))
