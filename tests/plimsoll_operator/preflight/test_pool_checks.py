"""`plimsoll preflight --file`: are there volumes and nodes for the pools of a LogCluster?"""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster
from tests.plimsoll_operator.preflight.test_checks import REFUSED, SILENT, a_class

from plimsoll_operator.preflight.facts import Node
from plimsoll_operator.preflight.pool_checks import pools

CLASSES = (a_class("std", is_default=True), a_class("fast"), a_class("stiff", expandable=False))
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
RESERVED = {"key": "kafka", "value": "yes", "effect": "NoSchedule"}
SMALL = {"cpu": "2", "memory": "4Gi"}
NVME = {"disk": "nvme"}
NODES = tuple(Node(labels=NVME, allocatable=SMALL) for _ in range(3))


def a_pool(**stated: Any) -> dict[str, Any]:
    return {"name": "fast", "firstId": 100, "brokers": 3, **stated}


def on(selector: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"template": {"spec": {"nodeSelector": selector, **more}}}


def stored(name: str) -> dict[str, Any]:
    return {"storage": {"size": "1Gi", "storageClassName": name}}


def memory(size: str) -> dict[str, Any]:
    return {"resources": {"requests": {"memory": size}}}


@pytest.mark.parametrize(
    ("pool", "nodes", "result", "sentence"),
    [
        (stored("fast"), NODES, "ok", "StorageClass fast exists, and its volumes can grow."),
        ({}, NODES, "ok", "Pool fast: 3 nodes can take its 3 brokers."),
        (stored("gone"), NODES, "failed", "Pool fast: StorageClass gone does not exist; available"),
        (stored("stiff"), NODES, "warning", "Pool fast: volumes of StorageClass stiff cannot grow"),
        (on(NVME), NODES, "ok", "3 nodes can take"),
        (on({"disk": "tape"}), NODES, "failed", "its nodeSelector, disk=tape. Label the nodes."),
        ({}, NODES[:2], "warning", "2 nodes for 3 brokers: brokers share nodes"),
        ({}, NODES[:1], "warning", "1 node for 3 brokers"),
        (memory("3Gi"), NODES, "ok", "3 nodes can take"),
        (memory("5Gi"), NODES, "failed", "is large enough for memory 5Gi of one broker"),
        ({}, (Node(labels={}, taints=(CORDONED,)),), "failed", "is cordoned or has a taint"),
    ],
)
def test_pool_without_volumes_or_nodes_is_named(
    pool: dict[str, Any], nodes: tuple[Node, ...], result: str, sentence: str
) -> None:
    verdict = pools(a_cluster(pools=[a_pool(**pool)]), CLASSES, nodes)
    assert verdict.result == result
    assert sentence in verdict.message


@pytest.mark.parametrize(
    ("toleration", "result"),
    [
        ({"key": "kafka", "value": "yes"}, "ok"),
        ({"key": "kafka", "operator": "Exists"}, "ok"),
        ({"operator": "Exists"}, "ok"),
        ({"key": "kafka", "value": "no"}, "failed"),
        ({"key": "kafka", "operator": "Exists", "effect": "NoExecute"}, "failed"),
    ],
)
def test_taints_keep_off_what_tolerates_none(toleration: dict[str, str], result: str) -> None:
    nodes = tuple(Node(labels={}, taints=(RESERVED,)) for _ in range(3))
    pool = a_pool(**on({}, tolerations=[toleration]))
    assert pools(a_cluster(pools=[pool]), CLASSES, nodes).result == result


def test_pool_without_brokers_and_plain_cluster_are_judged() -> None:
    empty = a_pool(brokers=0, **stored("gone"))
    other = {"name": "old", "firstId": 0, "brokers": 3}
    assert pools(a_cluster(pools=[empty, other]), CLASSES, NODES).result == "ok"
    plain = pools(a_cluster(storage={"size": "1Gi", "storageClassName": "x"}), CLASSES, NODES)
    assert plain.message.startswith("LogCluster main: StorageClass x does not exist")


def test_unreadable_facts_of_pools_are_told() -> None:
    cluster = a_cluster(pools=[a_pool()])
    assert pools(cluster, REFUSED, NODES).result == "warning"
    assert pools(cluster, CLASSES, SILENT).result == "failed"
    assert "--file" in pools(None, CLASSES, NODES).message
