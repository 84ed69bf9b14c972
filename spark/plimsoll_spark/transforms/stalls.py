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
    by_time = Window.partitionBy("partition").orderBy("settled_ms", "producer", "sequence")
    earlier = by_time.rowsBetween(Window.unboundedPreceding, -1)
    not_yet_settled = by_time.rowsBetween(Window.currentRow, Window.unboundedFollowing)
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
