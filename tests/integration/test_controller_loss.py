"""onControllerLoss: StopServing: real brokers, a controller that is frozen, then a broker too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster, consume_all, wait_for

CLUSTER = log_cluster(onControllerLoss="StopServing")
LEASE_S = 5.4


@pytest.fixture
def careful(tmp_path: Path) -> Iterator[LocalCluster]:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(tmp_path / "cluster", brokers=None, files=[file]) as running:
        yield running


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def refusals(cluster: LocalCluster, broker_id: int) -> float:
    return cluster.metric(broker_id, "unleased_refusals_total")


def ack(cluster: LocalCluster, acks: int, timeout_ms: int) -> confluent_kafka.KafkaError | None:
    """What a producer of one record is told in the end."""
    told: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "message.timeout.ms": timeout_ms,
            "retry.backoff.ms": 50,
        }
    )
    producer.produce("t", b"record", on_delivery=lambda error, _: told.append(error))
    producer.flush(timeout_ms / 1000 + 5)
    return told[0]


def test_leaders_without_controller_serve_until_lease_ends(
    careful: LocalCluster,
) -> None:
    careful.create_topic("t", 1)
    careful.wait_isr("t", 3)
    partition = careful.topic("t")[0]
    leader, follower = partition.leader, partition.replicas[-1]
    assert follower != leader
    with careful.frozen_controller():
        lost_at = time.monotonic()
        while time.monotonic() - lost_at < LEASE_S + 2:
            # Every replica follows, so no other can lead, for as long as it takes.
            assert ack(careful, 1, 20_000) is None
            consume_all(careful.bootstrap, "t", 1)
        assert refusals(careful, leader) == 0
        with frozen(careful.pids[str(follower)]):
            wait_for("the leader refuses", lambda: _refuses(careful, leader), LEASE_S + 10)
            error = ack(careful, 1, 1_000)
            assert error is not None
        assert ack(careful, 1, 20_000) is None, "it follows again"
        assert ack(careful, -1, 20_000) is None
    careful.wait_isr("t", 3)


def _refuses(cluster: LocalCluster, leader: int) -> bool:
    ack(cluster, 1, 500)
    return refusals(cluster, leader) > 0
