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
"""Both IP families where Kubernetes has both, else the only one."""


def _of_clients(listeners: tuple[Listener, ...]) -> list[Manifest]:
    """Return a port for each declared listener, by number: the pods' templates do not name them."""
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


def brokers_service(context: Context, listeners: tuple[Listener, ...] = ()) -> Manifest:
    """Build the headless Service. It names brokers that are not ready too, so that they find each
    other."""
    return SERVICES.manifest(
        context.metadata(labels.brokers_service(context.name)),
        spec={
            "clusterIP": "None",
            **FAMILIES,
            "publishNotReadyAddresses": True,
            "selector": labels.selector(context.name),
            "ports": [*_of_clients(listeners), _METRICS],
        },
    )


def bootstrap_service(context: Context, listeners: tuple[Listener, ...] = ()) -> Manifest:
    """Build the Service that clients connect to first: any ready broker returns the metadata."""
    return SERVICES.manifest(
        context.metadata(labels.bootstrap_service(context.name)),
        spec={
            "type": "ClusterIP",
            **FAMILIES,
            "selector": labels.selector(context.name),
            "ports": _of_clients(listeners),
        },
    )
