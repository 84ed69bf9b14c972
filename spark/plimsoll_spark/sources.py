"""`register(spark)`: makes the data sources of this package known to a Spark session.

For notebooks and jobs of users, against any cluster that speaks Kafka's protocol. Options are named
as those of Spark's Kafka source: `kafka.bootstrap.servers` and other `kafka.` settings of
librdkafka, `subscribe` or `subscribePattern`, `startingOffsets`, `endingOffsets`,
`startingTimestamp`; and `replica` (`leader`, `all` or a broker's id), `reads` (`memory` or `disk`).

A row of `plimsoll.batches` is a record batch: topic, partition, replica (a broker's id),
baseOffset, lastOffset, records, sizeBytes, leaderEpoch, crc, attributes, baseTimestampMs,
maxTimestampMs, producerId, producerEpoch, baseSequence, isTransactional, isControl (the marker of a
transaction, with no records); or offsets without a valid batch, with the cause in problem.

    from plimsoll_spark import sources

    sources.register(spark)
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribePattern": "orders.*"}
    batches = spark.read.format("plimsoll.batches").options(**options)
    rows = batches.load()

    # Which producer writes what; the bytes of a topic; its records by hour.
    rows.groupBy("topic", "producerId").agg({"records": "sum", "sizeBytes": "sum"})
    rows.groupBy("topic").agg({"sizeBytes": "sum"})
    rows.selectExpr("topic", "records", "date_trunc('hour', timestamp_millis(maxTimestampMs)) h")

    # Skew of partitions, and records between two times.
    rows.groupBy("topic", "partition").agg({"records": "sum"})
    rows.where("maxTimestampMs >= 1700000000000 and baseTimestampMs < 1700003600000")

    # Copies of a topic: what is damaged where, and batches that are not the same everywhere.
    copies = batches.option("replica", "all").load()
    copies.where("problem is not null")
    copies.groupBy("topic", "partition", "baseOffset").agg({"crc": "approx_count_distinct"})
    spark.read.format("plimsoll.audit").options(**options).load()

    # What became of each record of a Verification, by its evidence; acks that took over a second.
    acks = spark.read.format("plimsoll.ledger").load("/proofs/orders-check-5f2c9a1e")
    acks.groupBy("partition", "outcome").count()
    acks.where("settledTimestampMs - sendTimestampMs > 1000")
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from plimsoll_spark.batch_source import BatchSource
from plimsoll_spark.finding_source import FindingSource
from plimsoll_spark.ledger_source import LedgerSource


def register(spark: SparkSession) -> None:
    """Register the formats `plimsoll.batches` (batch headers), `plimsoll.audit` (findings) and
    `plimsoll.ledger` (outcomes of a run's records) in this session."""
    spark.dataSource.register(BatchSource)
    spark.dataSource.register(FindingSource)
    spark.dataSource.register(LedgerSource)
