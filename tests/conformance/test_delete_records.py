"""Unmodified clients delete records, and what is left is what they asked for."""

from collections.abc import Callable, Mapping

import confluent_kafka
import pytest
from tests.conformance import scripts
from tests.conformance.conftest import PARTITIONS, Peer
from tests.conformance.kafka_jars import KafkaJars

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


def deletes(peer: Peer, topic: str, delete: Delete) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    assert scripts.with_confluent(peer.bootstrap, topic, records) == records
    assert delete(peer.bootstrap, topic, {0: 30, 1: -1}) == {0: 30, 1: EACH}
    assert begins(peer.bootstrap, topic) == [30, EACH, 0]


@pytest.mark.parametrize(
    "delete",
    [
        pytest.param(
            scripts.delete_with_confluent,
            marks=pytest.mark.client("librdkafka (confluent-kafka)", "topics and configs"),
        ),
        pytest.param(
            scripts.delete_with_kafka_python,
            marks=pytest.mark.client("kafka-python", "topics and configs"),
        ),
    ],
    ids=["confluent", "kafka-python"],
)
def test_client_deletes_records_and_learns_log_start(
    peer: Peer, peer_topic: str, delete: Delete
) -> None:
    deletes(peer, peer_topic, delete)


@pytest.mark.client("Java {jars}", "topics and configs")
def test_kafkas_own_tools_delete_records_and_say_it(
    peer: Peer, peer_topic: str, jars: KafkaJars
) -> None:
    deletes(
        peer,
        peer_topic,
        lambda bootstrap, name, offsets: scripts.delete_with_kafkas_tool(
            bootstrap, name, offsets, jars
        ),
    )
    said = scripts.with_kafkas_get_offsets(peer.bootstrap, peer_topic, jars)
    assert said == {0: 30, 1: EACH, 2: 0}
