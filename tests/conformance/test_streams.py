"""Kafka Streams, at least once: its internal topics are made, purged and restored from, and no
record goes uncounted when an instance is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.applications import Application, command, properties
from tests.conformance.conftest import PARTITIONS, Peer
from tests.conformance.kafka_jars import application_jars
from tests.integration.local_cluster import wait_for

SUMS = "org.apache.kafka.streams.tests.StreamsNamedRepartitionTest"
INPUT, OUTPUT = "sums-input", "sums-output"
SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
SMOKE_TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw"),
    *("sws-suppressed", "cnt", "avg", "tagg", "fk"),
)
KEYS = 9  # it takes numbers, and adds up those that leave the same remainder
EACH = 180
START_S, SMOKE_S = 90, 500


class Instances:
    """Of one application, each with a state directory of its own."""

    def __init__(self, peer: Peer, directory: Path) -> None:
        self.peer = peer
        self.directory = directory
        # All that were started.
        self.started: list[Application] = []

    def start(self, main_class: str, *arguments: str, **configs: str) -> Application:
        name = f"instance-{len(self.started)}"
        file = properties(
            self.directory / f"{name}.properties",
            {
                "bootstrap.servers": self.peer.bootstrap,
                "processing.guarantee": "at_least_once",
                "state.dir": str(self.directory / name),
                "replication.factor": str(self.peer.replicas),
                "num.standby.replicas": "1",
                "commit.interval.ms": "200",
                "session.timeout.ms": "6000",
                "acks": "all",
                "auto.offset.reset": "earliest",
                **configs,
            },
        )
        self.started.append(
            Application(
                command(application_jars(), main_class, file, *arguments),
                self.directory / f"{name}.log",
            )
        )
        return self.started[-1]


@pytest.fixture
def instances(peer: Peer, tmp_path: Path) -> Iterator[Instances]:
    found = Instances(peer, tmp_path)
    yield found
    for one in found.started:
        one.process.terminate()
    for one in found.started:
        one.stop()


def create(peer: Peer, *topics: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    made = [NewTopic(topic, partitions, peer.replicas) for topic in topics]
    for future in admin.create_topics(made).values():
        future.result(30)


def say(peer: Peer, first: int, last: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap})
    for number in range(first, last):
        producer.produce(INPUT, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Sums:
    """The greatest sum that was told of each key; sums only grow."""

    def __init__(self, peer: Peer) -> None:
        self.told: dict[int, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": peer.bootstrap, "group.id": "none", "enable.auto.commit": False}
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)]
        )

    def reach(self, last: int) -> bool:
        """Whether every number below `last` is in a sum: nothing is lost."""
        for message in self._consumer.consume(1000, 0.2):
            key, total = int(message.key()), int.from_bytes(message.value(), "big")
            self.told[key] = max(self.told.get(key, 0), total)
        return all(self.told.get(key, 0) >= total for key, total in sums(last).items())

    def close(self) -> None:
        self._consumer.close()


def sums(last: int) -> dict[int, int]:
    return {key: sum(range(key, last, KEYS)) for key in range(KEYS)}


@pytest.mark.client("Kafka Streams 4.1", "member killed")
def test_streams_add_up_every_number_though_an_instance_is_killed(
    peer: Peer, instances: Instances
) -> None:
    create(peer, INPUT, OUTPUT)
    topics = {"input.topic": INPUT, "aggregation.topic": OUTPUT, "add.operations": "false"}
    say(peer, 0, EACH)
    for _ in range(2):
        instances.start(SUMS, **topics)
    added = Sums(peer)
    wait_for("all added", lambda: added.reach(EACH), START_S)
    assert added.told == sums(EACH)
    killed, other = instances.started
    wait_for(
        "both run", lambda: all("RUNNING" in one.printed() for one in (killed, other)), START_S
    )
    say(peer, EACH, 2 * EACH)
    killed.kill()
    say(peer, 2 * EACH, 3 * EACH)
    wait_for("all added", lambda: added.reach(3 * EACH), START_S)
    added.close()
    listed = AdminClient({"bootstrap.servers": peer.bootstrap}).list_topics(timeout=10).topics
    made = {name.removeprefix("StreamsNamedRepartitionTest-") for name in listed}
    assert {"count-store-changelog", "grouped-stream-repartition"} <= made


@pytest.mark.full
@pytest.mark.timeout(2 * SMOKE_S)
@pytest.mark.client("Kafka Streams 4.1", "own suite")
def test_streams_smoke_test_succeeds_though_an_instance_is_killed(
    peer: Peer, instances: Instances
) -> None:
    create(peer, *SMOKE_TOPICS, partitions=5)
    driver = instances.start(SMOKE_TEST, "run")
    first = instances.start(SMOKE_TEST, "process")
    instances.start(SMOKE_TEST, "process")
    wait_for("it runs", lambda: "processed" in first.printed(), START_S)
    first.kill()
    instances.start(SMOKE_TEST, "process")
    driver.process.wait(SMOKE_S)
    assert "ALL-RECORDS-DELIVERED" in driver.printed()
    assert driver.said().rstrip().endswith("SUCCESS")
