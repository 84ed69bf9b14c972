"""Disasters of docs/recovery.md, under a writer whose acknowledged records are compared afterwards.

Each flow prints how long its disasters lasted.
"""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dev.kubectl import ROOT, Cluster, condition, is_true, wait_for
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from tests.e2e.clients import bootstrap, cluster_names, consume, produce
from tests.e2e.release import SYSTEM
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready
from tests.e2e.test_outages import scale
from tests.e2e.test_racks import labelled, node_of
from tests.kafka_python import left_sockets

from plimsoll_operator.api.labels import AUTHORITY_OF

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
    """Writes one record after the other until stopped. `acknowledged`: those that were.
    `pauses_s`: how long each of them came after the one before, in seconds."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._stopping = threading.Event()
        self.acknowledged: list[str] = []
        self.pauses_s: list[float] = []

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
            number, last_s = 0, time.monotonic()
            while not self._stopping.is_set():
                value, number = f"during-{number}", number + 1
                try:
                    future = producer.send("orders", json.dumps(value).encode())
                    future.get(timeout=20)
                except KafkaError:
                    continue
                now_s = time.monotonic()
                self.pauses_s.append(now_s - last_s)
                self.acknowledged.append(value)
                last_s = now_s
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

    with timed("the objects of a cluster deleted"):
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


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s")


def records_go_on(writer: Writer) -> None:
    """Wait until the writer's records are acknowledged again."""
    before = len(writer.acknowledged)
    wait_for("records to be acknowledged", lambda: len(writer.acknowledged) > before + 5, BACK_S)


# --- volumes, authorities, the operator, the kinds ------------------------------------------------


def lose_volume(cluster: Cluster, namespace: str, broker: int) -> None:
    """The node is gone with its disk: pod and claim are deleted, as its administrator does."""
    claim, pod = f"data-main-broker-{broker}-0", f"main-broker-{broker}-0"
    before = cluster.get("persistentvolumeclaim", claim, namespace)
    assert before is not None
    cluster.kubectl("delete", "persistentvolumeclaim", claim, "-n", namespace, "--wait=false")
    cluster.kubectl("delete", "pod", pod, "-n", namespace, "--grace-period=0", "--force")

    def anew() -> bool | None:
        found = cluster.get("persistentvolumeclaim", claim, namespace)
        return (found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]) or None

    wait_for(f"broker {broker} to have a new volume", anew, 120)
    wait_for(
        f"broker {broker} to serve",
        lambda: is_true(cluster.get("pod", pod, namespace), "Ready") or None,
        BACK_S,
    )
    wait_in_sync(cluster, namespace)


def wait_in_sync(cluster: Cluster, namespace: str) -> None:
    def full() -> bool | None:
        found = cluster.get("topic", "orders", namespace)
        health = ((found or {}).get("status") or {}).get("health") or {}
        return health.get("fullISR") == 3 or None

    wait_for("every replica to be in sync", full, BACK_S)


def lose_authorities(cluster: Cluster, namespace: str) -> None:
    """All Secrets that the operator made: the authorities, and the certificates they signed."""
    owner = f"{namespace}/main"

    def authorities() -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in cluster.items("secrets", SYSTEM)
            if (one["metadata"].get("annotations") or {}).get(AUTHORITY_OF) == owner
        }

    before = authorities()
    assert before
    cluster.kubectl("delete", "secret", *before, "-n", SYSTEM)
    brokers = [f"main-broker-{broker}-tls" for broker in range(3)]
    cluster.kubectl("delete", "secret", *brokers, "-n", namespace)

    def anew() -> bool | None:
        after = authorities()
        return (
            set(after) >= set(before) and not set(after.values()) & set(before.values())
        ) or None

    wait_for("new authorities", anew, BACK_S)
    for name in brokers:
        what = f"Secret {name}"
        wait_for(what, lambda name=name: cluster.get("secret", name, namespace), BACK_S)
    wait_in_sync(cluster, namespace)


def lose_kinds(cluster: Cluster, namespace: str) -> None:
    """Every CRD, and so every object and the metadata log; then the chart's, and the same YAML."""
    kinds = cluster.kubectl("get", "crd", "-o", "name").split()
    ours = [one for one in kinds if one.endswith(".plimsoll.dev")]
    cluster.kubectl("delete", *ours, "--wait=true", "--timeout=90s", timeout_s=120)
    cluster.run(
        "helm", "upgrade", "plimsoll", str(ROOT / "helm" / "plimsoll"), "--namespace", SYSTEM,
        "--reuse-values", "--wait", "--timeout", "180s", timeout_s=240,
    )  # fmt: skip
    apply(cluster, namespace, *the_yaml())
    all_ready(cluster, namespace)


