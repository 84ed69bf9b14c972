"""Records that stand behind a later one of the same producer.  Called by `checks`.

A producer's records keep their order within a partition; within a key, when the producer is not
idempotent.  Judged on first copies: a duplicate is counted as such, not as disorder too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from plimsoll_spark.transforms.copies import first_copies

IDEMPOTENT = ("producer", "partition")
PER_KEY = ("producer", "key", "partition")


def out_of_order(log: DataFrame, *, per: tuple[str, ...]) -> DataFrame:
    """The rows whose sequence is below one that stands before them."""
    before = Window.partitionBy(*per).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    ranked = first_copies(log).withColumn("highest_before", F.max("sequence").over(before))
    return ranked.where(F.col("sequence") < F.col("highest_before"))
