"""The two Services of a cluster: one that names every broker, one that clients start from."""

from __future__ import annotations

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.manifests.manifest_context import Context

_KAFKA = {"name": "kafka", "port": labels.KAFKA_PORT, "targetPort": "kafka", "protocol": "TCP"}
_METRICS = {
    "name": "metrics",
    "port": labels.METRICS_PORT,
    "targetPort": "metrics",
    "protocol": "TCP",
}


def brokers_service(context: Context) -> Manifest:
    """Headless; brokers that are not ready have a name too, so that they find each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(labels.brokers_service(context.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels.selector(context.name),
            "ports": [_KAFKA, _METRICS],
        },
    }


def bootstrap_service(context: Context) -> Manifest:
    """Where clients start: any ready broker tells them the rest."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(labels.bootstrap_service(context.name)),
        "spec": {
            "type": "ClusterIP",
            "selector": labels.selector(context.name),
            "ports": [_KAFKA],
        },
    }
