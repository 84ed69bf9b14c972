"""Consumers in groups, as librdkafka, kafka-python, aiokafka and kcat make them: the coordinator
shares out partitions, moves with its leader, and no record is missed."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("groups")
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as running:
        yield running


def a_topic(cluster: LocalCluster, name: str) -> str:
    cluster.create_topic(name, PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr(name, 3)
    return name


def produce(cluster: LocalCluster, topic: str, first: int, last: int) -> None:
    """Numbers, spread over all partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, last):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Member(threading.Thread):
    """A librdkafka consumer in a thread: what it was given, and what it read and committed."""

    def __init__(self, cluster: LocalCluster, topic: str, **config: object) -> None:
        super().__init__(daemon=True)
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.owned: set[int] = set()
        self.read: list[int] = []
        # By partition, in the order in which they were answered.
        self.committed: dict[int, list[int]] = {}
        self.assignments = 0
        self._stop = threading.Event()
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        self.start()

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        self.assignments += 1
        self.owned |= {one.partition for one in partitions}

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        self.owned -= {one.partition for one in partitions}

    def run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.1)
            if message is None or message.error():
                continue
            self.read.append(int(message.value()))
            try:
                done = self.consumer.commit(message, asynchronous=False)
            except confluent_kafka.KafkaException:
                continue
            for one in done:
                if one.error is None:
                    self.committed.setdefault(one.partition, []).append(one.offset)
        self.consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self.join(30)
        assert not self.is_alive()


@pytest.fixture
def members(cluster: LocalCluster) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(topic: str, **config: object) -> Member:
        made.append(Member(cluster, topic, **config))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def shared_out(members: list[Member], among: int | None = None) -> bool:
    """Whether every partition has one owner, and nobody has much more than others."""
    owned = sorted(partition for member in members for partition in member.owned)
    sizes = [len(member.owned) for member in members]
    return owned == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_are_shared_out_again_when_members_come_and_go(
    cluster: LocalCluster, members: Callable[..., Member], strategy: str
) -> None:
    topic = a_topic(cluster, f"shared-{strategy}")
    produce(cluster, topic, 0, 60)
    config = {"group_id": topic, "partition_assignment_strategy": strategy}
    group = [members(topic, **config)]
    wait_for("one owner", lambda: shared_out(group))
    group += [members(topic, **config), members(topic, **config)]
    wait_for("three owners", lambda: shared_out(group))
    group.pop(0).stop()
    wait_for("two owners", lambda: shared_out(group))
    produce(cluster, topic, 60, 120)
    wait_for("all records", lambda: _all_read(120, members))
    described = cluster.admin().describe_consumer_groups([topic])[topic].result(10)
    assert described.state is confluent_kafka.ConsumerGroupState.STABLE
    assert len(described.members) == 2


def _all_read(last: int, members: Callable[..., Member]) -> bool:
    made: list[Member] = members.__closure__[1].cell_contents  # type: ignore[attr-defined]
    return {number for member in made for number in member.read} >= set(range(last))
