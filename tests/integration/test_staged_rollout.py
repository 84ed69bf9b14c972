"""Pools of a local cluster roll one after another: the first by itself, the next when approved."""

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
from tests.integration.test_local_objects import ask, pods

CLUSTER = """
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec:
  storage: {size: 1Gi}
  pools:
  - {name: canary, firstId: 100, brokers: 1}
  - {name: rest, firstId: 0, brokers: 2}
  rollout: {order: [canary], approval: Manual}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: t}
spec: {clusterRef: {name: main}, partitions: 3, minInSyncReplicas: 2}
"""
MAIN = f"{OURS}/logclusters/main"


def rollout(cluster: LocalCluster) -> dict[str, Any]:
    status = ask(cluster, "GET", MAIN)[1].get("status") or {}
    return dict(status.get("rollout") or {})


def edit(cluster: LocalCluster, **spec: Any) -> None:
    assert ask(cluster, "PATCH", MAIN, {"spec": spec}, media="merge-patch+json")[0] == 200


def test_pools_roll_in_order_and_when_approved(tmp_path: Path) -> None:
    file = tmp_path / "main.yaml"
    file.write_text(CLUSTER)
    cluster = LocalCluster(tmp_path / "c", brokers=None, files=(file,))
    with cluster:
        cluster.wait_isr("t", 3)
        acked = produce(cluster.bootstrap, "t", [b"%d" % n for n in range(300)])
        before = pods(cluster)
        edit(cluster, config={"num.replica.fetchers": 3})
        shown = wait_for(
            "the first pool to roll",
            lambda: one if (one := rollout(cluster)).get("next") and not one.get("pool") else None,
        )
        assert shown["next"] == "rest"
        assert f"until spec.rollout.approved is {shown['revision']}" in shown["message"]
        after = pods(cluster)
        changed = {name for name in before if after[name] != before[name]}
        assert changed == {"main-broker-100-0"}
        edit(cluster, rollout={"approved": shown["revision"]})
        wait_for("the others to roll", lambda: not rollout(cluster) or None)
        wait_for(
            "all pods to be new",
            lambda: not set(pods(cluster).items()) & set(before.items()) or None,
        )
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 3))
