"""What people do to a cluster by hand, on a real Kubernetes: restored within seconds, or said.

One broker and one cluster for all of it, each mishap mended before the next.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from dev.kubectl import Cluster, CommandFailed, condition, wait_for
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready

SET = "main-broker-0"
SOON_S = 15
"""Far less than the half minute after which everything is looked at anyway."""


@pytest.fixture
def one(operator: Cluster, namespace: str) -> str:
    """A namespace with a cluster of one broker that serves a topic."""
    brokers = {"count": 1, "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}}}
    topic = a_topic(partitions=1, replicationFactor=1, minInSyncReplicas=1)
    apply(operator, namespace, a_log_cluster(brokers=brokers), topic)
    ready(operator, namespace, "logcluster", "main")
    ready(operator, namespace, "topic", "orders")
    return namespace


def edit(cluster: Cluster, namespace: str, target: str, patch: dict[str, Any]) -> None:
    kind, name = target.split("/")
    cluster.kubectl(
        "patch", kind, name, "-n", namespace, "--type", "merge", "-p", json.dumps(patch)
    )


def says(cluster: Cluster, namespace: str, type_: str, reason: str) -> str:
    """The message of a condition of the LogCluster, once it is True for this reason."""

    def probe() -> str | None:
        found = condition(cluster.get("logcluster", "main", namespace), type_)
        good = found and (found["status"], found["reason"]) == ("True", reason)
        return str(found["message"]) if found and good else None

    return wait_for(f"{type_} to say {reason}", probe, 60)


def quiet(cluster: Cluster, namespace: str, type_: str) -> None:
    def probe() -> bool | None:
        found = condition(cluster.get("logcluster", "main", namespace), type_)
        return (found is not None and found["status"] == "False") or None

    wait_for(f"{type_} to end", probe, 60)


def event(cluster: Cluster, namespace: str, reason: str, text: str) -> None:
    def probe() -> bool | None:
        found = cluster.items("events", namespace)
        return any(e["reason"] == reason and text in e["message"] for e in found) or None

    wait_for(f"an Event {reason} about {text}", probe, 60)


def within(cluster: Cluster, namespace: str, target: str, good: Callable[[Any], bool]) -> float:
    """Seconds until the object is as it should be."""
    kind, name = target.split("/")
    began = time.monotonic()

    def probe() -> bool | None:
        found = cluster.get(kind, name, namespace)
        return (found is not None and good(found)) or None

    wait_for(f"{target} to be restored", probe, SOON_S)
    return time.monotonic() - began


def pod(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("pod", f"{SET}-0", namespace)
    assert found is not None
    return str(found["metadata"]["uid"])


def image_of(found: dict[str, Any]) -> str:
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


def test_operator_restores_edited_and_deleted_children_within_seconds(operator: Cluster, one: str):
    before = pod(operator, one)
    right = operator.get("statefulset", SET, one)
    assert right is not None
    container = {"name": "broker", "image": "nonsense:1"}
    strategic = {"spec": {"template": {"spec": {"containers": [container]}}}}
    operator.kubectl("patch", "statefulset", SET, "-n", one, "-p", json.dumps(strategic))
    within(operator, one, f"statefulset/{SET}", lambda s: image_of(s) == image_of(right))
    assert pod(operator, one) == before, "the template was restored; no broker was restarted"
    event(operator, one, "Restored", "template")

    for target in (
        "service/main-bootstrap",
        "service/main-brokers",
        "poddisruptionbudget/main-broker",
        "networkpolicy/main-broker",
        "serviceaccount/main-broker",
    ):
        kind, name = target.split("/")
        found = operator.get(kind, name, one)
        assert found is not None, target
        uid = found["metadata"]["uid"]
        operator.kubectl("delete", kind, name, "-n", one, "--wait=false")
        within(operator, one, target, lambda s, old=uid: s["metadata"]["uid"] != old)
    event(operator, one, "Restored", "Service main-bootstrap was deleted")

    operator.kubectl("scale", "statefulset", SET, "-n", one, "--replicas=0")
    within(operator, one, f"statefulset/{SET}", lambda s: s["spec"]["replicas"] == 1)
    ready(operator, one, "topic", "orders")


def test_invalid_log_cluster_is_stalled_until_corrected(operator: Cluster, one: str):
    before = pod(operator, one)
    # No schema says how long a key may be.
    edit(operator, one, "logcluster/main", {"spec": {"config": {"x" * 250: 1}}})
    assert "spec.config" in says(operator, one, "Stalled", "InvalidSpec")
    edit(operator, one, "logcluster/main", {"spec": {"config": None}})
    quiet(operator, one, "Stalled")

    edit(operator, one, "logcluster/main", {"spec": {"storage": {"size": "2Gi"}}})
    assert "Set storage.size back to 1Gi" in says(operator, one, "Stalled", "VolumeCannotGrow")
    edit(operator, one, "logcluster/main", {"spec": {"storage": {"size": "1Gi"}}})
    quiet(operator, one, "Stalled")

    lots = {"spec": {"brokers": {"resources": {"requests": {"cpu": "lots"}}}}}
    with pytest.raises(CommandFailed, match="should match"):
        edit(operator, one, "logcluster/main", lots)
    too_much = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    edit(operator, one, "logcluster/main", {"spec": {"brokers": {"resources": too_much}}})
    says(operator, one, "Stalled", "RestartRefused")
    as_before = {"requests": {"cpu": "10m"}, "limits": None}
    edit(operator, one, "logcluster/main", {"spec": {"brokers": {"resources": as_before}}})
    quiet(operator, one, "Stalled")
    quiet(operator, one, "Reconciling")
    assert pod(operator, one) == before, "none of this restarted the broker"


def test_deleted_metadata_batch_is_rewritten_before_takeover(operator: Cluster, one: str):
    listed = operator.kubectl(
        "get", "metadatabatches.internal.plimsoll.dev", "-n", one, "-o", "name"
    )
    name = sorted(listed.split())[1]
    operator.kubectl("delete", name, "-n", one, "--wait=false")
    event(operator, one, "MetadataLogMended", name.split("/")[1])
    assert operator.kubectl("get", name, "-n", one, "-o", "name").strip() == name


def test_pod_over_quota_is_reported_in_status(operator: Cluster, one: str):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    apply(operator, one, quota)
    operator.kubectl("delete", "pod", f"{SET}-0", "-n", one, "--wait=false")

    def probe() -> bool | None:
        found = condition(operator.get("logcluster", "main", one), "Reconciling")
        return (found is not None and "exceeded quota" in found["message"]) or None

    wait_for("the quota to be quoted", probe, 90)
    operator.kubectl("delete", "resourcequota", "none", "-n", one)
    ready(operator, one, "topic", "orders", 180)
