"""Replicas move between real processes while a real client writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka
from kafka import KafkaAdminClient, TopicPartition
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

ROW = 3
VALUES = [b"%d" % n for n in range(2_000)]


@contextmanager
def an_admin(cluster: LocalCluster) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def move(admin: Any, wanted: dict[int, list[int] | None]) -> dict[int, Any]:
    answers = admin.alter_partition_reassignments(
        {TopicPartition("t", index): replicas for index, replicas in wanted.items()}
    )
    return {partition.partition: error for partition, error in answers.items()}


def folders(cluster: LocalCluster, broker: int) -> set[str]:
    """The partitions of t that a broker has a folder for, except those that it is deleting."""
    found = (cluster.directory / f"broker-{broker}").glob("t-*")
    return {path.name for path in found if not path.name.endswith("-delete")}


def placed(cluster: LocalCluster) -> dict[int, list[int]]:
    return {index: list(p.replicas) for index, p in cluster.topic("t").items()}


def test_partitions_move_to_another_broker_while_a_client_writes(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", brokers=4) as cluster, an_admin(cluster) as admin:
        cluster.create_topic("t", ROW, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3)
        before = produce(cluster.bootstrap, "t", VALUES)
        target = {
            index: [*({0, 1, 2, 3} - set(row)), *row[:2]] for index, row in placed(cluster).items()
        }
        assert move(admin, dict(target)) == dict.fromkeys(range(ROW))
        meanwhile = produce(cluster.bootstrap, "t", [b"m" + value for value in VALUES])
        wait_for("every move ends", lambda: admin.list_partition_reassignments() == {})
        assert placed(cluster) == target
        cluster.wait_isr("t", 3)
        found = consume_all(cluster.bootstrap, "t", ROW)
        assert_nothing_lost(before, found)
        assert_nothing_lost(meanwhile, found)
        for broker in range(4):
            hosted = {f"t-{index}" for index, row in target.items() if broker in row}
            wait_for(
                f"broker {broker} holds {hosted} and no more",
                lambda broker=broker, hosted=hosted: folders(cluster, broker) == hosted,
            )


def test_a_replica_that_was_dropped_while_it_was_down_sets_its_copy_aside(tmp_path: Path) -> None:
    """KAFKA-13972: Reassign 1,2,3→1,2,4, 4 half copied, cancel; 4 down meanwhile. => 4 deletes
    its copy when back."""
    with LocalCluster(tmp_path / "c", brokers=4, restart=False) as cluster:
        cluster.create_topic("t", 1, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3)
        acked = produce(cluster.bootstrap, "t", VALUES)
        row = placed(cluster)[0]
        new = next(broker for broker in range(4) if broker not in row)
        with an_admin(cluster) as admin:
            leader = cluster.topic("t")[0].leader
            follower = next(broker for broker in row if broker != leader)
            os.kill(cluster.pids[str(follower)], signal.SIGSTOP)
            try:
                assert move(admin, {0: [leader, follower, new]}) == {0: None}
                wait_for("a copy begins", lambda: folders(cluster, new) == {"t-0"})
                cluster.kill_broker(new)
                wait_for("the ISR is without it", lambda: new not in cluster.topic("t")[0].isrs)
            finally:
                os.kill(cluster.pids[str(follower)], signal.SIGCONT)
            wait_for(
                "enough are in sync without it",
                lambda: len(set(cluster.topic("t")[0].isrs) - {new}) >= 2,
            )
            wait_for("the cancel is granted", lambda: move(admin, {0: None}) == {0: None})
            assert move(admin, {0: None}) == {0: kafka.errors.NoReassignmentInProgressError}
        assert folders(cluster, new) == {"t-0"}
        cluster.stop()
        cluster.start()
        (aside,) = wait_for(
            "it is set aside, never to be served",
            lambda: [name for name in folders(cluster, new) if name.endswith("-stray")],
        )
        assert folders(cluster, new) == {aside}
        assert set(placed(cluster)[0]) == set(row)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 1))


def test_a_declared_factor_is_moved_to_and_is_nobody_elses(tmp_path: Path) -> None:
    """`plimsoll local` takes an edited file at its next start."""
    file = tmp_path / "topic.yaml"
    text = (
        "apiVersion: plimsoll.dev/v1alpha1\nkind: Topic\nmetadata: {{name: t}}\n"
        "spec: {{clusterRef: {{name: local}}, partitions: 3, replicationFactor: {factor},"
        " minInSyncReplicas: 2}}\n"
    )
    file.write_text(text.format(factor=2))
    cluster = LocalCluster(tmp_path / "c", brokers=4, files=(file,))
    with cluster:
        cluster.wait_isr("t", 2)
        acked = produce(cluster.bootstrap, "t", VALUES)
        with an_admin(cluster) as admin:
            wanted = sorted({0, 1, 2, 3} - set(placed(cluster)[0]))
            refused = move(admin, {0: [*placed(cluster)[0], wanted[0]]})
            assert refused == {0: kafka.errors.PolicyViolationError}
    for factor in (4, 3):
        file.write_text(text.format(factor=factor))
        with cluster:
            cluster.wait_isr("t", factor)
            assert {len(row) for row in placed(cluster).values()} == {factor}
            assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", ROW))
