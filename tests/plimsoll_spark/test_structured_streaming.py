"""Spark's own Kafka source: Structured Streaming copies a topic into another, and does not copy
again what it has copied when it is started anew with its checkpoint; a window of time is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from tests.integration.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 3
EACH = 300
COPIED_S = 180
SPARK = "Spark 4.0 Structured Streaming"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS, STEP_MS = 1_700_000_000_000, 1_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("streamed") / "data", brokers=3) as local:
        yield local


def produce(cluster: LocalCluster, first: int, last: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, last):
        producer.produce("source", str(number), f"key{number % 7}", number % PARTITIONS)
    assert producer.flush(30) == 0


def copied(cluster: LocalCluster, count: int) -> list[int]:
    """The first `count` records of the sink, sorted."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "no"})
    partitions = [confluent_kafka.TopicPartition("sink", p, 0) for p in range(PARTITIONS)]
    ends = sum(consumer.get_watermark_offsets(one, timeout=20)[1] for one in partitions)
    assert ends == count
    consumer.assign(partitions)
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None, f"{count - len(found)} records are missing"
        assert message.key().decode() == f"key{int(message.value()) % 7}"
        found.append(int(message.value()))
    consumer.close()
    return sorted(found)


def copy(spark: SparkSession, cluster: LocalCluster, checkpoint: Path) -> None:
    """All that is there, in several micro-batches, and an end."""
    at = {"kafka.bootstrap.servers": cluster.bootstrap}
    source = spark.readStream.format("kafka").options(**at, subscribe="source")
    source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="200")
    sink = source.load().select("key", "value").writeStream.format("kafka")
    query = sink.options(**at, topic="sink", checkpointLocation=str(checkpoint))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(COPIED_S)


@pytest.mark.client(SPARK, "writes and reads")
@pytest.mark.client(SPARK, "restart")
def test_stream_resumes_from_checkpoint_without_copies(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    for topic in ("source", "sink"):
        cluster.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2"})
        cluster.wait_isr(topic, 3)
    for number in (1, 2):
        produce(cluster, EACH * (number - 1), EACH * number)
        copy(spark, cluster, tmp_path / "checkpoint")
        assert copied(cluster, EACH * number) == list(range(EACH * number))


def produce_batch(cluster: LocalCluster, partition: int, codec: str) -> None:
    """A hundred records a second apart in one batch."""
    batched = {"compression.type": codec, "linger.ms": 5_000, "batch.num.messages": 100}
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, **batched})
    for number in range(100):
        at_ms = BASE_MS + number * STEP_MS
        producer.produce("windows", b"x", partition=partition, timestamp=at_ms)
    assert producer.flush(30) == 0


def test_window_of_time_is_exact_in_every_codec(spark: SparkSession, cluster: LocalCluster) -> None:
    """Ten records lie in [50 s, 60 s); of snappy, lz4 and zstd there were none."""
    cluster.create_topic("windows", len(CODECS))
    cluster.wait_isr("windows", 3)
    for partition, codec in enumerate(CODECS):
        produce_batch(cluster, partition, codec)
    source = spark.read.format("kafka").options(
        **{"kafka.bootstrap.servers": cluster.bootstrap},
        subscribe="windows",
        startingTimestamp=str(BASE_MS + 50 * STEP_MS),
        endingTimestamp=str(BASE_MS + 60 * STEP_MS),
    )
    found = {
        row["partition"]: row["count"]
        for row in source.load().groupBy("partition").count().collect()
    }
    assert found == dict.fromkeys(range(len(CODECS)), 10)
