"""The NetworkPolicy of broker pods: clients and peers on one port, metrics on another."""

from __future__ import annotations

from plimsoll_operator.manifests import labels
from plimsoll_operator.manifests.context import Context
from plimsoll_operator.manifests.labels import Manifest


def network_policy(context: Context) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": context.metadata(f"{context.name}-broker"),
        "spec": {
            "podSelector": {"matchLabels": labels.selector(context.name)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "ports": [
                        {"port": labels.KAFKA_PORT, "protocol": "TCP"},
                        {"port": labels.METRICS_PORT, "protocol": "TCP"},
                        {"port": labels.HEALTH_PORT, "protocol": "TCP"},
                    ]
                },
                {
                    "from": [{"podSelector": {"matchLabels": labels.selector(context.name)}}],
                    "ports": [{"port": labels.REPLICATION_PORT, "protocol": "TCP"}],
                },
            ],
        },
    }
