"""Brokers get other disks on a real Kubernetes: a pool is added, the old brokers are drained."""

from collections.abc import Iterator
from typing import Any

import pytest
from dev.kubectl import Cluster, is_true, wait_for
from tests.e2e.clients import consume, produce
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready, values

PATIENT_S = 300
MARKER = "/made/marker"
"""A file that the pool's init container writes into a volume of the pool's template."""


@pytest.fixture
def fast(operator: Cluster, namespace: str) -> Iterator[str]:
    """A second StorageClass."""
    name = f"fast-{namespace}"
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "plimsoll.dev/local",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    operator.kubectl_apply("", body)
    yield name
    operator.kubectl("delete", "storageclass", name)


def pool_template(image: str) -> dict[str, Any]:
    mount = {"name": "made", "mountPath": "/made"}
    write = {
        "name": "first",
        "image": image,
        "command": ["python", "-c", f"open('{MARKER}', 'w').write('here')"],
        "volumeMounts": [mount],
    }
    spec = {
        "env": [{"name": "POOL_TEST", "value": "yes"}],
        "volumes": [{"name": "made", "emptyDir": {}}],
        "volumeMounts": [mount],
        "initContainers": [write],
        "terminationGracePeriodSeconds": 60,
    }
    return {"spec": spec, "volumeClaimMetadata": {"labels": {"disk": "fast"}}}


def pooled(template: dict[str, Any], storage_class: str) -> dict[str, Any]:
    cluster = a_log_cluster()
    del cluster["spec"]["brokers"]["count"]
    storage = {"size": "2Gi", "storageClassName": storage_class}
    fast = {"name": "fast", "firstId": 100, "brokers": 2}
    cluster["spec"]["pools"] = [
        {"name": "old", "firstId": 0, "brokers": 0},
        {**fast, "storage": storage, "template": template},
    ]
    return cluster


@pytest.mark.timeout(900)
def test_records_move_to_pool_with_other_disks(operator: Cluster, namespace: str, fast: str):
    requests = {"cpu": "10m", "memory": "96Mi"}
    small = a_log_cluster(brokers={"count": 2, "resources": {"requests": requests}})
    orders = a_topic(partitions=4, replicationFactor=2, minInSyncReplicas=1)
    apply(operator, namespace, small, orders)
    ready(operator, namespace, "topic", "orders", PATIENT_S)
    produce(operator, namespace, "orders", values(300))
    pod = operator.get("pod", "main-broker-0-0", namespace)
    assert pod is not None
    image = pod["spec"]["containers"][0]["image"]
    apply(operator, namespace, pooled(pool_template(image), fast))

    def replaced() -> dict[str, Any] | None:
        found = operator.get("logcluster", "main", namespace) or {}
        status = found.get("status") or {}
        rows = {row["name"]: (row["ready"], row["ids"]) for row in status.get("pools") or ()}
        moved = rows == {"old": (0, []), "fast": (2, [100, 101])}
        return status if moved and is_true(found, "Ready") else None

    wait_for("the old brokers to be replaced", replaced, PATIENT_S)
    wait_for(
        "their pods to go",
        lambda: operator.get("pod", "main-broker-0-0", namespace) is None or None,
        PATIENT_S,
    )
    claim = operator.get("pvc", "data-main-broker-100-0", namespace)
    assert claim is not None
    assert claim["spec"]["storageClassName"] == fast
    assert (claim["metadata"]["labels"]["disk"], claim["status"]["phase"]) == ("fast", "Bound")
    shown = operator.get("logbroker", "main-100", namespace)
    assert shown is not None
    assert shown["status"]["pool"] == "fast"
    read = f"import os; print(os.environ['POOL_TEST'], open('{MARKER}').read())"
    said = operator.kubectl(
        "exec", "main-broker-100-0", "-n", namespace, "-c", "broker", "--", "python", "-c", read
    )
    assert said.split() == ["yes", "here"]
    assert consume(operator, namespace, "orders", 4) == values(300)
