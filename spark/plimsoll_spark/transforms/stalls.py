"""How long writes to each partition stood still.  Called by `verify`.

A stall is a time in which records were waiting and none was acknowledged.  It ends with an ack and
begins with the ack before it, or, when nothing was waiting then, with the first record sent since.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from plimsoll_spark.schemas import ACKED


def stalls(ledger: DataFrame) -> DataFrame:
    """One row per partition: its longest stall with begin and end (ms since the epoch)."""
    settled = ledger.where(F.col("partition").isNotNull())
    time_order = ("settled_ms", "producer", "sequence")
    earlier = (
        Window.partitionBy("partition")
        .orderBy(*time_order)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    # What settles at or after a row, told backwards: Spark grows a frame from the front in one
    # pass, but starts a frame that reaches to the end anew for every row.
    not_yet_settled = (
        Window.partitionBy("partition")
        .orderBy(*(F.desc(name) for name in time_order))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    ack_ms = F.when(F.col("outcome") == ACKED, F.col("settled_ms"))
    timed = settled.withColumn("previous_ack_ms", F.max(ack_ms).over(earlier)).withColumn(
        "waiting_since_ms", F.min("send_ms").over(not_yet_settled)
    )
    # greatest() skips nulls: the first ack of a partition has no predecessor.
    begin = F.greatest("previous_ack_ms", "waiting_since_ms")
    spans = timed.select("partition", begin.alias("from_ms"), F.col("settled_ms").alias("to_ms"))
    longest = F.max(F.struct((F.col("to_ms") - F.col("from_ms")).alias("ms"), "from_ms", "to_ms"))
    return (
        spans.groupBy("partition")
        .agg(longest.alias("longest"))
        .select("partition", "longest.ms", "longest.from_ms", "longest.to_ms")
        .orderBy("partition")
    )
