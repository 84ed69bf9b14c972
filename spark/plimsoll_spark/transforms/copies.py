"""Finds records that are in the log more than once. Called by `checks`."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def counted(log: DataFrame) -> DataFrame:
    """Count, per value of `ours`, the records and the distinct records."""
    different = F.count_distinct("producer", "sequence")
    return log.groupBy("ours").agg(F.count("*").alias("records"), different.alias("different"))


def extra_copies(log: DataFrame) -> DataFrame:
    """Return every copy of a record after its first, with its place."""
    same = Window.partitionBy("producer", "sequence").orderBy("partition", "offset")
    return _ranked(log, same).where("copy > 1")


def first_copies(log: DataFrame) -> DataFrame:
    """Return each record once, at its first place."""
    same = Window.partitionBy("producer", "sequence").orderBy("partition", "offset")
    return _ranked(log, same).where("copy = 1").drop("copy")


def _ranked(log: DataFrame, same: Window) -> DataFrame:
    return log.where("ours").withColumn("copy", F.row_number().over(same))
