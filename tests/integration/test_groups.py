"""Consumers in groups, as librdkafka, kafka-python, aiokafka and kcat make them: the coordinator
shares out partitions, moves with its leader, and no record is missed."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from tests.integration.group_members import Member, all_read, shared_out
from tests.integration.local_cluster import LocalCluster, wait_for

PARTITIONS = 6
CLUSTER = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main, namespace: kafka}
spec:
  brokers: {count: 3}
  storage: {size: 1Gi}
  config: {offsets.topic.num.partitions: 3, group.initial.rebalance.delay.ms: 300}
"""
FROM_THE_BEGINNING: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
}


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


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_are_shared_out_again_when_members_come_and_go(
    cluster: LocalCluster, members: Callable[..., Member], strategy: str
) -> None:
    topic = a_topic(cluster, f"shared-{strategy}")
    produce(cluster, topic, 0, 60)
    group = [members(topic, partition_assignment_strategy=strategy)]
    wait_for("one owner", lambda: shared_out(group, PARTITIONS))
    group += [members(topic, partition_assignment_strategy=strategy) for _ in range(2)]
    everyone = list(group)
    wait_for("three owners", lambda: shared_out(group, PARTITIONS))
    group.pop(0).stop()
    wait_for("two owners", lambda: shared_out(group, PARTITIONS))
    produce(cluster, topic, 60, 120)
    wait_for("all records", lambda: all_read(everyone, 120))
    described = describe(cluster, topic)
    assert described.state is confluent_kafka.ConsumerGroupState.STABLE
    assert len(described.members) == 2
    assert sum(len(one.assignment.topic_partitions) for one in described.members) == PARTITIONS


def test_static_member_that_restarts_within_its_session_costs_no_rebalance(
    cluster: LocalCluster, members: Callable[..., Member]
) -> None:
    topic = a_topic(cluster, "static")
    group = [members(topic, group_instance_id=name, session_timeout_ms=20_000) for name in "ab"]
    wait_for("two owners", lambda: shared_out(group, PARTITIONS))
    first, second = group
    owned, times = set(second.owned), first.times_assigned
    second.stop()
    again = members(topic, group_instance_id="b", session_timeout_ms=20_000)
    wait_for("what it had", lambda: again.owned == owned)
    assert first.times_assigned == times


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


def test_kafka_pythons_consumers_share_a_topic(cluster: LocalCluster) -> None:
    topic = a_topic(cluster, "kafka-python")
    produce(cluster, topic, 0, 60)
    consumers = [
        kafka.KafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=topic, **FROM_THE_BEGINNING
        )
        for _ in range(2)
    ]
    read: set[int] = set()
    ended = threading.Event()

    def poll(consumer: kafka.KafkaConsumer) -> None:
        # A join that a poll does not live to see is thrown away by this client, and begun anew:
        # so each member polls by itself, for longer than a rebalance takes.
        while not ended.is_set():
            for records in consumer.poll(3_000).values():
                read.update(int(record.value) for record in records)

    with ThreadPoolExecutor(len(consumers)) as threads:
        polling = [threads.submit(poll, consumer) for consumer in consumers]
        try:
            wait_for(
                "all records, by two members",
                lambda: len(read) == 60 and all(len(one.assignment()) == 3 for one in consumers),
            )
        finally:
            ended.set()
    for future in polling:
        future.result()
    for consumer in consumers:
        consumer.close()
    described = describe(cluster, topic)
    assert described.state is confluent_kafka.ConsumerGroupState.EMPTY


async def test_aiokafkas_consumers_share_a_topic(cluster: LocalCluster) -> None:
    topic = a_topic(cluster, "aiokafka")
    produce(cluster, topic, 0, 60)
    consumers = [
        aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=topic, **FROM_THE_BEGINNING
        )
        for _ in range(2)
    ]
    read: set[int] = set()
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    try:
        async with asyncio.timeout(30):
            while len(read) < 60 or any(len(one.assignment()) != 3 for one in consumers):
                for consumer in consumers:
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        read.update(int(record.value) for record in records)
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))


def test_kcat_reads_in_a_group_and_goes_on_where_it_ended(cluster: LocalCluster) -> None:
    topic = a_topic(cluster, "kcat")
    read: list[int] = []
    for number in range(2):
        produce(cluster, topic, number * 60, number * 60 + 60)
        command = ["kcat", "-b", cluster.bootstrap, "-G", topic, "-c", "60", "-q"]
        command += ["-X", "auto.offset.reset=earliest", topic]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        read += [int(line) for line in done.stdout.split()]
    assert sorted(read) == list(range(120))
