"""Measures the stalls of each partition: times without an acknowledged write. Called by `checks`.

In a stall, records were waiting and none was acknowledged. It ends with an ack (or when the last
record is given up). It begins with the previous ack or, if no record was waiting then, with the
first record sent since. The time before the run's first ack is the producers' connecting, and no
stall.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from plimsoll_spark.schemas import ACKED


def stalls(ledger: DataFrame) -> DataFrame:
    """Return one row per partition: its longest stall with begin and end (ms since the epoch)."""
    settled = ledger.where(F.col("partition").isNotNull())
    time_order = ("settled_ms", "producer", "sequence")
    earlier = (
        Window.partitionBy("partition")
        .orderBy(*time_order)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    # Rows that settle at or after a row, in descending order: Spark extends a frame from the front
    # in one pass, but recomputes a frame that reaches to the end for every row.
    not_yet_settled = (
        Window.partitionBy("partition")
        .orderBy(*(F.desc(name) for name in time_order))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    in_order = Window.partitionBy("partition").orderBy(*time_order)
    acked = F.col("outcome") == ACKED
    timed = (
        settled.withColumn("ack_before_ms", F.max(F.when(acked, F.col("settled_ms"))).over(earlier))
        .withColumn("waiting_since_ms", F.min("send_ms").over(not_yet_settled))
        .withColumn("acked_before", F.lag(acked, 1, True).over(in_order))
        .withColumn("settled_before_ms", F.lag("settled_ms").over(in_order))
    )
    # A wait continues past records that were given up, as long as others were waiting.
    anew = F.col("acked_before") | (F.col("waiting_since_ms") > F.col("settled_before_ms"))
    waits = (
        timed.withColumn("wait", F.sum(anew.cast("int")).over(in_order))
        .groupBy("partition", "wait")
        .agg(
            F.max("ack_before_ms").alias("ack_before_ms"),
            F.min("waiting_since_ms").alias("waiting_since_ms"),
            F.max("settled_ms").alias("to_ms"),
        )
        .crossJoin(settled.where(acked).agg(F.min("settled_ms").alias("first_ack_ms")))
    )
    # greatest() skips nulls: the first ack of a partition has no predecessor.
    begin = F.greatest("ack_before_ms", "waiting_since_ms", "first_ack_ms")
    waits = waits.withColumn("from_ms", F.least(begin, "to_ms"))
    longest = F.max(F.struct((F.col("to_ms") - F.col("from_ms")).alias("ms"), "from_ms", "to_ms"))
    return (
        waits.groupBy("partition")
        .agg(longest.alias("longest"))
        .select("partition", "longest.ms", "longest.from_ms", "longest.to_ms")
        .orderBy("partition")
    )
