"""What MirrorMaker 2 is given to copy, and whether it has: a topic with a config of its own, its
records, and the offsets of a group that reads it.

Called by the tests of MirrorMaker 2, in an open cluster and in a closed one.
"""

from __future__ import annotations

from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from tests.conformance.conftest import PARTITIONS, Peer
from tests.integration.local_cluster import wait_for

RETENTION_MS = "7200000"
SOON = {
    "refresh.topics.interval.seconds": "2",
    "refresh.groups.interval.seconds": "2",
    "sync.topic.configs.interval.seconds": "2",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "offset.lag.max": "0",
    "offset.flush.interval.ms": "1000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """A topic on each side, which the other side is to have, and the group that reads it."""

    topic: str
    group: str

    def fill(self, peer: Peer, each: int) -> None:
        """The topic, `each` records in each of its partitions, and a group that has read them."""
        admin = AdminClient(peer.librdkafka)
        configs = {"retention.ms": RETENTION_MS}
        topic = NewTopic(self.topic, PARTITIONS, peer.replicas, config=configs)
        for future in admin.create_topics([topic]).values():
            future.result(30)
        self.produce(peer, range(PARTITIONS), 0, each)
        self.commit(peer, range(PARTITIONS))

    def grow(self, peer: Peer) -> None:
        """One partition more."""
        admin = AdminClient(peer.librdkafka)
        for future in admin.create_partitions([NewPartitions(self.topic, PARTITIONS + 1)]).values():
            future.result(30)

    def produce(self, peer: Peer, partitions: range, first: int, last: int) -> None:
        producer = confluent_kafka.Producer(peer.librdkafka)
        for number in range(first, last):
            for partition in partitions:
                value = f"{peer.name}-{partition}-{number}"
                producer.produce(self.topic, value, f"key{number}", partition, headers={"n": b"1"})
        assert producer.flush(30) == 0

    def commit(self, peer: Peer, partitions: range) -> None:
        """All that is there has been read."""
        consumer = confluent_kafka.Consumer({**peer.librdkafka, "group.id": self.group})
        offsets = []
        for partition in partitions:
            asked = TopicPartition(self.topic, partition)
            end = consumer.get_watermark_offsets(asked, timeout=10)[1]
            offsets.append(TopicPartition(self.topic, partition, end))

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

    def committed(self, peer: Peer, topic: str) -> list[int]:
        """The group's offsets on the other side."""
        admin = AdminClient(peer.librdkafka)
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        (future,) = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.group, asked)]
        ).values()
        return [one.offset for one in future.result(20).topic_partitions]


def is_there(target: Peer, topic: str, source: Peer, last: int) -> bool:
    """Whether `topic` holds all that `source` was given, in order."""
    if partitions_of(target, topic) != PARTITIONS:
        return False
    wanted = {
        partition: [f"{source.name}-{partition}-{number}" for number in range(last)]
        for partition in range(PARTITIONS)
    }
    return read(target, topic, range(PARTITIONS)) == wanted


def partitions_of(peer: Peer, topic: str) -> int:
    """How many; 0: there is no such topic."""
    topics = AdminClient(peer.librdkafka).list_topics(timeout=10).topics
    return len(topics[topic].partitions) if topic in topics else 0


def holds_records(peer: Peer, topic: str) -> bool:
    """Whether there is one in its only partition."""
    if not partitions_of(peer, topic):
        return False
    consumer = confluent_kafka.Consumer({**peer.librdkafka, "group.id": "none"})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    consumer.close()
    return bool(end > 0)


def read(peer: Peer, topic: str, partitions: range) -> dict[int, list[str]]:
    """What a topic holds now."""
    consumer = confluent_kafka.Consumer(
        {**peer.librdkafka, "group.id": "none", "enable.auto.commit": False}
    )
    found: dict[int, list[str]] = {partition: [] for partition in partitions}
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


def retention(peer: Peer, topic: str) -> str:
    admin = AdminClient(peer.librdkafka)
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (future,) = admin.describe_configs([asked]).values()
    return str(future.result(20)["retention.ms"].value)
