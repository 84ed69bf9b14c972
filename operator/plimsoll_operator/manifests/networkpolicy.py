"""NetworkPolicies of a cluster's pods: brokers, and the driver of a Verification.

Both directions are named.  Clients and the kubelet come from anywhere, replication from the
cluster's own brokers and the operator's probe; brokers go to each other, to the operator and to
DNS, and nowhere else.  Ports alone name what has no fixed place in a cluster: DNS and the API
server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll_core.cluster.listeners import Listener
from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.manifests.manifest_context import Context

# As DNS listens behind its Service, which is what a policy compares: OpenShift's listens on 5353.
DNS_PORTS = tuple(
    {"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")
)


def network_policy(context: Context, listeners: tuple[Listener, ...] = ()) -> Manifest:
    """The brokers'."""
    ports = [listener.port for listener in listeners] or [labels.KAFKA_PORT]
    own = {"podSelector": {"matchLabels": labels.selector(context.name)}}
    operator = _operator(context.operator_namespace)
    metrics: Manifest = {"ports": [_tcp(labels.METRICS_PORT)]}
    if context.metrics_from:
        metrics["from"] = list(context.metrics_from)
    ingress = [
        # Clients, and the kubelet.
        {"ports": [_tcp(port) for port in (*ports, labels.HEALTH_PORT)]},
        metrics,
        {"from": [own, operator], "ports": [_tcp(labels.REPLICATION_PORT)]},
    ]
    egress = [
        {"ports": list(DNS_PORTS)},
        # Brokers of version 0.1 replicate over the clients' port.
        {"to": [own], "ports": [_tcp(labels.REPLICATION_PORT), _tcp(labels.KAFKA_PORT)]},
        {"to": [operator], "ports": [_tcp(port) for port in _ports(context.controllers)]},
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": context.metadata(f"{context.name}-broker"),
        "spec": {
            "podSelector": {"matchLabels": labels.selector(context.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


class DriverPorts(NamedTuple):
    """Where a driver goes: to brokers, to the API server."""

    kafka: int
    api_server: Sequence[int]


def driver_policy(
    metadata: Manifest,
    selector: dict[str, str],
    cluster_namespace: str,
    cluster_name: str,
    ports: DriverPorts,
) -> Manifest:
    """A Verification's driver: it writes to the cluster's brokers and reports to the API server."""
    brokers = {
        "namespaceSelector": _named(cluster_namespace),
        "podSelector": {"matchLabels": labels.selector(cluster_name)},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [
                {"ports": list(DNS_PORTS)},
                {"to": [brokers], "ports": [_tcp(ports.kafka)]},
                {"ports": [_tcp(port) for port in ports.api_server]},
            ],
        },
    }


def _operator(namespace: str) -> Manifest:
    """The operator's pods; in any namespace when its own is not told."""
    return {
        "namespaceSelector": _named(namespace) if namespace else {},
        "podSelector": {"matchLabels": {labels.NAME: "plimsoll", labels.COMPONENT: "operator"}},
    }


def _named(namespace: str) -> Manifest:
    return {"matchLabels": {labels.NAMESPACE_NAME: namespace}}


def _ports(addresses: Sequence[str]) -> list[int]:
    return sorted({int(address.rpartition(":")[2]) for address in addresses})


def _tcp(port: int) -> Manifest:
    return {"port": port, "protocol": "TCP"}
