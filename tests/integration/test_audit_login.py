"""An auditor logs in by SCRAM over TLS, and reads replicas only of topics that it may read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_spark.existing_topics import AuditedPartition, ExistingTopics
from plimsoll_spark.replica_reader import Connections, Held, RateLimit, ReplicaReader, Why

BLIND = """
apiVersion: plimsoll.dev/v1alpha1
kind: User
metadata: {name: blind}
spec:
  clusterRef: {name: local}
  authentication: {scram: {}}
  acls:
  - {resource: {type: Topic, name: orders}, operations: [Describe]}
"""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("secure")
    file = place / "blind.yaml"
    file.write_text(BLIND)
    arguments = ("--secure", "--port", str(*free_ports(1)), "-f", str(file))
    with LocalCluster(place / "cluster", arguments=arguments) as running:
        yield running


def login(cluster: LocalCluster, user: str) -> dict[str, Any]:
    """What is written for librdkafka."""
    path = Path(cluster.ready["users"]) / user / "librdkafka.conf"
    wait_for(f"the login of {user}", path.exists)
    config = dict(line.partition("=")[::2] for line in path.read_text().splitlines())
    del config["bootstrap.servers"]
    return config


@pytest.fixture(scope="module")
def partition(secure: LocalCluster) -> AuditedPartition:
    """With 100 records."""
    producer = Producer({"bootstrap.servers": secure.bootstrap, **login(secure, "admin")})
    for _ in range(100):
        producer.produce("orders", b"v")
    assert producer.flush(60) == 0
    topics = ExistingTopics(secure.bootstrap, login(secure, "admin"))
    return max(topics.partitions(["orders"]).partitions, key=lambda one: one.log.log_end_offset)


def read(config: dict[str, Any], partition: AuditedPartition) -> list[Held]:
    connections = Connections(config)
    try:
        return [
            ReplicaReader(
                connections,
                place,
                own_copy=True,
                until_s=time.time() + 60,
                limit=RateLimit(None),
            ).read(0, partition.log.log_end_offset)
            for place in partition.replicas
        ]
    finally:
        connections.close()


def test_reader_of_topic_gets_every_replica(
    secure: LocalCluster, partition: AuditedPartition
) -> None:
    held = read(login(secure, "admin"), partition)
    assert len(held) == 3
    assert {one.why for one in held} == {None}
    assert {one.batches.tobytes() for one in held} == {held[0].batches.tobytes()}
    assert held[0].batches["records"].sum() == partition.log.log_end_offset


def test_describing_topic_is_not_reading_it(
    secure: LocalCluster, partition: AuditedPartition
) -> None:
    held = read(login(secure, "blind"), partition)
    assert {(one.why, len(one.batches)) for one in held} == {(Why.DENIED, 0)}


def test_wrong_password_counts_as_unread(secure: LocalCluster, partition: AuditedPartition) -> None:
    held = read({**login(secure, "admin"), "sasl.password": "wrong"}, partition)
    assert {(one.why, len(one.batches)) for one in held} == {(Why.LOGIN, 0)}
