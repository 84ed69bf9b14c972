"""Finds offsets between a log's start and its end without a record. Called by `checks`.

No gap is legitimate: retention moves the start, and the topic is neither compacted nor
transactional here. Below a start that moved while the log was read, only some records may have been
read.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def gaps(log: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return one row per gap: partition, first missing offset, number of missing offsets."""
    edges = ranges.select(
        "partition", F.explode(F.array(F.expr("log_start_offset - 1"), "log_end_offset"))
    ).toDF("partition", "offset")
    starts = ranges.select("partition", "log_start_offset")
    read = log.join(starts, "partition").where(F.col("offset") >= F.col("log_start_offset"))
    in_order = Window.partitionBy("partition").orderBy("offset")
    return (
        read.select("partition", "offset")
        .union(edges)
        .withColumn("previous", F.lag("offset").over(in_order))
        .where(F.col("offset") > F.col("previous") + 1)
        .select(
            "partition",
            (F.col("previous") + 1).alias("offset"),
            (F.col("offset") - F.col("previous") - 1).alias("missing"),
        )
    )
