"""Builds the PodMonitor of a LogCluster's brokers, which the Prometheus operator reads."""

from __future__ import annotations

import re

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import POD_MONITORS
from plimsoll_operator.manifests.manifest_context import Context

INTERVAL_DEFAULT = "30s"
_META = "__meta_kubernetes_pod_label_"


def pod_monitor(context: Context) -> Manifest | None:
    """Build the PodMonitor; return None if the LogCluster declares none. It labels each series with
    the cluster and the broker; Prometheus adds the namespace itself."""
    wanted = context.cluster.spec.pod_monitor
    if wanted is None:
        return None
    metadata = context.metadata(pod_monitor_name(context))
    taken = ((labels.CLUSTER, "cluster"), (labels.BROKER_ID, "broker"))
    endpoint = {
        "port": "metrics",
        "interval": wanted.interval or INTERVAL_DEFAULT,
        "relabelings": [
            {"sourceLabels": [_META + re.sub(r"\W", "_", name)], "targetLabel": target}
            for name, target in taken
        ],
    }
    return POD_MONITORS.manifest(
        {**metadata, "labels": {**(wanted.labels or {}), **metadata["labels"]}},
        spec={
            "selector": {"matchLabels": labels.selector(context.name)},
            "podMetricsEndpoints": [endpoint],
        },
    )


def pod_monitor_name(context: Context) -> str:
    return f"{context.name}-broker"
