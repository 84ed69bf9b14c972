"""Finds records behind a later one of the same producer. Called by `checks`.

A producer's records keep their order within a partition; within a key if the producer is not
idempotent. Judged on first copies: a duplicate does not also count as disorder.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from plimsoll_spark.transforms.copies import first_copies

IDEMPOTENT = ("producer", "partition")
PER_KEY = ("producer", "key", "partition")


def out_of_order(log: DataFrame, *, per: tuple[str, ...]) -> DataFrame:
    """Return the rows with a sequence below that of an earlier row."""
    before = Window.partitionBy(*per).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    ranked = first_copies(log).withColumn("highest_before", F.max("sequence").over(before))
    return ranked.where(F.col("sequence") < F.col("highest_before"))
