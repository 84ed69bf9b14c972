"""Members of groups as librdkafka, kafka-python, aiokafka and kcat make them: the coordinator
shares out partitions, and no record is missed."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.conftest import Peer
from tests.integration.group_members import Member, all_read, shared_out
from tests.integration.local_cluster import wait_for
from tests.kafka_python import left_sockets

PARTITIONS = 6
LIBRDKAFKA = "librdkafka (confluent-kafka)"
FROM_THE_BEGINNING: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
}


@pytest.fixture
def members(peer: Peer) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(topic: str, **config: object) -> Member:
        made.append(Member(peer, topic, topic, **config))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def a_topic(peer: Peer, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, peer.replicas)]).values():
        future.result(30)
    return name


def produce(peer: Peer, topic: str, first: int, last: int) -> None:
    """Numbers, spread over all partitions; each once, also where an answer is lost."""
    config = {"bootstrap.servers": peer.bootstrap, "enable.idempotence": True}
    producer = confluent_kafka.Producer(config)
    for number in range(first, last):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def describe(peer: Peer, group: str) -> confluent_kafka.admin.ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(10)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("range", marks=pytest.mark.client(LIBRDKAFKA, "groups")),
        pytest.param("cooperative-sticky", marks=pytest.mark.client(LIBRDKAFKA, "cooperative")),
    ],
)
def test_librdkafka_members_share_partitions_again(
    peer: Peer, members: Callable[..., Member], strategy: str
) -> None:
    topic = a_topic(peer, f"shared-{strategy}")
    produce(peer, topic, 0, 60)
    group = [members(topic, partition_assignment_strategy=strategy)]
    wait_for("one owner", lambda: shared_out(group, PARTITIONS))
    group += [members(topic, partition_assignment_strategy=strategy) for _ in range(2)]
    everyone = list(group)
    wait_for("three owners", lambda: shared_out(group, PARTITIONS))
    group.pop(0).stop()
    wait_for("two owners", lambda: shared_out(group, PARTITIONS))
    produce(peer, topic, 60, 120)
    wait_for("all records", lambda: all_read(everyone, 120))
    described = describe(peer, topic)
    assert described.state is confluent_kafka.ConsumerGroupState.STABLE
    assert len(described.members) == 2
    assert sum(len(one.assignment.topic_partitions) for one in described.members) == PARTITIONS


@pytest.mark.client(LIBRDKAFKA, "static members")
def test_librdkafka_static_restart_costs_no_rebalance(
    peer: Peer, members: Callable[..., Member]
) -> None:
    topic = a_topic(peer, "static")
    group = [members(topic, group_instance_id=name, session_timeout_ms=20_000) for name in "ab"]
    wait_for("two owners", lambda: shared_out(group, PARTITIONS))
    first, second = group
    owned, times = set(second.owned), first.times_assigned
    second.stop()
    again = members(topic, group_instance_id="b", session_timeout_ms=20_000)
    wait_for("what it had", lambda: again.owned == owned)
    assert first.times_assigned == times


@pytest.mark.client("kafka-python", "groups")
@left_sockets()
def test_kafka_pythons_consumers_share_a_topic(peer: Peer) -> None:
    topic = a_topic(peer, "kafka-python")
    produce(peer, topic, 0, 60)
    consumers = [
        kafka.KafkaConsumer(
            topic, bootstrap_servers=peer.bootstrap, group_id=topic, **FROM_THE_BEGINNING
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
    described = describe(peer, topic)
    assert described.state is confluent_kafka.ConsumerGroupState.EMPTY


@pytest.mark.client("aiokafka", "groups")
async def test_aiokafkas_consumers_share_a_topic(peer: Peer) -> None:
    topic = a_topic(peer, "aiokafka")
    produce(peer, topic, 0, 60)
    consumers = [
        aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=peer.bootstrap, group_id=topic, **FROM_THE_BEGINNING
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


@pytest.mark.client("kcat", "groups")
@pytest.mark.client("kcat", "restart")
def test_kcat_group_resumes_where_it_ended(peer: Peer) -> None:
    topic = a_topic(peer, "kcat")
    read: list[int] = []
    for number in range(2):
        produce(peer, topic, number * 60, number * 60 + 60)
        command = ["kcat", "-b", peer.bootstrap, "-G", topic, "-c", "60", "-q"]
        command += ["-X", "auto.offset.reset=earliest", topic]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        read += [int(line) for line in done.stdout.split()]
    assert sorted(read) == list(range(120))
