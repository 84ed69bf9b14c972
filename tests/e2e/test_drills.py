"""A Verification under a drill that kills a broker and the operator, then an audit of its topic."""

from typing import Any

import pytest
from dev.kubectl import Cluster, condition, wait_for
from tests.e2e.test_node import a_claim
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready

pytestmark = pytest.mark.timeout(900)

RUN_S = 600
RATE, RECORDS = 500, 25_000
DRIVER = {"requests": {"cpu": "10m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
EXECUTOR = {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}}
CLAIM = "proofs"
DRILL = [
    {
        "at": "5s",
        "fault": "KillBroker",
        "target": {"leaderOf": {"topic": "orders", "partition": 0}},
    },
    {"at": "15s", "fault": "KillOperator"},
]


@pytest.fixture
def drilled(operator: Cluster, namespace: str) -> str:
    """A namespace with a cluster that allows drills, a topic, and a claim for evidence."""
    topic = a_topic(partitions=4, replicationFactor=3, minInSyncReplicas=2)
    apply(
        operator, namespace, a_log_cluster(maintenance={"allowDrills": True}), topic, a_claim(CLAIM)
    )
    ready(operator, namespace, "logcluster", "main")
    ready(operator, namespace, "topic", "orders")
    return namespace


def verify(cluster: Cluster, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """Create a Verification and return its status once it has ended."""
    body = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Verification",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }
    apply(cluster, namespace, body)

    def ended() -> dict[str, Any] | None:
        found = cluster.get("verification", name, namespace) or {}
        shown: dict[str, Any] = found.get("status") or {}
        return shown if shown.get("phase") in ("Completed", "Failed") else None

    return wait_for(f"the end of {name}", ended, RUN_S)


def test_run_and_audit_pass_after_a_drill(operator: Cluster, drilled: str) -> None:
    shown = verify(
        operator,
        drilled,
        "drill",
        topic="orders",
        produce={"records": RECORDS, "recordsPerSecond": RATE, "recordBytes": 100},
        runner={"executors": 2, "executorResources": EXECUTOR, "resources": DRIVER},
        evidence={"persistentVolumeClaim": CLAIM, "keep": "Always"},
        drill=DRILL,
    )
    assert (shown["phase"], shown["verdict"]) == ("Completed", "Passed"), shown
    assert [(one["fault"], one["result"]) for one in shown["drill"]] == [
        ("KillBroker", "Injected"),
        ("KillOperator", "Injected"),
    ]
    first, second = shown["drillRecord"]["steps"]
    assert "which led orders-0" in first["message"]
    leader = operator.get("logcluster", "main", drilled)
    assert leader is not None
    assert leader["status"]["metadataLog"]["controllerEpoch"] > second["epoch"]
    counts = shown["counts"]
    assert counts["acked"] == RECORDS
    assert (counts["lost"], counts["duplicated"]) == (0, 0)
    assert shown["evidence"]["run"]
    report = operator.get("configmap", "drill-report", drilled)
    assert report is not None
    assert "KillOperator" in report["data"]["report.html"]
    audit = verify(
        operator,
        drilled,
        "audit",
        source={"existingTopics": {"matchPattern": "orders"}},
        runner={"resources": DRIVER},
    )
    found = condition({"status": audit}, "Ready") or condition({"status": audit}, "Complete")
    assert audit["verdict"] == "Passed", found
