"""Kafka's own consumers in groups: the console consumer, and VerifiableConsumers while their
coordinator is killed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.integration.local_cluster import LocalCluster, wait_for

PARTITIONS = 3
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"


def produce(cluster: LocalCluster, topic: str, records: int) -> None:
    """Each once, also where an answer is lost with the broker that is killed."""
    config = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    producer = confluent_kafka.Producer(config)
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def describe(cluster: LocalCluster, group: str) -> Any:
    """None: its coordinator was not found in time."""
    admin = cluster.admin()
    try:
        return admin.describe_consumer_groups([group])[group].result(10)
    except confluent_kafka.KafkaException:
        return None


@pytest.mark.client("Java {jars}", "groups")
@pytest.mark.client("Java {jars}", "restart")
def test_console_consumers_group_goes_on_where_it_ended(
    cluster: LocalCluster, topic: str, jars: KafkaJars
) -> None:
    read: list[int] = []
    for _ in range(2):
        produce(cluster, topic, 30)
        command = jars.command(
            jars.console_consumer,
            *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", topic),
            *("--from-beginning", "--max-messages", "30", "--timeout-ms", "30000"),
        )
        done = subprocess.run(command, check=True, capture_output=True, timeout=60)
        read += [int(line) for line in done.stdout.split()]
    assert sorted(read) == sorted([*range(30), *range(30)])


class Verifiable:
    """One of Kafka's own; what it says, event by event."""

    def __init__(self, cluster: LocalCluster, topic: str, jars: KafkaJars, *options: str) -> None:
        command = jars.command(
            VERIFIABLE_CONSUMER,
            *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group-id", topic),
            *("--reset-policy", "earliest", "--session-timeout", "6000", *options),
        )
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.owned: set[int] = set()
        self.read: set[tuple[int, int]] = set()
        self.committed: dict[int, list[int]] = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._hear(json.loads(line))

    def _hear(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "partitions_assigned":
                self.owned |= {int(one["partition"]) for one in event["partitions"]}
            case "partitions_revoked":
                self.owned -= {int(one["partition"]) for one in event["partitions"]}
            case "records_consumed":
                for one in event["partitions"]:
                    offsets = range(int(one["minOffset"]), int(one["maxOffset"]) + 1)
                    self.read |= {(int(one["partition"]), offset) for offset in offsets}
            case "offsets_committed" if event["success"]:
                for one in event["offsets"]:
                    self.committed.setdefault(int(one["partition"]), []).append(int(one["offset"]))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._thread.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def all_read(consumers: list[Verifiable]) -> set[tuple[int, int]]:
    """Partitions and offsets, of all together."""
    # A copy is made at once, while the thread that listens adds to the set.
    return {place for one in consumers for place in one.read.copy()}


@pytest.fixture
def verifiable(cluster: LocalCluster, topic: str) -> Iterator[list[Verifiable]]:
    jars = kafka_jars()
    running = [Verifiable(cluster, topic, jars) for _ in range(3)]
    yield running
    for one in running:
        one.stop()


def test_consumers_miss_nothing_while_coordinator_dies(
    cluster: LocalCluster, topic: str, verifiable: list[Verifiable]
) -> None:
    wait_for("an owner each", lambda: [len(one.owned) for one in verifiable] == [1] * 3, 240)
    for number in (1, 2):
        produce(cluster, topic, 300)
        coordinator = wait_for("the group", lambda: describe(cluster, topic)).coordinator.id
        old = cluster.kill_broker(coordinator)
        produce(cluster, topic, 300)
        cluster.wait_restarted(coordinator, old)
        wait_for("all", lambda: len(all_read(verifiable)) >= 600 * number)  # noqa: B023
        assert len(all_read(verifiable)) == 600 * number
    wait_for("an owner each", lambda: [len(one.owned) for one in verifiable] == [1] * 3)
    described = wait_for("the group", lambda: describe(cluster, topic))
    assert described.state is confluent_kafka.ConsumerGroupState.STABLE
    for one in verifiable:
        for offsets in one.committed.values():
            assert offsets == sorted(offsets)
    gone = verifiable.pop()
    gone.stop()
    wait_for("two owners", lambda: sorted(len(one.owned) for one in verifiable) == [1, 2])
