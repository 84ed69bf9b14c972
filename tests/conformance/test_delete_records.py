"""Unmodified clients delete records, and what is left is what they asked for."""

from collections.abc import Callable, Mapping

import confluent_kafka
import pytest
from tests.conformance import scripts
from tests.conformance.conftest import PARTITIONS
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.local_cluster import LocalCluster

EACH = 100

Delete = Callable[[str, str, Mapping[int, int]], dict[int, int]]


def begins(bootstrap: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    found = [
        consumer.get_watermark_offsets(
            confluent_kafka.TopicPartition(topic, partition), timeout=scripts.TIMEOUT_S
        )[0]
        for partition in range(PARTITIONS)
    ]
    consumer.close()
    return found


def deletes(cluster: LocalCluster, topic: str, delete: Delete) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    assert scripts.with_confluent(cluster.bootstrap, topic, records) == records
    assert delete(cluster.bootstrap, topic, {0: 30, 1: -1}) == {0: 30, 1: EACH}
    assert begins(cluster.bootstrap, topic) == [30, EACH, 0]


@pytest.mark.parametrize(
    "delete",
    [scripts.delete_with_confluent, scripts.delete_with_kafka_python],
    ids=["confluent", "kafka-python"],
)
def test_client_deletes_records_and_hears_where_its_partitions_begin(
    cluster: LocalCluster, topic: str, delete: Delete
) -> None:
    deletes(cluster, topic, delete)


def test_kafkas_own_tools_delete_records_and_say_it(
    cluster: LocalCluster, topic: str, jars: KafkaJars
) -> None:
    deletes(
        cluster,
        topic,
        lambda bootstrap, name, offsets: scripts.delete_with_kafkas_tool(
            bootstrap, name, offsets, jars
        ),
    )
    said = scripts.with_kafkas_get_offsets(cluster.bootstrap, topic, jars)
    assert said == {0: 30, 1: EACH, 2: 0}
