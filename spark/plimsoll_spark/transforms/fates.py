"""Determines the fate of every acknowledged record. Called by `checks`.

kept: at its acked offset, whole. expired: below the log's present start. misplaced: readable, but
not at the acked offset. mismatched: its acked offset holds another record, and it is nowhere else.
lost: not in the log at all.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from plimsoll_spark.schemas import ACKED

KEPT = "kept"
EXPIRED = "expired"
MISPLACED = "misplaced"
MISMATCHED = "mismatched"
LOST = "lost"


def fates(ledger: DataFrame, log: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return one row per acked record of the ledger, with its `fate`."""
    acked = ledger.where(F.col("outcome") == ACKED)
    at_offset = log.select(
        "partition",
        "offset",
        F.struct("key", "producer", "sequence", "content_hash", "ours").alias("there"),
    ).dropDuplicates(["partition", "offset"])
    anywhere = (
        log.where("ours")
        .groupBy("producer", "sequence")
        .agg(F.min(F.struct("partition", "offset")).alias("seen"))
    )
    starts = ranges.select("partition", "log_start_offset")
    joined = (
        acked.join(at_offset, ["partition", "offset"], "left")
        .join(anywhere, ["producer", "sequence"], "left")
        .join(starts, ["partition"], "left")
    )
    return joined.withColumn("fate", _fate()).select(
        "key", "producer", "sequence", "partition", "offset", "fate", "seen"
    )


def _fate() -> Column:
    kept = (
        F.col("there.ours")
        & (F.col("there.producer") == F.col("producer"))
        & (F.col("there.sequence") == F.col("sequence"))
        & (F.col("there.content_hash") == F.col("content_hash"))
        & F.col("there.key").eqNullSafe(F.col("key"))
    )
    # An ack without an offset (a recognised duplicate) is kept at any offset.
    without_offset = F.col("offset").isNull() & F.col("seen").isNotNull()
    return (
        F.when(kept | without_offset, KEPT)
        .when(F.col("seen").isNotNull(), MISPLACED)
        .when(F.col("offset") < F.col("log_start_offset"), EXPIRED)
        .when(F.col("there").isNotNull(), MISMATCHED)
        .otherwise(LOST)
    )


def tally(fated: DataFrame) -> dict[str, int]:
    """Count the records of each fate."""
    counted = {row["fate"]: row["count"] for row in fated.groupBy("fate").count().collect()}
    return {fate: counted.get(fate, 0) for fate in (KEPT, EXPIRED, MISPLACED, MISMATCHED, LOST)}
