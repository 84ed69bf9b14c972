"""Leaders on request, with real processes and a real client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ElectionType, TopicPartition
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

ROW = 3


def elect(
    cluster: LocalCluster, kind: Any, *partitions: tuple[str, int]
) -> dict[tuple[str, int], int]:
    """Error codes by partition."""
    wanted = [TopicPartition(topic, index) for topic, index in partitions] or None
    admin = cluster.admin()  # kept until the answer is there
    return {
        (each.topic, each.partition): 0 if error is None else _code(error)
        for each, error in admin.elect_leaders(kind, wanted).result(30).items()
    }


def _code(error: Any) -> int:
    found = error.args[0] if isinstance(error, confluent_kafka.KafkaException) else error
    return int(found.code())


def replicas(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """The preferred leader of each partition."""
    return {index: p.replicas[0] for index, p in cluster.topic(topic).items()}


def leaders(cluster: LocalCluster, topic: str) -> dict[int, int]:
    return {index: p.leader for index, p in cluster.topic(topic).items()}


def test_preferred_leaders_lead_again_when_a_client_asks(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c") as cluster:
        cluster.create_topic("t", ROW, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3)
        first = leaders(cluster, "t")
        assert first == replicas(cluster, "t")
        cluster.wait_rejoined(0, cluster.kill_broker(0))
        cluster.wait_isr("t", 3)
        displaced = [
            index for index, leader in leaders(cluster, "t").items() if leader != first[index]
        ]
        assert displaced, "broker 0 led something"
        answers = elect(cluster, ElectionType.PREFERRED, *(("t", index) for index in range(ROW)))
        assert answers == {("t", index): 0 if index in displaced else 84 for index in range(ROW)}
        assert leaders(cluster, "t") == first
        assert elect(cluster, ElectionType.UNCLEAN, ("t", 0)) == {("t", 0): 84}


@pytest.mark.parametrize("strategy", ["Manual", "proactive"])
def test_killed_brokers_recover_by_unclean_strategy(tmp_path: Path, strategy: str) -> None:
    """Manual waits for a person; proactive waits five seconds at most.  Nothing was lost here."""
    cluster = LocalCluster(tmp_path / "c")
    configs = {"min.insync.replicas": "2", "unclean.recovery.strategy": strategy}
    with cluster:
        cluster.create_topic("t", ROW, configs)
        acked = produce(cluster.bootstrap, "t", [b"%d" % n for n in range(300)])
        cluster.kill_everything()
    with cluster:
        if strategy == "Manual":
            wait_for("every broker is known", lambda: len(cluster.topic("t")) == ROW)
            assert set(leaders(cluster, "t").values()) == {-1}
            wait_for(
                "the replicas have told of their logs",
                lambda: (
                    set(elect(cluster, ElectionType.UNCLEAN).values()) <= {0}
                    and -1 not in leaders(cluster, "t").values()
                ),
            )
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", ROW))
        causes = [
            record["cause"]
            for record in cluster.metadata_records(1)
            if record["type"] == "PartitionsChanged" and record.get("recovery") == "Recovering"
        ]
        assert causes
        assert all("data loss" in cause for cause in causes)


MANUAL = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main, namespace: kafka}
spec:
  brokers: {count: 3}
  storage: {size: 1Gi}
  uncleanRecovery: Manual
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: orders, namespace: kafka}
spec:
  clusterRef: {name: main}
  partitions: 1
"""
ELECT = """\
  uncleanRecovery:
    elect: [{partition: 0, leader: 2, atLeaderEpoch: %d}]
"""


def leader_epoch(cluster: LocalCluster) -> int:
    """Of the only partition there is."""
    records = cluster.metadata_records(1)
    return sum(r.get("leader_epoch_step", 0) for r in records if r["type"] == "PartitionsChanged")


def times_named(cluster: LocalCluster) -> int:
    causes = [record["cause"] for record in cluster.metadata_records(1)]
    return sum(cause.startswith("recovery: its object names a leader") for cause in causes)


def test_object_names_leader_nobody_else_may_choose(tmp_path: Path) -> None:
    document = tmp_path / "cluster.yaml"
    document.write_text(MANUAL)
    cluster = LocalCluster(tmp_path / "c", brokers=None, files=[document])
    with cluster:
        acked = produce(cluster.bootstrap, "orders", [b"%d" % n for n in range(100)])
        cluster.kill_everything()
    with cluster:
        wait_for("the partition is known", lambda: leaders(cluster, "orders") == {0: -1})
        assert elect(cluster, ElectionType.UNCLEAN, ("orders", 0)) == {("orders", 0): 44}
        epoch = leader_epoch(cluster)
    document.write_text(MANUAL + ELECT % epoch)
    with cluster:
        wait_for("the named leader", lambda: leaders(cluster, "orders") == {0: 2})
        cluster.wait_isr("orders", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "orders", 1))
        assert leader_epoch(cluster) == epoch + 1
        assert times_named(cluster) == 1
    with cluster:
        cluster.wait_isr("orders", 3)
        assert times_named(cluster) == 1, "what was asked for once is not done again"
