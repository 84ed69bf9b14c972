"""A LogCluster whose listeners tests open, close and look at, inside and outside."""

import json
import socket
import ssl
from typing import Any

from dev.kubectl import Cluster, CommandFailed, wait_for
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.e2e.clients import cluster_names
from tests.kafka_python import left_sockets

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
        self.cluster.apply(body, self.namespace)

    def listen(self, *listeners: dict[str, Any]) -> None:
        spec: dict[str, Any] = {"brokers": {"count": 3}, "storage": {"size": "1Gi"}}
        if listeners:
            spec["listeners"] = list(listeners)
        self.apply("LogCluster", "main", spec)

    def object(self, kind: str, name: str) -> dict[str, Any]:
        found = self.cluster.get(kind, name, self.namespace)
        if found is None:
            raise CommandFailed(f"{kind}/{name}: there is none in {self.namespace}")
        return found

    def opened(self, name: str) -> int:
        """On how many brokers a listener is open, by the status."""
        status = self.object("logcluster", "main").get("status", {})
        shown = {one["name"]: one for one in status.get("listeners") or ()}
        return int(shown[name]["brokers"]) if name in shown else -1

    def wait_open(self, name: str) -> None:
        wait_for(f"listener {name}", lambda: self.opened(name) == 3 or None, OPEN_S)

    def row(self, name: str) -> dict[str, Any]:
        """A listener as the status shows it."""
        shown = self.object("logcluster", "main")["status"].get("listeners") or ()
        return next((one for one in shown if one["name"] == name), {})

    def addresses(self, name: str) -> list[tuple[int, str, int]]:
        """Of brokers, for clients outside."""
        shown = self.row(name).get("addresses") or ()
        return [(one["id"], one["host"], one["port"]) for one in shown]

    def wait_addresses(self, name: str) -> list[tuple[int, str, int]]:
        """Of all three; and until each is registered."""
        wait_for(f"addresses of {name}", lambda: len(self.addresses(name)) == 3 or None, OPEN_S)
        self.wait_open(name)
        return self.addresses(name)

    def wait_bootstrap(self, name: str, servers: str) -> None:
        """Another object than those that brokers' addresses come from may tell where to begin."""

        def told() -> bool | None:
            return self.row(name)["bootstrapServers"] == servers or None

        wait_for(f"{servers} as bootstrap servers of {name}", told, OPEN_S)

    def condition(self, kind: str) -> dict[str, Any]:
        shown = self.object("logcluster", "main")["status"]["conditions"]
        return next(one for one in shown if one["type"] == kind)

    def set_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        """As another controller does, whose part the test plays."""
        patch = json.dumps({"status": status})
        self.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)

    @property
    def authorities(self) -> str:
        found: str = self.object("configmap", "main-listener-ca")["data"]["ca.crt"]
        return found

    def pods(self) -> dict[str, tuple[str, int]]:
        """Uid and restarts of every broker's pod."""
        selector = "plimsoll.dev/cluster=main,app.kubernetes.io/component=broker"
        found = self.cluster.items("pods", self.namespace, selector)
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                pod["status"]["containerStatuses"][0]["restartCount"],
            )
            for pod in found
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

    @left_sockets()
    def write_and_read(
        self, values: set[bytes], port: int = 0, servers: str = "", **config: Any
    ) -> None:
        """`servers`: where to begin; empty: inside, on the listener of that port."""
        servers = servers or f"{BOOTSTRAP}.{self.namespace}.svc:{port}"
        with cluster_names(self.cluster, self.namespace):
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


@left_sockets()
def told_brokers(server: str) -> set[tuple[int, str, int]]:
    """The brokers that a client is told of by whoever answers at an address."""
    client = KafkaAdminClient(bootstrap_servers=server)
    found = client.describe_cluster()["brokers"]
    client.close()
    return {(one["broker_id"], one["host"], one["port"]) for one in found}


def shown_names(host: str, port: int, name: str, authorities: str) -> set[str]:
    """What the certificate is for that is shown to who asks for `name`; empty: not for that."""
    context = ssl.create_default_context(cadata=authorities)
    try:
        with (
            socket.create_connection((host, port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=name) as tls,
        ):
            found = tls.getpeercert()
    except OSError:
        return set()
    return {str(value) for _, value in (found or {}).get("subjectAltName", ())}


def wait_shown(host: str, port: int, name: str, authorities: str) -> None:
    """Brokers open a port before their own certificate for its names has reached them all."""

    def shown() -> bool | None:
        return name in shown_names(host, port, name, authorities) or None

    wait_for(f"a certificate for {name}", shown, OPEN_S)
