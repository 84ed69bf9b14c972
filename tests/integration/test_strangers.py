"""Consumers that never read, half requests and idle connections, against real brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster, a_producer, produce, wait_for
from tests.integration.strangers import Crowd, Strangers

MIB = 2**20
CLUSTER = log_cluster(config={"memory.limit.bytes": 268_435_456})
SECONDS = 6
RSS_MAX = 260 * MIB
BACKLOG, LIVE = "backlog", "live"
PARTITIONS = 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers that believe they may have 256 MiB each."""
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text(CLUSTER)
    with LocalCluster(tmp_path / "cluster", brokers=None, files=[wanted], restart=False) as it:
        yield it


def test_forty_idle_consumers_exhaust_no_memory(
    cluster: LocalCluster,
) -> None:
    """Unsent replies cost 16 MiB each once, and forty of them 660 MiB."""
    cluster.create_topic(BACKLOG, PARTITIONS)
    cluster.create_topic(LIVE, 3)
    cluster.wait_isr(BACKLOG, 3)
    cluster.wait_isr(LIVE, 3)
    produce(cluster.bootstrap, BACKLOG, (bytes(500_000) for _ in range(48)))
    leader = cluster.topic(BACKLOG)[0].leader
    pids = cluster.pids
    broker = psutil.Process(pids[str(leader)])
    crowd = Crowd(sleepers=40, polls=64, idle=300, halves=40)
    most, acked = 0, 0
    with Strangers(crowd, (BACKLOG, PARTITIONS, 48), cluster.address(leader)) as strangers:
        connections = 'listener_connections{listener="clients"}'
        wait_for("strangers", lambda: cluster.metric(leader, connections) > 300)
        end = time.monotonic() + SECONDS
        producer = a_producer(cluster.bootstrap)
        while time.monotonic() < end:
            producer.produce(LIVE, value=b"still")
            assert producer.flush(30) == 0
            acked += 1
            most = max(most, broker.memory_info().rss)
        assert strangers.alive
    assert most < RSS_MAX, f"{most / MIB:.0f} MiB"
    assert acked > 10
    assert cluster.pids == pids
    cluster.wait_isr(LIVE, 3)
