"""Racks on a real Kubernetes: brokers hear theirs from the operator, clients hear it from them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dev.kubectl import Cluster, condition, wait_for
from kafka import KafkaAdminClient
from tests.e2e.clients import bootstrap, cluster_names, consume, produce
from tests.e2e.test_operator import ORDERS, a_log_cluster, apply, ready, values
from tests.kafka_python import left_sockets


@left_sockets()
def racks_told_to_clients(cluster: Cluster, namespace: str) -> dict[int, str | None]:
    """Each broker's rack, from DescribeCluster."""
    with cluster_names(cluster, namespace):
        admin = KafkaAdminClient(bootstrap_servers=bootstrap(cluster, namespace))
        found = admin.describe_cluster()["brokers"]
        admin.close()
    return {broker["broker_id"]: broker["rack"] for broker in found}


def node_of(cluster: Cluster, namespace: str, broker: int) -> str:
    pod = cluster.get("pod", f"main-broker-{broker}-0", namespace)
    assert pod is not None
    return str(pod["spec"]["nodeName"])


def test_brokers_are_in_their_nodes_racks(operator: Cluster, namespace: str):
    racks = {"topologyKey": "kubernetes.io/hostname"}
    apply(operator, namespace, a_log_cluster(racks=racks), ORDERS)
    ready(operator, namespace, "logcluster", "main")
    topic = ready(operator, namespace, "topic", "orders")
    nodes = {broker: node_of(operator, namespace, broker) for broker in range(3)}
    assert racks_told_to_clients(operator, namespace) == nodes
    assert all(len(row.split(",")) == 3 for row in topic["status"]["assignment"])
    produce(operator, namespace, "orders", values(60))
    assert consume(operator, namespace, "orders", 15) == values(60)


@contextmanager
def labelled(cluster: Cluster, node: str, key: str, value: str) -> Iterator[None]:
    cluster.kubectl("label", "node", node, f"{key}={value}")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", node, f"{key}-")


def test_missing_required_rack_is_reported(operator: Cluster, namespace: str):
    key = f"racks.test/{namespace}"
    racks = {"topologyKey": key, "policy": "Required"}
    apply(operator, namespace, a_log_cluster(racks=racks), ORDERS)

    def stalled() -> dict[str, Any] | None:
        found = condition(operator.get("logcluster", "main", namespace), "Stalled")
        return found if found and found["reason"] == "RackUnknown" else None

    message = wait_for("the status to name the label", stalled, 90)["message"]
    assert f"has no label {key}" in message
    with labelled(operator, node_of(operator, namespace, 0), key, "r1"):
        found = ready(operator, namespace, "logcluster", "main")
        assert (condition(found, "Stalled") or {})["status"] == "False"
        ready(operator, namespace, "topic", "orders")
        told = racks_told_to_clients(operator, namespace)
        assert told == {0: "r1", 1: "r1", 2: "r1"}
