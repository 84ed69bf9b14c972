"""Consumers in groups while their coordinators are killed: no record is missed.  How groups of each
client share out partitions is in tests/conformance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.integration.declared import log_cluster
from tests.integration.group_members import Member, all_read, shared_out
from tests.integration.local_cluster import LocalCluster, wait_for

PARTITIONS = 6
CLUSTER = log_cluster(
    config={"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 300}
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("groups")
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as running:
        yield running


@pytest.fixture
def members(cluster: LocalCluster) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(topic: str, **config: object) -> Member:
        made.append(Member(cluster, topic, topic, **config))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def a_topic(cluster: LocalCluster, name: str) -> str:
    cluster.create_topic(name, PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr(name, 3)
    return name


def produce(cluster: LocalCluster, topic: str, first: int, last: int) -> None:
    """Numbers, spread over all partitions; each once, also where an answer is lost."""
    config = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    producer = confluent_kafka.Producer(config)
    for number in range(first, last):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def describe(cluster: LocalCluster, group: str) -> confluent_kafka.admin.ConsumerGroupDescription:
    admin = cluster.admin()
    return admin.describe_consumer_groups([group])[group].result(10)


@pytest.mark.client("librdkafka (confluent-kafka)", "coordinator killed")
def test_group_survives_its_coordinators_and_misses_no_record(
    cluster: LocalCluster, members: Callable[..., Member]
) -> None:
    topic = a_topic(cluster, "killed")
    group = [members(topic) for _ in range(3)]
    wait_for("three owners", lambda: shared_out(group, PARTITIONS))
    for number in range(3):
        produce(cluster, topic, number * 60, number * 60 + 30)
        coordinator = describe(cluster, topic).coordinator.id
        old = cluster.kill_broker(coordinator)
        produce(cluster, topic, number * 60 + 30, number * 60 + 60)
        cluster.wait_restarted(coordinator, old)
        wait_for("all records", lambda: all_read(group, number * 60 + 60))  # noqa: B023
    wait_for("three owners", lambda: shared_out(group, PARTITIONS))
    wait_for(
        "a stable group",
        lambda: describe(cluster, topic).state is confluent_kafka.ConsumerGroupState.STABLE,
    )
    for member in group:
        for partition, offsets in member.committed.items():
            assert offsets == sorted(offsets), f"commits of {partition} went back"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    asked = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
    wait_for("all committed", lambda: [o.offset for o in consumer.committed(asked, 20)] == [30] * 6)
    consumer.close()
