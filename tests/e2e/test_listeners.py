"""Listeners of a running cluster on Kubernetes: opened, renewed and closed without a restart."""

import base64
import json
import socket
import ssl
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from dev.kubectl import RESTRICTED, Cluster, is_true, wait_for
from kafka import KafkaConsumer, KafkaProducer
from tests.e2e.clients import cluster_names, left_sockets

PLAIN = {"name": "internal", "port": 9092}
TLS = {"name": "tls", "port": 9094, "tls": {}}
BOOTSTRAP = "main-bootstrap"
OPEN_S = 240
"""A kubelet shows a Secret that is new, or was changed, a minute or two later."""


class Secured:
    """A LogCluster `main` and a Topic `t` in a namespace of their own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def kubectl(self, *arguments: str, **more: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, **more)

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def listen(self, *listeners: dict[str, Any]) -> None:
        spec: dict[str, Any] = {"brokers": {"count": 3}, "storage": {"size": "1Gi"}}
        if listeners:
            spec["listeners"] = list(listeners)
        self.apply("LogCluster", "main", spec)

    def object(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def opened(self, name: str) -> int:
        """On how many brokers a listener is open, by the status."""
        status = self.object("logcluster", "main").get("status", {})
        shown = {one["name"]: one for one in status.get("listeners") or ()}
        return int(shown[name]["brokers"]) if name in shown else -1

    def wait_open(self, name: str) -> None:
        wait_for(f"listener {name}", lambda: self.opened(name) == 3 or None, OPEN_S)

    @property
    def authorities(self) -> str:
        found: str = self.object("configmap", "main-listener-ca")["data"]["ca.crt"]
        return found

    def pods(self) -> dict[str, tuple[str, int]]:
        """Uid and restarts of every broker's pod."""
        selector = "plimsoll.dev/cluster=main,app.kubernetes.io/component=broker"
        found = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                pod["status"]["containerStatuses"][0]["restartCount"],
            )
            for pod in found["items"]
        }

    def shown(self, broker: int) -> bytes:
        """The certificate that a broker shows who asks for it by its name, as DER."""
        name = f"main-broker-{broker}-0.main-brokers.{self.namespace}.svc"
        context = ssl.create_default_context(cadata=self.authorities)
        with (
            cluster_names(self.cluster, self.namespace),
            socket.create_connection((name, TLS["port"]), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=name) as tls,
        ):
            found = tls.getpeercert(binary_form=True)
        assert found is not None
        return found

    def write_and_read(self, values: set[bytes], port: int, **config: Any) -> None:
        servers = f"{BOOTSTRAP}.{self.namespace}.svc:{port}"
        with left_sockets(), cluster_names(self.cluster, self.namespace):
            producer = KafkaProducer(bootstrap_servers=servers, acks="all", **config)
            for future in [producer.send("t", value) for value in values]:
                future.get(timeout=60)
            producer.close()
            consumer = KafkaConsumer(
                "t",
                bootstrap_servers=servers,
                auto_offset_reset="earliest",
                consumer_timeout_ms=30_000,
                **config,
            )
            read = set()
            for message in consumer:
                read.add(message.value)
                if values <= read:
                    break
            consumer.close()
        assert values <= read


@pytest.fixture(scope="module")
def secured(operator: Cluster) -> Iterator[Secured]:
    namespace = f"tls-{uuid.uuid4().hex[:6]}"
    operator.make_namespace(namespace, RESTRICTED)
    made = Secured(operator, namespace)
    made.listen()
    made.apply(
        "Topic",
        "t",
        {
            "clusterRef": {"name": "main"},
            "partitions": 3,
            "replicationFactor": 3,
            "minInSyncReplicas": 2,
        },
    )
    for kind, name in (("logcluster", "main"), ("topic", "t")):
        wait_for(
            f"{kind}/{name} to be Ready",
            lambda kind=kind, name=name: is_true(made.object(kind, name), "Ready") or None,
            180,
        )
    yield made
    operator.delete_namespace(namespace)


def test_listener_with_tls_is_opened_without_a_restart(secured: Secured) -> None:
    before = secured.pods()
    assert len(before) == 3
    secured.write_and_read({b"before"}, 9092)
    secured.listen(PLAIN, TLS)
    secured.wait_open("tls")
    context = ssl.create_default_context(cadata=secured.authorities)
    tls = {"security_protocol": "SSL", "ssl_context": context}
    secured.write_and_read({b"tls %d" % number for number in range(100)}, TLS["port"], **tls)
    secured.write_and_read({b"plain"}, 9092)
    assert secured.pods() == before
    ports = {one["port"] for one in secured.object("service", BOOTSTRAP)["spec"]["ports"]}
    assert ports == {9092, 9094}
    rules = secured.object("networkpolicy", "main-broker")["spec"]["ingress"]
    assert {9092, 9094} <= {one["port"] for one in rules[0]["ports"]}


def test_renewed_certificate_is_shown_without_a_restart(secured: Secured) -> None:
    before, pods = secured.shown(0), secured.pods()
    spoilt = {"data": {"tls.crt": base64.b64encode(b"spoilt").decode()}}
    secured.kubectl(
        "patch", "secret", "main-broker-0-tls", "--type", "merge", "-p", json.dumps(spoilt)
    )
    secured.kubectl("annotate", "logcluster", "main", "example.test/looked-at=1", "--overwrite")
    wait_for("another certificate", lambda: secured.shown(0) != before or None, OPEN_S)
    assert secured.pods() == pods


def test_listener_is_closed_and_the_others_serve_on(secured: Secured) -> None:
    pods = secured.pods()
    secured.listen(TLS)
    wait_for("the status without it", lambda: secured.opened("internal") == -1 or None, 60)
    context = ssl.create_default_context(cadata=secured.authorities)
    tls = {"security_protocol": "SSL", "ssl_context": context}
    secured.write_and_read({b"after"}, TLS["port"], **tls)
    ports = {one["port"] for one in secured.object("service", BOOTSTRAP)["spec"]["ports"]}
    assert ports == {9094}
    assert secured.pods() == pods


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_operator_may_not_list_or_watch_secrets(secured: Secured, verb: str) -> None:
    account = "system:serviceaccount:plimsoll-system:plimsoll"
    command = ("auth", "can-i", verb, "secrets", f"--as={account}", "-n", secured.namespace)
    done = secured.cluster.run("sh", "-c", f"kubectl {' '.join(command)} || true")
    assert done.strip() == "no"


def test_keys_of_the_authority_are_not_beside_the_cluster(secured: Secured) -> None:
    names = secured.kubectl("get", "secrets", "-o", "name").split()
    assert not [name for name in names if name.endswith("listener-ca")]
    in_system = secured.cluster.kubectl("-n", "plimsoll-system", "get", "secrets", "-o", "name")
    assert [name for name in in_system.split() if name.endswith("listener-ca")]
