"""The brokers' configuration, the same for all of a cluster."""

from __future__ import annotations

import json
from typing import Any

from plimsoll_core.reasons import Refusal
from plimsoll_operator.manifests import labels
from plimsoll_operator.manifests.context import Context
from plimsoll_operator.manifests.labels import Manifest
from plimsoll_operator.reconcile.configs import broker_configs_of

FILE = "broker.json"
DIRECTORY = "/etc/plimsoll"
DATA = "/var/lib/plimsoll"


def _configs(context: Context) -> dict[str, str]:
    found = broker_configs_of(context.cluster)
    assert not isinstance(found, Refusal), "a refused config is rendered nowhere"
    return found


def config_map(context: Context) -> Manifest:
    """What `python -m plimsoll_broker --config` reads; id and names come from the environment."""
    config: dict[str, Any] = {
        "cluster_id": str(context.cluster_id),
        "data_dir": f"{DATA}/log",
        "listen": {"host": "0.0.0.0", "port": labels.KAFKA_PORT},
        "controllers": list(context.controllers),
        "metrics": {"host": "0.0.0.0", "port": labels.METRICS_PORT},
        "configs": _configs(context),
    }
    if context.cluster.on_controller_loss != "KeepServing":
        # Only what differs from the default: a broker of an older version knows no such key.
        config["on_controller_loss"] = context.cluster.on_controller_loss
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": context.metadata(labels.config_map(context.name)),
        "data": {FILE: json.dumps(config, indent=2, sort_keys=True) + "\n"},
    }
