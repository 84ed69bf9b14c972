"""Builds NetworkPolicies of a cluster's pods: brokers, and the driver of a Verification.

Both directions are restricted. Clients come from the namespaces that their listener allows, or from
anywhere if it allows all, as does the kubelet. Replication comes from the cluster's own brokers and
the operator's probe. Brokers connect to each other, to the operator and to DNS, and nowhere else.
DNS and the API server have no fixed place in a cluster, so rules name only their ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from plimsoll_core.addresses import split_address
from plimsoll_core.cluster.listeners import Listener
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_topics import AllowedNamespaces
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.selectors import why_refused
from plimsoll_operator.kube.resources import NETWORK_POLICIES
from plimsoll_operator.manifests.manifest_context import Context

# A policy compares the pods' ports behind the Service: OpenShift's DNS listens on 5353.
DNS_PORTS = tuple(
    {"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")
)


_SCRAPERS: Manifest = {"namespaceSelector": {"matchLabels": {labels.SCRAPER: "true"}}}
"""The peers that may read metrics if the chart configures none: pods in labelled namespaces. The
metrics show the names of all tenants' topics and groups."""


def network_policy(context: Context, listeners: tuple[Listener, ...] = ()) -> Manifest:
    """Build the NetworkPolicy of the brokers' pods. `listeners`: those committed in the metadata
    log; without any, the default Kafka port is open to every client."""
    own = {"podSelector": {"matchLabels": labels.selector(context.name)}}
    operator = _operator(context.operator_namespace)
    scrapers = list(context.metrics_from) or [_SCRAPERS]
    metrics: Manifest = {"from": scrapers, "ports": [_tcp(labels.METRICS_PORT)]}
    ingress = [
        *_of_clients(context, listeners, operator),
        metrics,
        {"from": [own, operator], "ports": [_tcp(labels.REPLICATION_PORT)]},
    ]
    egress = [
        {"ports": list(DNS_PORTS)},
        {"to": [own], "ports": [_tcp(labels.REPLICATION_PORT)]},
        {"to": [operator], "ports": [_tcp(port) for port in _ports(context.controllers)]},
    ]
    return NETWORK_POLICIES.manifest(
        context.metadata(f"{context.name}-broker"),
        spec={
            "podSelector": {"matchLabels": labels.selector(context.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    )


def _of_clients(
    context: Context, listeners: tuple[Listener, ...], operator: Manifest
) -> list[Manifest]:
    """Return the ingress rules for clients: one for all ports that are open to everyone, the
    kubelet's health port among them, and one for each listener that only some namespaces may reach.
    Pods of the cluster's own namespace are always allowed."""
    allowed = {one.port: _allowed(context.cluster, one) for one in listeners}
    ports = [port for port, namespaces in allowed.items() if _is_all(namespaces)]
    if not listeners:
        ports = [labels.KAFKA_PORT]
    rules: list[Manifest] = [{"ports": [_tcp(port) for port in (*ports, labels.HEALTH_PORT)]}]
    for port, namespaces in allowed.items():
        if namespaces is not None and not _is_all(namespaces):
            peers = [{"podSelector": {}}, operator, *_selected(namespaces)]
            rules.append({"from": peers, "ports": [_tcp(port)]})
    return rules


def _allowed(cluster: LogCluster, listener: Listener) -> AllowedNamespaces | None:
    """Return the namespaces that the spec allows to reach a committed listener; None: all. If the
    spec no longer declares the listener, which brokers may still have open, only the cluster's own
    namespace is allowed."""
    declared = cluster.listeners
    at_port = (one for one in declared if one.port == listener.port)
    of_name = (one for one in declared if one.name == listener.name)
    found = next(at_port, None) or next(of_name, None)
    return AllowedNamespaces() if found is None else found.allowed_namespaces


def _is_all(namespaces: AllowedNamespaces | None) -> bool:
    return namespaces is None or namespaces.from_ == "All"


def _selected(namespaces: AllowedNamespaces) -> list[Manifest]:
    """Return the peers for `from: Selector`. Empty for other values, and for a selector with which
    the API server would refuse the whole policy (`reconcile.cluster.listeners` reports that)."""
    selector = namespaces.selector
    if namespaces.from_ != "Selector" or selector is None or why_refused(selector):
        return []
    return [{"namespaceSelector": msgspec.json.decode(msgspec.json.encode(selector))}]


BLOCKS_PORT = 7079
SPARK_PORTS = (7078, BLOCKS_PORT)
"""Ports of Spark, as `plimsoll_spark.session` sets them: the driver's RPC; the blocks of a driver
and of its executors."""


class BrokersOf(NamedTuple):
    """The brokers of one LogCluster, and their listener's port."""

    namespace: str
    name: str
    port: int


ANY_PORT: Manifest = {"protocol": "TCP", "port": 1, "endPort": 65_535}


class DriverPorts(NamedTuple):
    """The ports that the driver of a Verification connects to: the brokers' listener, the API
    server, and the S3 server of its evidence, None if it has none. `elsewhere`: True if it reads
    another cluster, the brokers of which may have any port."""

    kafka: int
    api_server: Sequence[int]
    bucket: int | None = None
    elsewhere: bool = False


def driver_policy(
    metadata: Manifest,
    selector: dict[str, str],
    cluster_namespace: str,
    cluster_name: str,
    ports: DriverPorts,
) -> Manifest:
    """Build the NetworkPolicy of a Verification's driver: it may connect to the brokers of one
    cluster, to the API server and to DNS, to an S3 server or elsewhere if `ports` says so; nothing
    may connect to it. `selector`: labels of the driver's pod."""
    brokers = _brokers(cluster_namespace, cluster_name)
    return NETWORK_POLICIES.manifest(
        metadata,
        spec={
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [
                {"ports": list(DNS_PORTS)},
                {"to": [brokers], "ports": [_tcp(ports.kafka)]},
                {"ports": [_tcp(port) for port in ports.api_server]},
                *({"ports": [_tcp(port)]} for port in (ports.bucket,) if port is not None),
                *([{"ports": [ANY_PORT]}] if ports.elsewhere else []),
            ],
        },
    )


def with_executors(policy: Manifest, executors: dict[str, str]) -> Manifest:
    """Return the NetworkPolicy of a driver with what its executors need: they reach its RPC and its
    blocks, and it reaches theirs. `executors`: labels of their pods."""
    peers = [{"podSelector": {"matchLabels": executors}}]
    spec = policy["spec"]
    rpc = {"from": peers, "ports": [_tcp(port) for port in SPARK_PORTS]}
    blocks = {"to": peers, "ports": [_tcp(BLOCKS_PORT)]}
    more = {"ingress": [*spec["ingress"], rpc], "egress": [*spec["egress"], blocks]}
    return {**policy, "spec": {**spec, **more}}


def executor_policy(
    metadata: Manifest,
    executors: dict[str, str],
    driver: dict[str, str],
    brokers: BrokersOf,
) -> Manifest:
    """Build the NetworkPolicy of a driver's executors: they may connect to the brokers of one
    cluster, to DNS, to their driver and to each other. `executors`, `driver`: labels of the
    pods."""
    own = {"podSelector": {"matchLabels": executors}}
    drivers = {"podSelector": {"matchLabels": driver}}
    return NETWORK_POLICIES.manifest(
        metadata,
        spec={
            "podSelector": {"matchLabels": executors},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [own, drivers], "ports": [_tcp(BLOCKS_PORT)]}],
            "egress": [
                {"ports": list(DNS_PORTS)},
                {"to": [_brokers(brokers.namespace, brokers.name)], "ports": [_tcp(brokers.port)]},
                {"to": [drivers], "ports": [_tcp(port) for port in SPARK_PORTS]},
                {"to": [own], "ports": [_tcp(BLOCKS_PORT)]},
            ],
        },
    )


def _brokers(namespace: str, name: str) -> Manifest:
    return {
        "namespaceSelector": _named(namespace),
        "podSelector": {"matchLabels": labels.selector(name)},
    }


def _operator(namespace: str) -> Manifest:
    """Return the policy peer that selects the operator's pods: in `namespace`, or in any if it is
    ""."""
    return {
        "namespaceSelector": _named(namespace) if namespace else {},
        "podSelector": {"matchLabels": {labels.NAME: "plimsoll", labels.COMPONENT: "operator"}},
    }


def _named(namespace: str) -> Manifest:
    return {"matchLabels": {labels.NAMESPACE_NAME: namespace}}


def _ports(addresses: Sequence[str]) -> list[int]:
    return sorted({split_address(address)[1] for address in addresses})


def _tcp(port: int) -> Manifest:
    return {"port": port, "protocol": "TCP"}
