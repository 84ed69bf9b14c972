"""Brokers are emptied and filled between real processes while a client writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.listening import OURS
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

VALUES = [b"%d" % n for n in range(2_000)]
PARTITIONS = 6
REBALANCES = f"{OURS}/rebalances"
SMALL_BATCHES = {"batch.num.messages": 20, "sticky.partitioning.linger.ms": 0}
"""So that every partition holds many: a batch is never split, so each start of a broker lets one
pass, however slow moves are, and a partition of a single batch would have moved before its move is
cancelled."""
HEAD = "apiVersion: plimsoll.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"


def topic_file(folder: Path) -> Path:
    file = folder / "topic.yaml"
    spec = f"{{clusterRef: {{name: local}}, partitions: {PARTITIONS}, minInSyncReplicas: 2}}"
    file.write_text(HEAD.format(kind="Topic", name="t") + f"spec: {spec}\n")
    return file


def rebalance_file(folder: Path, name: str, more: str) -> Path:
    file = folder / f"{name}.yaml"
    spec = f"{{clusterRef: {{name: local}}, {more}}}"
    file.write_text(HEAD.format(kind="Rebalance", name=name) + f"spec: {spec}\n")
    return file


def held(cluster: LocalCluster) -> dict[int, int]:
    """How many replicas each broker has; empty while no broker answers."""
    rows = [list(p.replicas) for p in cluster.topic("t").values()]
    return {broker: sum(broker in row for row in rows) for broker in range(4)} if rows else {}


def plan_hash(cluster: LocalCluster, name: str) -> str | None:
    """Of the plan that the object's status shows; None while there is none."""
    found: dict[str, Any] = cluster.api.ask("GET", f"{REBALANCES}/{name}")[1]
    return found.get("status", {}).get("plan", {}).get("hash")


def rows_of(cluster: LocalCluster) -> list[dict[str, Any]]:
    return [
        record["rebalance"]
        for record in cluster.metadata_records()
        if record["type"] == "RebalanceNoted"
    ]


def test_brokers_are_emptied_and_filled_again(tmp_path: Path) -> None:
    """A file is carried out once; a plan waits for its approval; nothing is lost on the way."""
    topic = topic_file(tmp_path)
    drain = rebalance_file(
        tmp_path, "drain", "mode: RemoveBrokers, brokers: [3], approval: Automatic"
    )
    cluster = LocalCluster(tmp_path / "c", brokers=4, files=(topic, drain))
    with cluster:
        wait_for("broker 3 is empty", lambda: held(cluster) and held(cluster)[3] == 0)
        acked = produce(cluster.bootstrap, "t", VALUES)
        wait_for("it has ended", lambda: rows_of(cluster)[-1]["phase"] == "Completed")
        assert set(held(cluster).values()) == {0, PARTITIONS}
        moved = rows_of(cluster)[-1]
        assert moved["replicas_moved"] == moved["replicas"] > 0

    fill = rebalance_file(tmp_path, "fill", "mode: AddBrokers, brokers: [3]")
    cluster.files = (topic, fill)
    with cluster:
        cluster.wait_isr("t", 3)
        found = wait_for(
            "the plan's name is told",
            lambda: plan_hash(cluster, "fill"),
        )
        assert held(cluster)[3] == 0, "it is not approved yet"
        forgotten = [r for r in cluster.metadata_records() if r["type"] == "RebalanceForgotten"]
        assert len(forgotten) == 1, "the one that is in no file any more"

    more = f"mode: AddBrokers, brokers: [3], approvedPlan: '{found}'"
    cluster.files = (topic, rebalance_file(tmp_path, "fill", more))
    with cluster:
        cluster.wait_isr("t", 3)
        meanwhile = produce(cluster.bootstrap, "t", [b"m" + value for value in VALUES])
        wait_for("it has ended", lambda: rows_of(cluster)[-1]["phase"] == "Completed")
        counts = held(cluster).values()
        assert max(counts) - min(counts) <= 1
        cluster.wait_isr("t", 3)
        read = consume_all(cluster.bootstrap, "t", PARTITIONS)
        assert_nothing_lost(acked, read)
        assert_nothing_lost(meanwhile, read)


def test_rebalance_killed_halfway_resumes_and_is_cancellable(tmp_path: Path) -> None:
    """What was begun is in the log: whoever starts next knows it."""
    topic = topic_file(tmp_path)
    slow = "mode: RemoveBrokers, brokers: [3], approval: Automatic, throttle: {bytesPerSecond: '1'}"
    cluster = LocalCluster(tmp_path / "c", brokers=4, files=(topic,))

    def under_way() -> bool:
        return any(r["type"] == "RebalanceAdvanced" for r in cluster.metadata_records())

    with cluster:
        cluster.wait_isr("t", 3)
        before = {index: set(p.replicas) for index, p in cluster.topic("t").items()}
        acked = produce(cluster.bootstrap, "t", VALUES, **SMALL_BATCHES)
    cluster.files = (topic, rebalance_file(tmp_path, "drain", slow))
    with cluster:
        wait_for("moves are under way", under_way)
        cluster.kill_everything()
        cluster.start()
        cluster.wait_isr("t", 3)
        assert rows_of(cluster)[-1]["phase"] == "Running"
        cluster.stop()
        file = rebalance_file(tmp_path, "drain", slow + ", cancelled: true")
        cluster.files = (topic, file)
        cluster.start()
        wait_for("it is rolled back", lambda: rows_of(cluster)[-1]["phase"] == "Cancelled")
        cluster.wait_isr("t", 3)
        after = {index: set(p.replicas) for index, p in cluster.topic("t").items()}
        moved = rows_of(cluster)[-1].get("moved", 0)
        assert sum(after[index] != row for index, row in before.items()) == moved
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
