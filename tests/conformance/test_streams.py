"""Kafka Streams, at least once: its internal topics are made, purged and restored from, and no
record goes uncounted when an instance is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.applications import Application, command, properties
from tests.conformance.closed_cluster import (
    Decision,
    as_user,
    closed_cluster,
    decided,
    documented,
    is_of,
    onlooker,
    rules_of,
)
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
SUMS_USER = "sums"
"""In docs/clients.md."""
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
                **self.peer.java,
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
    admin = AdminClient(peer.librdkafka)
    made = [NewTopic(topic, partitions, peer.replicas) for topic in topics]
    for future in admin.create_topics(made).values():
        future.result(30)


def say(peer: Peer, first: int, last: int) -> None:
    producer = confluent_kafka.Producer(peer.librdkafka)
    for number in range(first, last):
        producer.produce(INPUT, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Sums:
    """The greatest sum that was told of each key; sums only grow."""

    def __init__(self, peer: Peer) -> None:
        self.told: dict[int, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {**peer.librdkafka, "group.id": "none", "enable.auto.commit": False}
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


@pytest.mark.long
@pytest.mark.client("Kafka Streams 4.1", "member killed")
def test_streams_sum_is_right_despite_killed_instance(peer: Peer, instances: Instances) -> None:
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
def test_streams_smoke_test_survives_killed_instance(peer: Peer, instances: Instances) -> None:
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


# --- a closed cluster -----------------------------------------------------------------------------


def add_up_as_documented(directory: Path, mode: str, user: dict[str, Any]) -> set[Decision]:
    """What was not allowed while one instance ran with the login of the user."""
    directory.mkdir()
    with closed_cluster(directory, mode, [user]) as running:
        seen = onlooker(running)
        create(seen, INPUT, OUTPUT)
        say(seen, 0, EACH)
        found = Instances(as_user(running, SUMS_USER), directory / "instances")
        topics = {"input.topic": INPUT, "aggregation.topic": OUTPUT, "add.operations": "false"}
        one = found.start(SUMS, **topics, **{"application.id": SUMS_USER})
        added = Sums(seen)
        try:
            wait_for("all added", lambda: added.reach(EACH), START_S)
            wait_for("it purges", lambda: purged(seen) or None, START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{one.said()}") from None
        finally:
            one.stop()
            added.close()
    return decided(running, "Denied" if mode == "Enforce" else "WouldDeny")


def purged(peer: Peer) -> bool:
    """Whether records that were read are deleted."""
    consumer = confluent_kafka.Consumer({**peer.librdkafka, "group.id": "none"})
    try:
        topic = f"{SUMS_USER}-grouped-stream-repartition"
        return any(
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), 10)[0]
            for number in range(PARTITIONS)
        )
    finally:
        consumer.close()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.client("Kafka Streams 4.1", "TLS")
@pytest.mark.client("Kafka Streams 4.1", "least rights")
def test_streams_need_only_documented_rights(tmp_path: Path) -> None:
    (user,) = [one for one in documented("User") if one["metadata"]["name"] == SUMS_USER]
    assert add_up_as_documented(tmp_path / "enforced", "Enforce", user) == set()
    bare = {**user, "spec": {**user["spec"], "acls": []}}
    asked = add_up_as_documented(tmp_path / "audited", "Audit", bare)
    for rule, prefix in rules_of(user):
        assert any(is_of(one, rule, prefix) for one in asked), f"nothing asked for {rule}"
