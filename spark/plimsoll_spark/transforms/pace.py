"""Acknowledgements over time: their number and latency. Called by `checks`, for the report."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from plimsoll_spark.schemas import ACKED


def pace(ledger: DataFrame, bin_ms: int) -> DataFrame:
    """Return acks and their latency (p50, p99, worst; ms) per bin of time."""
    acked = ledger.where(F.col("outcome") == ACKED)
    start = (F.floor(F.col("settled_ms") / bin_ms) * bin_ms).alias("start_ms")
    return (
        acked.withColumn("latency_ms", F.col("settled_ms") - F.col("send_ms"))
        .groupBy(start)
        .agg(
            F.count("*").alias("acked"),
            *_percentiles(),
            F.max("latency_ms").alias("worst"),
        )
        .orderBy("start_ms")
    )


def latency(ledger: DataFrame) -> DataFrame:
    """Return one row: the latency of all acks (p50, p90, p99, p999, worst; ms), and their first and
    last time."""
    acked = ledger.where(F.col("outcome") == ACKED)
    return acked.withColumn("latency_ms", F.col("settled_ms") - F.col("send_ms")).agg(
        *_percentiles(),
        F.percentile_approx("latency_ms", 0.9, 10_000).alias("p90"),
        F.percentile_approx("latency_ms", 0.999, 10_000).alias("p999"),
        F.max("latency_ms").alias("worst"),
        F.min("send_ms").alias("first_send_ms"),
        F.max("settled_ms").alias("last_ack_ms"),
    )


def _percentiles() -> tuple[Column, Column]:
    return (
        F.percentile_approx("latency_ms", 0.5, 10_000).alias("p50"),
        F.percentile_approx("latency_ms", 0.99, 10_000).alias("p99"),
    )
