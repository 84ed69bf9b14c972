"""The operator on a real Kubernetes: from `kubectl apply` to status, and what deletions leave."""

import json
import subprocess
from typing import Any

import pytest
from dev.kubectl import Cluster, CommandFailed, condition, is_true, wait_for
from tests.e2e.clients import consume, produce

BLOCKED_3 = (
    *("0,1,2", "0,2,1", "0,1,2", "0,2,1", "0,1,2"),
    *("1,2,0", "1,0,2", "1,2,0", "1,0,2", "1,2,0"),
    *("2,0,1", "2,1,0", "2,0,1", "2,1,0", "2,0,1"),
)
"""15 partitions on 3 brokers by the protocol's Blocked layout."""


def a_log_cluster(**spec: Any) -> dict[str, Any]:
    requests = {"cpu": "10m", "memory": "96Mi"}
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "LogCluster",
        "metadata": {"name": "main"},
        "spec": {
            "brokers": {"count": 3, "resources": {"requests": requests}},
            "storage": {"size": "1Gi"},
            **spec,
        },
    }


def a_topic(name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }


ORDERS = a_topic(
    partitions=15, replicationFactor=3, minInSyncReplicas=2, placement={"strategy": "Blocked"}
)


def apply(cluster: Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    for one in objects:
        cluster.apply(one, namespace)


def ready(cluster: Cluster, namespace: str, kind: str, name: str, timeout_s: float = 120) -> Any:
    def probe() -> Any:
        found = cluster.get(kind, name, namespace)
        return found if is_true(found, "Ready") else None

    return wait_for(f"{kind}/{name} to be Ready", probe, timeout_s)


def reason(cluster: Cluster, namespace: str, name: str, wanted: str) -> dict[str, Any]:
    """The Ready condition of a Topic, once it is False for the reason wanted."""

    def probe() -> dict[str, Any] | None:
        found = condition(cluster.get("topic", name, namespace), "Ready")
        good = found and (found["status"], found["reason"]) == ("False", wanted)
        return found if good else None

    return wait_for(f"topic/{name} to say {wanted}", probe, 60)


@pytest.fixture
def serving(operator: Cluster, namespace: str) -> str:
    """A namespace with a serving cluster of three and the topic `orders`."""
    apply(operator, namespace, a_log_cluster(), ORDERS)
    ready(operator, namespace, "logcluster", "main")
    ready(operator, namespace, "topic", "orders")
    return namespace


def test_topic_is_placed_blocked_and_objects_unchanged(operator: Cluster, namespace: str):
    operator.kubectl_apply(namespace, a_log_cluster(), ORDERS)
    before = {kind: operator.get(kind, name, namespace) for kind, name in NAMES}
    topic = ready(operator, namespace, "topic", "orders")
    assert tuple(topic["status"]["assignment"]) == BLOCKED_3
    ready(operator, namespace, "logcluster", "main")
    for kind, name in NAMES:
        after = operator.get(kind, name, namespace)
        assert as_applied(after) == as_applied(before[kind])
        assert "finalizers" not in after["metadata"]
    for broker in range(3):
        ready(operator, namespace, "logbroker", f"main-{broker}")
        shown = on_a_node(operator, namespace, f"main-{broker}")
        assert "finalizers" not in shown["metadata"]
        assert shown["status"]["state"] == "Active"
    with pytest.raises(CommandFailed, match="spec is immutable"):
        operator.kubectl(
            *("patch", "logbroker", "main-0", "-n", namespace, "--type", "merge"),
            *("-p", '{"spec": {"brokerId": 7}}'),
        )


NAMES = (("logcluster", "main"), ("topic", "orders"))


def on_a_node(operator: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """A LogBroker once it names its node: figures come later than its state."""

    def named() -> dict[str, Any] | None:
        found = operator.get("logbroker", name, namespace)
        return found if found and found["status"].get("node") else None

    return wait_for(f"the node of {name}", named, 60)


def as_applied(found: dict[str, Any] | None) -> str:
    """Metadata and spec, without what the API server itself counts."""
    assert found is not None
    meta = {
        key: value
        for key, value in found["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    return json.dumps({"metadata": meta, "spec": found["spec"]}, sort_keys=True)


REFUSED_AT_APPLY = {
    "fewer partitions": ({**ORDERS, "spec": {**ORDERS["spec"], "partitions": 14}}, "never decr"),
    "partitions removed": (
        {**ORDERS, "spec": {k: v for k, v in ORDERS["spec"].items() if k != "partitions"}},
        "partitions never decreases",
    ),
    "another cluster": (
        {**ORDERS, "spec": {**ORDERS["spec"], "clusterRef": {"name": "other"}}},
        "clusterRef is immutable",
    ),
    "min ISR above the factor": (
        {**ORDERS, "spec": {**ORDERS["spec"], "replicationFactor": 1}},
        "minInSyncReplicas is more than replicationFactor",
    ),
    "defaults with min ISR above the factor": (
        a_log_cluster(topics={"defaults": {"replicationFactor": 2, "minInSyncReplicas": 3}}),
        "topics.defaults.minInSyncReplicas is more than",
    ),
    "a list among configs": (
        a_topic(partitions=15, config={"retention.ms": [1]}),
        "must have at most 0 items",
    ),
    "a map among the brokers' configs": (
        a_log_cluster(config={"log.retention.hours": {"a": 1}}),
        "must have at most 0 ",
    ),
    "no brokers": (a_log_cluster(brokers={"count": 0}), "greater than or equal to 1"),
    "smaller volumes": (a_log_cluster(storage={"size": "512Mi"}), "never shrinks"),
    "another class": (
        a_log_cluster(storage={"size": "1Gi", "storageClassName": "x"}),
        "storageClassName is immutable",
    ),
    "a Verification whose Job's name would be no label": (
        {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "Verification",
            "metadata": {"name": "v" * 57},
            "spec": {
                "clusterRef": {"name": "main"},
                "topic": "orders",
                "produce": {"records": 1},
            },
        },
        "at most 56 characters",
    ),
}

REFUSED_IN_STATUS = {
    "too-many-replicas": (a_topic("a", replicationFactor=4), "NotEnoughBrokers"),
    "unknown-cluster": (a_topic("b", clusterRef={"name": "nobody"}), "ClusterNotFound"),
    "taken-name": (a_topic("c", topicName="orders"), "TopicNameTaken"),
    "unknown-config": (a_topic("d", config={"no.such.key": 1}), "InvalidConfig"),
    "ill-typed-config": (a_topic("e", config={"retention.ms": "soon"}), "InvalidConfig"),
    "fraction-config": (a_topic("i", config={"retention.ms": 1.5}), "InvalidConfig"),
    "min-isr-config": (a_topic("f", config={"min.insync.replicas": 2}), "InvalidConfig"),
    "unknown-broker": (
        a_topic(
            "g",
            placement={
                "strategy": "Explicit",
                "assignment": [{"partition": 0, "replicas": [0, 9]}],
            },
        ),
        "PlacementInvalid",
    ),
    "broker-twice": (
        a_topic(
            "h",
            placement={
                "strategy": "Explicit",
                "assignment": [{"partition": 0, "replicas": [0, 0]}],
            },
        ),
        "PlacementInvalid",
    ),
}


def test_bad_input_gets_a_sentence_and_disturbs_nothing(operator: Cluster, serving: str):
    # kubectl takes out of an object what it put there itself.
    operator.kubectl_apply(serving, a_log_cluster(), ORDERS)
    for wrong, sentence in REFUSED_AT_APPLY.values():
        with pytest.raises(CommandFailed, match=sentence):
            operator.kubectl_apply(serving, wrong)
    apply(operator, serving, *(wrong for wrong, _ in REFUSED_IN_STATUS.values()))
    for wrong, wanted in REFUSED_IN_STATUS.values():
        found = reason(operator, serving, wrong["metadata"]["name"], wanted)
        assert found["message"].endswith((".", "it."))
    ready(operator, serving, "topic", "orders", 10)


def test_topic_of_disallowed_namespace_is_reported(operator: Cluster, serving: str):
    other = f"{serving}-shop"
    operator.make_namespace(other)
    try:
        topic = a_topic("b", clusterRef={"name": "main", "namespace": serving})
        apply(operator, other, topic)
        reason(operator, other, "b", "NotAllowed")
        selector = {"matchLabels": {"shop": "yes"}}
        allowed = {"allowedNamespaces": {"from": "Selector", "selector": selector}}
        apply(operator, serving, a_log_cluster(topics=allowed))
        operator.kubectl("label", "namespace", other, "shop=yes")
        ready(operator, other, "topic", "b", 90)
    finally:
        operator.delete_namespace(other)


def values(count: int) -> list[str]:
    return sorted(f"record-{index:04d}" for index in range(count))


def test_deleted_topic_returns_with_id_and_records(operator: Cluster, serving: str):
    produce(operator, serving, "orders", values(300))
    before = operator.get("topic", "orders", serving)
    done = subprocess.run(
        ["kubectl", "delete", "topic", "orders", "-n", serving],
        env=operator.environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "Warning: " in done.stderr
    assert "topic orders serves on for the grace period of LogCluster main" in done.stderr

    def pending() -> Any:
        status = (operator.get("logcluster", "main", serving) or {})["status"]
        return status["topics"].get("pendingDeletion") or None

    assert wait_for("the deletion to be pending", pending, 60)[0]["name"] == "orders"
    apply(operator, serving, ORDERS)
    after = ready(operator, serving, "topic", "orders")
    assert before is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["topicId"] == before["status"]["topicId"]
    assert consume(operator, serving, "orders", 15) == values(300)


def test_deleted_cluster_is_adopted_with_its_volumes(operator: Cluster, serving: str):
    produce(operator, serving, "orders", values(300))
    before = operator.get("logcluster", "main", serving)
    assert before is not None
    identity = before["status"]["clusterId"]
    operator.kubectl("delete", "logcluster", "main", "-n", serving)
    wait_for("the pods to go", lambda: no_brokers(operator, serving), 90)
    apply(operator, serving, a_log_cluster())
    again = ready(operator, serving, "logcluster", "main")
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    assert again["status"]["clusterId"] == identity
    ready(operator, serving, "topic", "orders")
    assert consume(operator, serving, "orders", 15) == values(300)


def no_brokers(cluster: Cluster, namespace: str) -> bool | None:
    return cluster.items("pods", namespace, "plimsoll.dev/cluster=main") == [] or None
