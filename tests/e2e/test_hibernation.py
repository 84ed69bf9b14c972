"""A LogCluster hibernates on a real Kubernetes: its brokers stop, and return with every record."""

from typing import Any

import pytest
from dev.kubectl import Cluster, condition, is_true, wait_for
from tests.e2e.clients import consume, produce
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready, values

PATIENT_S = 300


def claims(operator: Cluster, namespace: str) -> dict[str, str]:
    """The uids of the brokers' volume claims."""
    names = [f"data-main-broker-{broker}-0" for broker in range(3)]
    found = {name: operator.get("pvc", name, namespace) for name in names}
    return {name: one["metadata"]["uid"] for name, one in found.items() if one is not None}


def pods(operator: Cluster, namespace: str) -> list[str]:
    names = [f"main-broker-{broker}-0" for broker in range(3)]
    return [name for name in names if operator.get("pod", name, namespace) is not None]


@pytest.mark.timeout(900)
def test_hibernation_keeps_volumes_and_every_record(operator: Cluster, namespace: str):
    cluster = a_log_cluster()
    orders = a_topic(partitions=4, replicationFactor=3, minInSyncReplicas=2)
    apply(operator, namespace, cluster, orders)
    ready(operator, namespace, "topic", "orders", PATIENT_S)
    produce(operator, namespace, "orders", values(300))
    before = claims(operator, namespace)
    assert len(before) == 3
    apply(operator, namespace, a_log_cluster(hibernated=True))

    def asleep() -> dict[str, Any] | None:
        found = operator.get("logcluster", "main", namespace)
        return found if is_true(found, "Hibernated") else None

    slept = wait_for("the cluster to hibernate", asleep, PATIENT_S)
    wait_for("the pods to go", lambda: not pods(operator, namespace) or None, PATIENT_S)
    told = condition(slept, "Ready")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "Hibernated")
    assert claims(operator, namespace) == before
    apply(operator, namespace, a_log_cluster(hibernated=False))

    def awake() -> dict[str, Any] | None:
        found = operator.get("logcluster", "main", namespace)
        good = is_true(found, "Ready") and condition(found, "Hibernated") is None
        return found if good else None

    wait_for("the cluster to wake", awake, PATIENT_S)
    assert claims(operator, namespace) == before
    ready(operator, namespace, "topic", "orders", PATIENT_S)
    assert consume(operator, namespace, "orders", 4) == values(300)
    produce(operator, namespace, "orders", values(1))
