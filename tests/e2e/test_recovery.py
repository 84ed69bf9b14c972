"""A cluster comes back from its volumes after everything else in its namespace was deleted."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dev.kubectl import Cluster, condition, wait_for
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from tests.e2e.clients import bootstrap, cluster_names, consume, produce
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready
from tests.kafka_python import left_sockets

PASSWORD = "correct-horse-battery"
LOGIN = {"name": "login", "port": 9095, "authentication": ["ScramSha512"]}
KINDS = (
    *("logclusters", "topics", "users", "statefulsets", "pods", "services", "configmaps"),
    *("secrets", "leases", "metadatabatches", "metadatasnapshots", "poddisruptionbudgets"),
    *("logbrokers", "networkpolicies", "rebalances", "serviceaccounts"),
)
"""All that a cluster has in its namespace but its volumes."""
BACK_S = 240


def the_yaml() -> list[dict[str, Any]]:
    listeners = [{"name": "internal", "port": 9092}, LOGIN]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "app-password"},
        "data": {"password": base64.b64encode(PASSWORD.encode()).decode()},
    }
    user = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": "app"},
        "spec": {
            "clusterRef": {"name": "main"},
            "authentication": {"scram": {"passwordSecret": {"name": "app-password"}}},
            "acls": [
                {
                    "resource": {"type": "Topic", "name": "*"},
                    "operations": ["Read", "Write", "Describe"],
                }
            ],
        },
    }
    topic = a_topic(partitions=3, replicationFactor=3, minInSyncReplicas=2)
    return [secret, a_log_cluster(listeners=listeners), topic, user]


class Writer:
    """Writes one record after the other until stopped. `acknowledged`: those that were."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._stopping = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        with left_sockets(), cluster_names(self._cluster, self._namespace):
            producer = KafkaProducer(
                bootstrap_servers=bootstrap(self._cluster, self._namespace),
                acks="all",
                retries=0,
                request_timeout_ms=5_000,
                delivery_timeout_ms=8_000,  # what was not acknowledged by then fails: it can close
                max_block_ms=5_000,
            )
            number = 0
            while not self._stopping.is_set():
                value, number = f"during-{number}", number + 1
                try:
                    future = producer.send("orders", json.dumps(value).encode())
                    future.get(timeout=20)
                except KafkaError:
                    continue
                self.acknowledged.append(value)
            producer.close(timeout=60)

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()


def delete_all_but_volumes(cluster: Cluster, namespace: str) -> None:
    """The LogCluster goes first: the operator would restore the rest."""
    for kind in KINDS:
        cluster.kubectl(
            "delete", kind, "--all", "-n", namespace, "--wait=true", "--timeout=90s", timeout_s=120
        )


def committed_of_group(cluster: Cluster, namespace: str) -> int | None:
    with left_sockets(), cluster_names(cluster, namespace):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap(cluster, namespace),
            group_id="readers",
            enable_auto_commit=False,
        )
        found: int | None = consumer.committed(TopicPartition("orders", 0))
        consumer.close()
    return found


def commit_of_group(cluster: Cluster, namespace: str) -> None:
    with left_sockets(), cluster_names(cluster, namespace):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap(cluster, namespace),
            group_id="readers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        consumer.assign([TopicPartition("orders", 0)])
        while not consumer.poll(timeout_ms=500):
            pass
        consumer.commit()
        consumer.close()


def write_as_user(cluster: Cluster, namespace: str, value: str) -> None:
    servers = bootstrap(cluster, namespace).replace(":9092", f":{LOGIN['port']}")
    with left_sockets(), cluster_names(cluster, namespace):
        producer = KafkaProducer(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="app",
            sasl_plain_password=PASSWORD,
        )
        producer.send("orders", json.dumps(value).encode()).get(timeout=60)
        producer.close(timeout=10)


def all_ready(cluster: Cluster, namespace: str) -> Any:
    found = ready(cluster, namespace, "logcluster", "main", BACK_S)
    ready(cluster, namespace, "topic", "orders")
    ready(cluster, namespace, "user", "app")
    return found


def test_cluster_returns_from_its_volumes(operator: Cluster, namespace: str) -> None:
    apply(operator, namespace, *the_yaml())
    before = all_ready(operator, namespace)
    identity, topic = before["status"]["clusterId"], operator.get("topic", "orders", namespace)
    assert topic is not None
    produce(operator, namespace, "orders", [f"before-{number}" for number in range(100)])
    commit_of_group(operator, namespace)
    kept = committed_of_group(operator, namespace)
    write_as_user(operator, namespace, "as the user")

    def labelled() -> bool | None:
        claims = operator.items("persistentvolumeclaims", namespace)
        whole = [c["metadata"]["labels"].get("internal.plimsoll.dev/cluster-id") for c in claims]
        return (len(whole) == 3 and all(whole)) or None

    wait_for("the volumes to state whose they are", labelled, 60)
    writer = Writer(operator, namespace)
    with writer.writing():
        wait_for("some records", lambda: len(writer.acknowledged) > 20 or None, 60)
        delete_all_but_volumes(operator, namespace)
    assert len(operator.items("persistentvolumeclaims", namespace)) == 3

    apply(operator, namespace, *the_yaml())
    after = all_ready(operator, namespace)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["clusterId"] == identity
    again = operator.get("topic", "orders", namespace)
    assert again is not None
    assert again["status"]["topicId"] == topic["status"]["topicId"]
    wanted = {f"before-{number}" for number in range(100)} | {"as the user", *writer.acknowledged}
    assert wanted <= set(consume(operator, namespace, "orders", 3))
    assert committed_of_group(operator, namespace) == kept
    write_as_user(operator, namespace, "as the user again")
    stalled = condition(operator.get("logcluster", "main", namespace), "Stalled")
    assert stalled is not None
    assert stalled["status"] == "False"
