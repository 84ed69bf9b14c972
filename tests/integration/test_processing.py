"""Read, process, write with a real consumer and a real transactional producer: every input has its
output exactly once, over killed coordinators and a processor that is replaced."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for

from plimsoll_core.coordination.hashing import partition_of

IN, OUT, GROUP, NAME = "asked", "answered", "processors", "processor"
INPUTS, AT_ONCE = 60, 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIMSOLL_TRANSACTIONS", "true")
        with LocalCluster(tmp_path_factory.mktemp("processing") / "c") as running:
            for topic in (IN, OUT):
                running.create_topic(topic, 1)
                running.wait_isr(topic, 3)
            producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
            for number in range(INPUTS):
                producer.produce(IN, str(number).encode(), partition=0)
            assert producer.flush(WAIT_S) == 0
            yield running


class Processor:
    """One instance of the processor. `broken`: it must be replaced."""

    def __init__(self, cluster: LocalCluster) -> None:
        servers = {"bootstrap.servers": cluster.bootstrap}
        self.producer = confluent_kafka.Producer({**servers, "transactional.id": NAME})
        self.producer.init_transactions(WAIT_S)
        self.consumer = confluent_kafka.Consumer(
            {
                **servers,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
            }
        )
        self.consumer.subscribe([IN])
        self.broken = False

    def run_once(self, *, commits: bool = True) -> None:
        """Process some inputs in one transaction."""
        messages = self.consumer.consume(AT_ONCE, timeout=1.0)
        inputs = [message for message in messages if message.error() is None]
        if not inputs:
            return
        try:
            self.producer.begin_transaction()
            for message in inputs:
                self.producer.produce(OUT, message.value(), partition=0)
            ends = self.consumer.position(self.consumer.assignment())
            members = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction(ends, members, WAIT_S)
            if commits:
                self.producer.commit_transaction(WAIT_S)
            else:
                self.producer.abort_transaction(WAIT_S)
                self.broken = True
        except KafkaException:
            self.broken = True

    def close(self) -> None:
        self.consumer.close()


def position(cluster: LocalCluster) -> int:
    """The group's committed offset; -1 if it has none, or a transaction may still move it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(IN, 0)])
    (future,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
    try:
        (found,) = future.result(WAIT_S).topic_partitions
    except KafkaException:
        return -1
    return -1 if found.error is not None else int(found.offset)


def outputs(cluster: LocalCluster) -> list[int]:
    """All committed outputs, in their order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(OUT, 0, 0)])
    found: list[int] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, "a reader waits for ever"
        if message.error() is not None:
            consumer.close()
            return found
        found.append(int(message.value() or b"-1"))


def coordinator(cluster: LocalCluster, topic: str, name: str) -> int:
    partitions = cluster.topic(topic)
    return partitions[partition_of(name, len(partitions))].leader


def test_every_input_is_processed_exactly_once(cluster: LocalCluster) -> None:
    processor = Processor(cluster)
    processor.run_once(commits=False)
    kills = iter([("__consumer_offsets", GROUP), ("__transaction_state", NAME)])
    for _ in range(200):
        if processor.broken:
            processor.close()
            processor = Processor(cluster)
        before = position(cluster)
        if before >= INPUTS:
            break
        if before >= AT_ONCE and (named := next(kills, None)) is not None:
            victim = coordinator(cluster, *named)
            pid = cluster.kill_broker(victim)
            processor.run_once()
            cluster.wait_rejoined(victim, pid)
            cluster.wait_isr(IN, 3)
        processor.run_once()
    processor.close()
    wait_for("all inputs are processed", lambda: position(cluster) == INPUTS)
    assert outputs(cluster) == list(range(INPUTS))
