"""Offsets between a log's start and its end that no record has.  Called by `checks`.

Nothing explains them: retention moves the start, and the topic is neither compacted nor
transactional here.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def gaps(log: DataFrame, ranges: DataFrame) -> DataFrame:
    """One row per gap: partition, first missing offset, how many are missing."""
    edges = ranges.select(
        "partition", F.explode(F.array(F.expr("log_start_offset - 1"), "log_end_offset"))
    ).toDF("partition", "offset")
    in_order = Window.partitionBy("partition").orderBy("offset")
    return (
        log.select("partition", "offset")
        .union(edges)
        .withColumn("previous", F.lag("offset").over(in_order))
        .where(F.col("offset") > F.col("previous") + 1)
        .select(
            "partition",
            (F.col("previous") + 1).alias("offset"),
            (F.col("offset") - F.col("previous") - 1).alias("missing"),
        )
    )
