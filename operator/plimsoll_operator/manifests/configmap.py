"""The brokers' configuration, the same for all of a cluster."""

from __future__ import annotations

import json

from plimsoll_operator.manifests import labels
from plimsoll_operator.manifests.context import Context
from plimsoll_operator.manifests.labels import Manifest
from plimsoll_operator.reconcile.topics import config_strings

FILE = "broker.json"
DIRECTORY = "/etc/plimsoll"
DATA = "/var/lib/plimsoll"


def config_map(context: Context) -> Manifest:
    """What `python -m plimsoll_broker --config` reads; id and names come from the environment."""
    config = {
        "cluster_id": str(context.cluster_id),
        "data_dir": f"{DATA}/log",
        "listen": {"host": "0.0.0.0", "port": labels.KAFKA_PORT},
        "controllers": list(context.controllers),
        "metrics": {"host": "0.0.0.0", "port": labels.METRICS_PORT},
        "configs": config_strings(context.cluster.spec.config or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": context.metadata(labels.config_map(context.name)),
        "data": {FILE: json.dumps(config, indent=2, sort_keys=True) + "\n"},
    }
