"""Certificates inside on Kubernetes: a new cluster is closed, led on, opened, and closed again.

One cluster lives through all of it, test by test, in this order.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dev.kubectl import Cluster, condition, is_true, wait_for
from kafka import KafkaProducer
from tests.e2e.clients import bootstrap, cluster_names, left_sockets, write_round
from tests.e2e.drill import Drill, kill_operator

TOPIC = {"partitions": 3, "replicationFactor": 3, "minInSyncReplicas": 2}
REACHED_S = 240
"""A kubelet shows a Secret that was changed within a minute or two, where nobody hurries it."""
BROKERS = range(3)


@pytest.fixture(scope="module")
def drill(operator: Cluster) -> Iterator[Drill]:
    namespace = f"inside-{uuid.uuid4().hex[:6]}"
    operator.kubectl("create", "namespace", namespace)
    operator.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    made = Drill(operator, namespace)
    made.apply("LogCluster", "main", made.spec)
    made.apply("Topic", "orders", TOPIC)
    wait_ready(made, "orders")
    yield made
    operator.kubectl("delete", "namespace", namespace, "--wait=false")


def wait_ready(drill: Drill, topic: str) -> None:
    wait_for(
        f"{topic} to be Ready", lambda: is_true(drill.get("topic", topic), "Ready") or None, 180
    )


def files(drill: Drill, broker: int) -> dict[str, bytes]:
    """What the operator has put into the broker's Secret."""
    secret = drill.cluster.get("secret", f"main-broker-{broker}-tls", drill.namespace) or {}
    data = secret.get("data") or {}
    return {name: base64.b64decode(text) for name, text in data.items() if "-inside" in name}


def metric(drill: Drill, name: str) -> float:
    """The sum over all brokers and labels."""
    found = 0.0
    for broker in BROKERS:
        pod = f"/api/v1/namespaces/{drill.namespace}/pods/main-broker-{broker}-0"
        for line in drill.cluster.raw(f"{pod}:9100/proxy/metrics").splitlines():
            if line.startswith((f"plimsoll_broker_{name} ", f"plimsoll_broker_{name}{{")):
                found += float(line.rpartition(" ")[2])
    return found


def pods(drill: Drill) -> list[tuple[str, int]]:
    found = [drill.pod(broker) for broker in BROKERS]
    return [
        (p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"])
        for p in found
        if p
    ]


def hurry(drill: Drill) -> None:
    """Have the kubelet look at the pods' Secrets now."""
    drill.cluster.kubectl(
        "annotate", "pods", "-n", drill.namespace, "-l", "plimsoll.dev/cluster=main",
        f"example.test/looked-at={uuid.uuid4().hex}", "--overwrite",
    )  # fmt: skip


def go_to(drill: Drill, mode: str) -> None:
    """State it, and wait."""
    drill.spec["certificates"] = {"internal": {"mode": mode}}
    drill.apply("LogCluster", "main", drill.spec)
    wait_for_mode(drill, mode)


def wait_for_mode(drill: Drill, mode: str) -> None:
    """Until the operator has told every broker that it is committed."""
    wanted = b"" if mode == "Off" else mode.encode()

    def reached() -> bool | None:
        hurry(drill)
        shown = {files(drill, broker).get("broker-inside.mode", b"") for broker in BROKERS}
        return shown == {wanted} or None

    wait_for(f"mode {mode}", reached, REACHED_S, every_s=2)


@contextmanager
def written(drill: Drill) -> Iterator[None]:
    """Within: a producer writes to every partition, all replicas acknowledge, and none fails."""
    with left_sockets(), writing(drill):
        yield


@contextmanager
def writing(drill: Drill) -> Iterator[None]:
    over, failed, rounds = threading.Event(), list[BaseException](), threading.Semaphore(0)
    with cluster_names(drill.cluster, drill.namespace):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap(drill.cluster, drill.namespace), acks="all"
        )

        def write() -> None:
            try:
                while not over.wait(0.05):
                    write_round(producer, "orders", TOPIC["partitions"])
                    rounds.release()
            except Exception as error:  # noqa: BLE001 - told by the thread that waits
                failed.append(error)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        assert rounds.acquire(timeout=60)
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=90)
            producer.close(timeout=10)
    assert not failed, failed
    assert not thread.is_alive()


def test_new_cluster_is_closed_inside_though_nobody_says_so(drill: Drill) -> None:
    assert "certificates" not in drill.spec
    wait_for_mode(drill, "Required")
    wait_for(
        "its status",
        lambda: (
            drill.get("logcluster", "main")["status"].get("certificates")
            == {"internal": {"mode": "Required", "pinned": "Required"}}
            or None
        ),
        60,
    )
    assert metric(drill, "inside_plaintext_connections") == 0


def test_operator_takes_over_a_closed_cluster_whose_spec_is_refused(drill: Drill) -> None:
    """The new one shows brokers a certificate before it may reconcile anything."""
    shrinks, spec = metric(drill, "isr_shrinks_total"), dict(drill.spec)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = drill.get("logcluster", "main").get("status") or {}
        return found

    def refused() -> bool | None:
        found = condition(drill.get("logcluster", "main"), "Stalled")
        return (found is not None and found["reason"] == "InvalidConfig") or None

    drill.apply("LogCluster", "main", {**spec, "config": {"no.such": "1"}})
    wait_for("the config to be refused", refused, 60)
    term = status()["metadataLog"]["controllerEpoch"]
    with written(drill):
        kill_operator(drill)
        wait_for(
            "another term", lambda: status()["metadataLog"]["controllerEpoch"] > term or None, 90
        )
        wait_for("its refusal", refused, 60)
        drill.apply("Topic", "later", TOPIC)
        wait_ready(drill, "later")
    assert metric(drill, "isr_shrinks_total") == shrinks
    drill.apply("LogCluster", "main", spec)


def test_closed_cluster_is_opened_again_under_load_and_nobody_is_restarted(drill: Drill) -> None:
    before, shrinks = pods(drill), metric(drill, "isr_shrinks_total")
    with written(drill):
        go_to(drill, "Off")
    assert metric(drill, "isr_shrinks_total") == shrinks
    assert pods(drill) == before


def test_open_cluster_is_closed_under_load_and_nobody_is_restarted(drill: Drill) -> None:
    before, shrinks = pods(drill), metric(drill, "isr_shrinks_total")
    with written(drill):
        go_to(drill, "Required")
    assert metric(drill, "inside_plaintext_connections") == 0
    assert metric(drill, "isr_shrinks_total") == shrinks
    assert pods(drill) == before
