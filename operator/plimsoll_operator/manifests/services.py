"""Builds the two Services of a cluster: one that names every broker, and the bootstrap Service."""

from __future__ import annotations

from plimsoll_core.cluster.listeners import Listener
from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import SERVICES
from plimsoll_operator.manifests.manifest_context import Context

_KAFKA = {"name": "kafka", "port": labels.KAFKA_PORT, "targetPort": "kafka", "protocol": "TCP"}
_METRICS = {
    "name": "metrics",
    "port": labels.METRICS_PORT,
    "targetPort": "metrics",
    "protocol": "TCP",
}


FAMILIES: Manifest = {"ipFamilyPolicy": "PreferDualStack"}
"""Fields of a Service that give it an IPv4 and an IPv6 address if the Kubernetes cluster has both,
else one address."""


def _of_clients(listeners: tuple[Listener, ...]) -> list[Manifest]:
    """Return the Service ports for clients: one for each committed listener, or the default Kafka
    port if there is none. Each leads to a port number of the pod, since pod templates do not name
    listeners' ports."""
    if not listeners:
        return [_KAFKA]
    return [
        {
            "name": f"kafka-{listener.name}",
            "port": listener.port,
            "targetPort": listener.port,
            "protocol": "TCP",
        }
        for listener in listeners
    ]


def _metadata(context: Context, name: str) -> Manifest:
    """Return the metadata of a Service, with the labels and annotations that the spec adds."""
    metadata = context.metadata(name)
    added = context.cluster.spec.brokers and context.cluster.spec.brokers.service_metadata
    if added:
        metadata["labels"] = (added.labels or {}) | metadata["labels"]
        if added.annotations:
            metadata["annotations"] = dict(added.annotations)
    return metadata


def brokers_service(context: Context, listeners: tuple[Listener, ...] = ()) -> Manifest:
    """Build the headless Service, which gives each broker's pod a DNS name. Pods that are not Ready
    are included, so that brokers find each other."""
    return SERVICES.manifest(
        _metadata(context, labels.brokers_service(context.name)),
        spec={
            "clusterIP": "None",
            **FAMILIES,
            "publishNotReadyAddresses": True,
            "selector": labels.selector(context.name),
            "ports": [*_of_clients(listeners), _METRICS],
        },
    )


def bootstrap_service(context: Context, listeners: tuple[Listener, ...] = ()) -> Manifest:
    """Build the Service to which clients connect first. It leads to any Ready broker, which answers
    with the addresses of all."""
    return SERVICES.manifest(
        _metadata(context, labels.bootstrap_service(context.name)),
        spec={
            "type": "ClusterIP",
            **FAMILIES,
            "selector": labels.selector(context.name),
            "ports": _of_clients(listeners),
        },
    )