@pytest.mark.timeout(480)
def test_one_writer_survives_losses_one_after_another(operator: Cluster, namespace: str) -> None:
    apply(operator, namespace, *the_yaml())
    identity = all_ready(operator, namespace)["status"]["clusterId"]
    writer = Writer(operator, namespace)
    with writer.writing():
        records_go_on(writer)
        with timed("all volumes of a broker lost"):
            lose_volume(operator, namespace, 2)
        with timed("authorities lost"):
            lose_authorities(operator, namespace)
        records_go_on(writer)
        with timed("operator away"):
            scale(operator, 0)
            records_go_on(writer)
            scale(operator, 2)
        with timed("CRDs deleted"):
            lose_kinds(operator, namespace)
        records_go_on(writer)
    found = operator.get("logcluster", "main", namespace)
    assert found is not None
    assert found["status"]["clusterId"] == identity
    assert is_true(found, "MetadataRestored")
    assert set(writer.acknowledged) <= set(consume(operator, namespace, "orders", 3))
    write_as_user(operator, namespace, "as the user")


# --- a zone ---------------------------------------------------------------------------------------


def name_zones(cluster: Cluster, namespace: str, key: str, brokers: dict[str, list[int]]) -> None:
    """Let each broker register from a node of its zone: there is one node, so its label changes
    between the brokers' starts."""
    node = node_of(cluster, namespace, 0)
    for zone, ids in brokers.items():
        cluster.kubectl("label", "node", node, f"{key}={zone}", "--overwrite")
        for broker in ids:
            cluster.kubectl("delete", "pod", f"main-broker-{broker}-0", "-n", namespace)

        def told(zone: str = zone, ids: list[int] = ids) -> bool | None:
            shown = [cluster.get("logbroker", f"main-{broker}", namespace) for broker in ids]
            racks = [((one or {}).get("status") or {}).get("rack") for one in shown]
            return racks == [zone] * len(ids) or None

        wait_for(f"brokers {ids} to be in zone {zone}", told, BACK_S)


@contextmanager
def lost_zone(cluster: Cluster, namespace: str, brokers: list[int]) -> Iterator[None]:
    """Within: these brokers are gone, and no node of their zone takes them."""
    node = node_of(cluster, namespace, 0)
    cluster.kubectl("cordon", node)
    try:
        for broker in brokers:
            pod = f"main-broker-{broker}-0"
            cluster.kubectl("delete", "pod", pod, "-n", namespace, "--grace-period=0", "--force")
        yield
    finally:
        cluster.kubectl("uncordon", node)


def wait_out_of_sync(cluster: Cluster, namespace: str) -> None:
    def short() -> bool | None:
        found = cluster.get("topic", "orders", namespace)
        health = ((found or {}).get("status") or {}).get("health") or {}
        return health.get("fullISR") == 0 or None

    wait_for("no partition to have every replica in sync", short, BACK_S)


@pytest.mark.timeout(600)
def test_lost_zone_stops_no_partition(operator: Cluster, namespace: str) -> None:
    key = f"zones.test/{namespace}"
    zones = {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    requests = {"cpu": "10m", "memory": "96Mi"}
    six = {"count": 6, "resources": {"requests": requests}}
    apply(operator, namespace, a_log_cluster(brokers=six, racks={"topologyKey": key}))
    ready(operator, namespace, "logcluster", "main", BACK_S)
    writer = Writer(operator, namespace)
    with labelled(operator, node_of(operator, namespace, 0), key, "none"):
        name_zones(operator, namespace, key, zones)
        ready(operator, namespace, "logcluster", "main", BACK_S)
        apply(operator, namespace, a_topic(partitions=3, replicationFactor=3, minInSyncReplicas=2))
        ready(operator, namespace, "topic", "orders")
        with writer.writing():
            records_go_on(writer)
            until_then = len(writer.pauses_s)
            with lost_zone(operator, namespace, zones["c"]):
                wait_out_of_sync(operator, namespace)
                records_go_on(writer)
            print(f"a zone lost: no record for {max(writer.pauses_s[until_then:]):.1f} s")
            with timed("the zone back, to the last replica in sync"):
                wait_in_sync(operator, namespace)
            with timed("a zone lost for good, to its last broker replaced"):
                for broker in zones["c"]:
                    lose_volume(operator, namespace, broker)
            records_go_on(writer)
    assert set(writer.acknowledged) <= set(consume(operator, namespace, "orders", 3))
