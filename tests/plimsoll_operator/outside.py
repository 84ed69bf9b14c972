"""A LogCluster with listeners for clients outside; others' controllers are played by the test."""

from typing import Any

from tests.plimsoll_operator.test_listeners import Declared

from plimsoll_core.cluster.listeners import Listener
from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import NODES, PODS, SERVICES, Kind
from plimsoll_operator.reconcile.cluster.external_access import external_whys
from plimsoll_operator.reconcile.shared.pinned_choices import choices_of
from plimsoll_operator.status.cluster_conditions import cluster_conditions
from plimsoll_operator.status.cluster_counts import cluster_status

PLAIN = {"name": "internal", "port": 9092}
NODE_PORT = {"name": "ext", "port": 9095, "type": "NodePort"}
BALANCED = {"name": "ext", "port": 9095, "type": "LoadBalancer"}
SERVICE_NAMES = ["main-bootstrap-ext", "main-broker-0-ext", "main-broker-1-ext"]


class Outside(Declared):
    """With brokers' pods on nodes, and others' controllers played by the test."""

    def put_pod(self, broker_id: int, node: str | None) -> None:
        name = labels.broker_pod("main", broker_id)
        spec = {} if node is None else {"nodeName": node}
        self.scene.kube.put(PODS, {"metadata": {"name": name, "namespace": "kafka"}, "spec": spec})

    def put_node(self, name: str, **addresses: str) -> None:
        shown = [{"type": kind, "address": text} for kind, text in addresses.items()]
        self.scene.kube.put(NODES, {"metadata": {"name": name}, "status": {"addresses": shown}})

    def set(self, kind: Kind, name: str, **parts: Any) -> None:
        self.scene.kube.put(kind, {**self.scene.kube.find(kind, "kafka", name), **parts})

    def give_ports(self) -> None:
        """As the API server does for Services of type NodePort."""
        for number, name in enumerate(self.services):
            spec = self.service(name)["spec"]
            spec["ports"][0]["nodePort"] = 30_000 + number
            self.set(SERVICES, name, spec=spec)

    def balance(self, name: str, **entry: str) -> None:
        """As a load balancer's controller does."""
        self.set(SERVICES, name, status={"loadBalancer": {"ingress": [entry]}})

    def redeclare(self, *declared: dict[str, Any]) -> None:
        self.scene.declare(listeners=list(declared))
        choices_of(self.scene.term).context = None

    @property
    def services(self) -> list[str]:
        made = self.scene.made("services")
        return [one for one in made if one.endswith("-ext")]

    def service(self, name: str) -> dict[str, Any]:
        return self.scene.kube.find(SERVICES, "kafka", name)

    @property
    def committed(self) -> Listener:
        (found,) = (one for one in self.deciding.image.listeners if one.name == "ext")
        return found

    @property
    def addresses(self) -> dict[int, str]:
        assert self.committed.advertised is not None
        return {one.broker_id: f"{one.host}:{one.port}" for one in self.committed.advertised}

    @property
    def why(self) -> str:
        return external_whys(self.scene.term).get("ext", "")

    @property
    def ready(self) -> tuple[str, str]:
        image, cluster = self.deciding.image, self.scene.term.cluster
        assert cluster is not None
        whys = external_whys(self.scene.term)
        ready, _ = cluster_conditions(image, cluster_status(image, cluster), whys=whys)
        return ready.reason, ready.message


def on_nodes(*declared: dict[str, Any]) -> Outside:
    made = Outside(*declared)
    made.put_node("n0", InternalIP="10.0.0.10", ExternalIP="203.0.113.10", Hostname="n0")
    made.put_node("n1", InternalIP="10.0.0.11")
    for broker_id in (0, 1):
        made.put_pod(broker_id, f"n{broker_id}")
    return made
