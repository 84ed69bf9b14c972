"""Kafka's own VerifiableProducer and VerifiableConsumers: cooperative and static members share out
partitions, and miss no record that was acknowledged while brokers are killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.conftest import PARTITIONS, Peer
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.conformance.test_groups import Verifiable, all_read
from tests.integration.local_cluster import LocalCluster, wait_for

COOPERATIVE = (
    "--assignment-strategy",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
)
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
PER_SECOND = 60
MEMBERS_S, PRODUCED_S = 240, 240


class Consumer(Verifiable):
    """With the number of times that it was given partitions."""

    def __init__(self, peer: Peer | LocalCluster, topic: str, jars: KafkaJars, *options: str):
        self.times_assigned = 0
        super().__init__(peer, topic, jars, *options)

    def _hear(self, event: dict[str, Any]) -> None:
        self.times_assigned += event["name"] == "partitions_assigned"
        super()._hear(event)


@pytest.fixture
def consumers() -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(*words: Any) -> Consumer:
        made.append(Consumer(*words))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def a_topic(bootstrap: str, name: str, replicas: int = 3) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, replicas)]).values():
        future.result(30)
    return name


@contextlib.contextmanager
def producing(
    bootstrap: str, topic: str, log: Path, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """It tries no record twice, so that what is lost with a broker is an error."""
    words = ("--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1", *options)
    with log.open("wb") as said:
        running = subprocess.Popen(
            kafka_jars().command(PRODUCER, *words), stdout=said, stderr=subprocess.DEVNULL
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(PRODUCED_S)


def acknowledged(log: Path) -> set[tuple[int, int]]:
    """Partitions and offsets that the producer was told."""
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return {
        (one["partition"], one["offset"])
        for one in events
        if one["name"] == "producer_send_success"
    }


def each_owns_one(members: list[Consumer]) -> bool:
    return sorted(partition for one in members for partition in one.owned) == [0, 1, 2] and all(
        len(one.owned) == 1 for one in members
    )


@pytest.mark.client("Java 4.1", "cooperative")
def test_cooperative_java_members_share_partitions(
    peer: Peer, consumers: Callable[..., Consumer], tmp_path: Path
) -> None:
    topic, jars = a_topic(peer.bootstrap, "java-cooperative", peer.replicas), kafka_jars()
    members = [consumers(peer, topic, jars, *COOPERATIVE) for _ in range(3)]
    wait_for("an owner each", lambda: each_owns_one(members), MEMBERS_S)
    gone = members.pop()
    kept = [set(one.owned) for one in members]
    gone.stop()
    wait_for("two owners", lambda: sorted(len(one.owned) for one in members) == [1, 2], MEMBERS_S)
    assert all(before <= one.owned for before, one in zip(kept, members, strict=True))
    log = tmp_path / "produced"
    with producing(peer.bootstrap, topic, log, "--max-messages", "100") as producer:
        producer.wait(PRODUCED_S)
    sent = acknowledged(log)
    assert len(sent) == 100
    wait_for("all", lambda: all_read(members) == sent, MEMBERS_S)


@pytest.mark.client("Java 4.1", "static members")
def test_restarted_static_java_member_keeps_its_partitions(
    peer: Peer, consumers: Callable[..., Consumer]
) -> None:
    topic, jars = a_topic(peer.bootstrap, "java-static", peer.replicas), kafka_jars()

    def start(instance: str) -> Consumer:
        words = ("--group-instance-id", instance, "--session-timeout", "40000")
        return consumers(peer, topic, jars, *words)

    first, second = start("a"), start("b")
    wait_for("owners", lambda: sorted(map(len, (first.owned, second.owned))) == [1, 2], MEMBERS_S)
    owned, times = set(second.owned), first.times_assigned
    second.process.kill()
    again = start("b")
    wait_for("what it had", lambda: again.owned == owned, MEMBERS_S)
    assert first.times_assigned == times, "others were not asked to join again"


@pytest.mark.long
@pytest.mark.client("Java 4.1", "coordinator killed")
def test_verifiable_consumers_read_everything_while_brokers_die(
    cluster: LocalCluster, consumers: Callable[..., Consumer], tmp_path: Path
) -> None:
    topic, jars = a_topic(cluster.bootstrap, "java-verified"), kafka_jars()
    members = [consumers(cluster, topic, jars, *COOPERATIVE) for _ in range(3)]
    wait_for("an owner each", lambda: each_owns_one(members), MEMBERS_S)
    log = tmp_path / "produced"
    with producing(cluster.bootstrap, topic, log, "--throughput", str(PER_SECOND)):
        for broker in range(3):
            wanted = len(all_read(members)) + PER_SECOND
            old = cluster.kill_broker(broker)
            cluster.wait_rejoined(broker, old)
            wait_for("more", lambda: len(all_read(members)) > wanted, MEMBERS_S)  # noqa: B023
            cluster.wait_isr(topic, 3)
    sent = acknowledged(log)
    assert len(sent) >= 3 * PER_SECOND
    wait_for("all", lambda: all_read(members) >= sent, MEMBERS_S)
    wait_for("an owner each", lambda: each_owns_one(members), MEMBERS_S)
    for one in members:
        for offsets in one.committed.values():
            assert offsets == sorted(offsets)
