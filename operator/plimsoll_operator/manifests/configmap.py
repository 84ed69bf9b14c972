"""Builds the ConfigMap with the brokers' configuration, which is the same for all brokers of a
cluster.

The ConfigMap's name is a digest of its content, and the content never changes. A broker that
crashes therefore restarts with the configuration that it had before. A broker gets another
ConfigMap when its pod's template is written, which happens while the broker is granted a restart.
"""

from __future__ import annotations

import json
from typing import Any

from plimsoll_core.errors import Refusal
from plimsoll_operator.api import labels
from plimsoll_operator.api.broker_configs import broker_configs_of
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import CONFIG_MAPS
from plimsoll_operator.manifests.listener_secrets import DIRECTORY as TLS_DIRECTORY
from plimsoll_operator.manifests.manifest_context import Context, digest, once_for_a_context

FILE = "broker.json"
DIRECTORY = "/etc/plimsoll"
DATA = "/var/lib/plimsoll"


def _configs(context: Context) -> dict[str, str]:
    found = broker_configs_of(context.cluster)
    assert not isinstance(found, Refusal), "a refused config is rendered nowhere"
    return found


def _data(context: Context) -> dict[str, str]:
    return {FILE: _text(context)}


@once_for_a_context
def _text(context: Context) -> str:
    """Return the content of the configuration file that `python -m plimsoll_broker --config` reads.
    Broker id and host name are not in it: they come from the environment."""
    config: dict[str, Any] = {
        "cluster_id": str(context.cluster_id),
        "data_dir": f"{DATA}/log",
        "listen": {"host": "0.0.0.0", "port": labels.KAFKA_PORT},
        "replication": {"host": "0.0.0.0", "port": labels.REPLICATION_PORT},
        "controllers": list(context.controllers),
        "metrics": {"host": "0.0.0.0", "port": labels.METRICS_PORT},
        "health": {"host": "0.0.0.0", "port": labels.HEALTH_PORT},
        "certificates": TLS_DIRECTORY,
        "configs": _configs(context),
    }
    if context.cluster.on_controller_loss != "KeepServing":
        # Write it only if it differs from the default: an older broker does not know the key.
        config["on_controller_loss"] = context.cluster.on_controller_loss
    return _rendered(config)


def _rendered(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, sort_keys=True) + "\n"


@once_for_a_context
def config_map_name(context: Context) -> str:
    return labels.config_map(context.name, digest(_data(context)))


def config_map(context: Context) -> Manifest:
    return CONFIG_MAPS.manifest(
        context.metadata(config_map_name(context)), immutable=True, data=_data(context)
    )
