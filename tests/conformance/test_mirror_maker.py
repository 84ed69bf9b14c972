"""MirrorMaker 2 between Plimsoll and Apache Kafka, both ways: topics with their configs and
records, and the offsets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.applications import Application, command, properties
from tests.conformance.conftest import PARTITIONS, Peer
from tests.conformance.kafka_jars import application_jars
from tests.integration.local_cluster import wait_for

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
EACH = 100
MIRRORED_S = 150
GROUP = "readers"
STORES = ("config.storage", "offset.storage", "status.storage")
SOON = {
    "refresh.topics.interval.seconds": "2",
    "refresh.groups.interval.seconds": "2",
    "sync.topic.configs.interval.seconds": "2",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "offset.lag.max": "0",
    "offset.flush.interval.ms": "1000",
    "dedicated.mode.enable.internal.rest": "false",
}


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield Peer(name="kafka", bootstrap=kafka.bootstrap, replicas=1)


@pytest.fixture
def mirror_maker(peer: Peer, apache_kafka: Peer, tmp_path: Path) -> Iterator[Application]:
    values = {"clusters": "here,there", "tasks.max": "1", **SOON}
    for alias, one in (("here", peer), ("there", apache_kafka)):
        values[f"{alias}.bootstrap.servers"] = one.bootstrap
        for name in STORES:
            values[f"{alias}.{name}.replication.factor"] = str(one.replicas)
    ways = (("here->there", peer, apache_kafka), ("there->here", apache_kafka, peer))
    for flow, source, target in ways:
        values[f"{flow}.enabled"] = "true"
        values[f"{flow}.topics"] = "mirrored"
        values[f"{flow}.groups"] = GROUP
        values[f"{flow}.replication.factor"] = str(target.replicas)
        values[f"{flow}.offset-syncs.topic.replication.factor"] = str(source.replicas)
        for topic in ("checkpoints", "heartbeats"):
            values[f"{flow}.{topic}.topic.replication.factor"] = str(target.replicas)
    file = properties(tmp_path / "mirror.properties", values)
    words = command(application_jars(), MIRROR_MAKER, file)
    words[words.index("-Xmx256m")] = "-Xmx512m"
    running = Application(words, tmp_path / "mirror.log")
    yield running
    running.stop()


def fill(peer: Peer) -> None:
    """A topic with a config of its own, its records, and a group that has read half of them."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    topic = NewTopic("mirrored", PARTITIONS, peer.replicas, config={"retention.ms": "7200000"})
    for future in admin.create_topics([topic]).values():
        future.result(30)
    produce(peer, 0, EACH)
    commit(peer)


def produce(peer: Peer, first: int, last: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap})
    for number in range(first, last):
        for partition in range(PARTITIONS):
            value = f"{peer.name}-{partition}-{number}"
            producer.produce("mirrored", value, f"key{number}", partition, headers={"n": b"1"})
    assert producer.flush(30) == 0


def commit(peer: Peer) -> None:
    """All that is there has been read."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": peer.bootstrap, "group.id": GROUP})
    offsets = []
    for partition in range(PARTITIONS):
        asked = TopicPartition("mirrored", partition)
        offsets.append(
            TopicPartition(
                "mirrored", partition, consumer.get_watermark_offsets(asked, timeout=10)[1]
            )
        )

    def done() -> bool:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            if peer.name != "kafka":
                raise
            return False  # its coordinator is still being looked for
        return True

    wait_for("committed", done)
    consumer.close()


def read(peer: Peer, topic: str) -> dict[int, list[str]]:
    """What a topic holds now."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": peer.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    left = 0
    for partition in found:
        asked = TopicPartition(topic, partition)
        left += consumer.get_watermark_offsets(asked, timeout=10)[1]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
    while left:
        message = consumer.poll(20)
        assert message is not None, f"{left} records of {topic} are still missing"
        assert message.error() is None, message.error()
        assert message.headers() == [("n", b"1")]
        found[message.partition()].append(message.value().decode())
        left -= 1
    consumer.close()
    return found


def committed(peer: Peer, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    (future,) = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(GROUP, asked)]
    ).values()
    return [one.offset for one in future.result(20).topic_partitions]


def mirrored(target: Peer, topic: str, source: Peer, last: int) -> bool:
    topics = AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=10).topics
    if topic not in topics or len(topics[topic].partitions) != PARTITIONS:
        return False
    wanted = {
        partition: [f"{source.name}-{partition}-{number}" for number in range(last)]
        for partition in range(PARTITIONS)
    }
    return read(target, topic) == wanted


def retention(peer: Peer, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (future,) = admin.describe_configs([asked]).values()
    return str(future.result(20)["retention.ms"].value)


@pytest.mark.client("MirrorMaker 2 4.1", "writes and reads")
@pytest.mark.client("MirrorMaker 2 4.1", "offsets")
@pytest.mark.client("MirrorMaker 2 4.1", "topics and configs")
def test_mirror_maker_copies_both_ways_and_translates_offsets_of_groups(
    peer: Peer, apache_kafka: Peer, request: pytest.FixtureRequest
) -> None:
    for one in (peer, apache_kafka):
        fill(one)
    running = request.getfixturevalue("mirror_maker")
    ways = ((peer, "there.mirrored", apache_kafka), (apache_kafka, "here.mirrored", peer))
    for target, topic, source in ways:
        wait_for(
            f"{topic} in {target.name}: {running.said()}",
            lambda: mirrored(target, topic, source, EACH),  # noqa: B023
            MIRRORED_S,
            1,
        )
        assert retention(target, topic) == "7200000"
    for source in (peer, apache_kafka):
        produce(source, EACH, 2 * EACH)
        commit(source)
    for target, topic, source in ways:
        what = f"offsets of {topic} in {target.name}"
        done = [2 * EACH] * PARTITIONS
        wait_for(what, lambda: committed(target, topic) == done, MIRRORED_S, 1)  # noqa: B023
        assert mirrored(target, topic, source, 2 * EACH)
