"""Brokers that come and go: a cluster that shrank grows again, on old volumes and on new ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

ROW = 3
VALUES = [b"v%d" % n for n in range(500)]
HEAD = "apiVersion: plimsoll.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
TOPIC = HEAD.format(kind="Topic", name="t") + (
    "spec: {clusterRef: {name: local}, partitions: 3, replicationFactor: 2, minInSyncReplicas: 1}\n"
)
BACK = HEAD.format(kind="Reassignment", name="back") + (
    "spec: {clusterRef: {name: local}, moves: [{topic: t, replicas: [2, 0]}]}\n"
)


def rows(cluster: LocalCluster) -> list[set[int]]:
    return [set(p.replicas) for p in cluster.topic("t").values()]


def folders(cluster: LocalCluster, broker_id: int) -> list[str]:
    """The logs that it serves, and none that it set aside or deletes."""
    found = (cluster.directory / f"broker-{broker_id}").glob("t-?")
    return sorted(path.name for path in found)


@pytest.mark.parametrize(
    "wiped", [False, pytest.param(True, marks=pytest.mark.long)], ids=["kept volume", "new volume"]
)
def test_removed_broker_returns_under_its_number(tmp_path: Path, wiped: bool) -> None:
    topic, back = (tmp_path / f"{name}.yaml" for name in ("topic", "back"))
    topic.write_text(TOPIC)
    back.write_text(BACK)
    cluster = LocalCluster(tmp_path / "c", brokers=3, files=(topic,))
    with cluster:
        cluster.wait_isr("t", 2)
        acked = produce(cluster.bootstrap, "t", VALUES)
        assert any(2 in row for row in rows(cluster))
    cluster.brokers = 2
    with cluster:
        wait_for("broker 2 is forgotten", lambda: cluster.known_brokers() == {0, 1}, 90)
        assert rows(cluster) == [{0, 1}] * 3
        wait_for(
            "that is committed",
            lambda: [r for r in cluster.metadata_records() if r["type"] == "BrokerUnregistered"],
        )
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", ROW))
    if wiped:
        shutil.rmtree(cluster.directory / "broker-2")
    cluster.brokers, cluster.files = 3, (topic, back)
    with cluster:
        wait_for("all are on broker 2", lambda: rows(cluster) == [{0, 2}] * 3)
        cluster.wait_isr("t", 2)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", ROW))
        assert cluster.known_brokers() == {0, 1, 2}
        assert folders(cluster, 2) == ["t-0", "t-1", "t-2"]
