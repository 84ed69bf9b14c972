"""A Verification whose executors are pods that Spark makes, on a real Kubernetes."""

import time
from typing import Any

import pytest
from dev.kubectl import Cluster, condition, wait_for
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready

pytestmark = pytest.mark.timeout(900)

EXECUTORS = 2
READY_S = 20
"""So soon are executors to be ready, where processors are idle."""
RUN_S = 600
RATE = 1_000
RECORDS = 40_000
SMALL = {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}}


@pytest.fixture
def one(operator: Cluster, namespace: str) -> str:
    """A namespace with a cluster of one broker that serves a topic."""
    brokers = {"count": 1, "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}}}
    topic = a_topic(partitions=4, replicationFactor=1, minInSyncReplicas=1)
    apply(operator, namespace, a_log_cluster(brokers=brokers), topic)
    ready(operator, namespace, "logcluster", "main")
    ready(operator, namespace, "topic", "orders")
    return namespace


def verify(cluster: Cluster, namespace: str, resources: dict[str, Any], **spec: Any) -> None:
    driver = {"requests": {"cpu": "10m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
    runner = {"executors": EXECUTORS, "executorResources": resources, "resources": driver}
    body = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Verification",
        "metadata": {"name": "far"},
        "spec": {
            "clusterRef": {"name": "main"},
            "topic": "orders",
            "produce": {"records": RECORDS, "recordsPerSecond": RATE, "recordBytes": 100},
            "runner": runner,
            **spec,
        },
    }
    apply(cluster, namespace, body)


def status(cluster: Cluster, namespace: str) -> dict[str, Any]:
    found = cluster.get("verification", "far", namespace)
    return (found or {}).get("status") or {}


def pods(cluster: Cluster, namespace: str) -> list[str]:
    """The names of the executors' pods that are ready."""
    found = cluster.items("pods", namespace, "plimsoll.dev/executor-of=far")
    good = [pod for pod in found if (condition(pod, "Ready") or {}).get("status") == "True"]
    return sorted(pod["metadata"]["name"] for pod in good)


def end(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return wait_for("its end", lambda: ended(cluster, namespace), RUN_S)


def ended(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    shown = status(cluster, namespace)
    return shown if shown.get("phase") in ("Completed", "Failed") else None


@pytest.mark.long
def test_killed_executor_changes_no_verdict(operator: Cluster, one: str) -> None:
    verify(operator, one, SMALL)

    def there() -> list[str] | None:
        assert not ended(operator, one), status(operator, one)
        found = pods(operator, one)
        return found if len(found) == EXECUTORS else None

    driver = wait_for(
        "the driver",
        lambda: operator.items("pods", one, "plimsoll.dev/verification=far") or None,
        RUN_S,
    )
    began = time.monotonic()
    first, _ = wait_for("both executors", there, RUN_S)
    print(f"both executors ready {time.monotonic() - began:.1f} s after the driver's pod was made")
    assert all("secret" not in str(pod["spec"]["containers"][0].get("env")) for pod in driver)

    def some() -> int:
        assert not ended(operator, one), status(operator, one)
        return int((status(operator, one).get("counts") or {}).get("acked") or 0)

    wait_for("the first parts", lambda: some() or None, RUN_S)
    operator.kubectl("delete", "pod", first, "-n", one, "--grace-period=0", "--force")
    shown = end(operator, one)
    counts = shown["counts"]
    assert (shown["phase"], shown["verdict"]) == ("Completed", "Passed"), shown
    assert counts["sent"] == counts["acked"] == RECORDS
    assert counts["read"] == RECORDS + counts["unreported"]
    assert (counts["lost"], counts["duplicated"]) == (0, 0)
    role = operator.get("role", "far-driver", one)
    assert role is not None
    wait_for("the right to be withdrawn", lambda: no_pods(operator, one), 60)
    wait_for("no executor", lambda: not pods(operator, one) or None, 60)


def no_pods(cluster: Cluster, namespace: str) -> bool | None:
    role = cluster.get("role", "far-driver", namespace)
    return (role is not None and "pods" not in str(role["rules"])) or None


def test_quota_that_admits_no_executor_is_told(operator: Cluster, one: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "2"}},
    }
    apply(operator, one, quota)
    verify(operator, one, SMALL)
    shown = end(operator, one)
    found = condition({"status": shown}, "Failed")
    assert found is not None
    assert (shown["verdict"], found["reason"]) == ("Inconclusive", "ExecutorsRefused")
    assert "exceeded quota: small" in found["message"]


@pytest.mark.long
def test_executors_without_a_node_are_told(operator: Cluster, one: str) -> None:
    huge = {"requests": {"cpu": "500"}, "limits": {"memory": "1Gi"}}
    verify(operator, one, huge, deadlineSeconds=100)
    shown = end(operator, one)
    found = condition({"status": shown}, "Failed")
    assert found is not None
    assert (shown["verdict"], found["reason"]) == ("Inconclusive", "ExecutorsPending")
    assert "Insufficient cpu" in found["message"]
