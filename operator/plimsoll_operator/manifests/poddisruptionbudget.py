"""The PodDisruptionBudget: one broker at a time may be evicted.

The budget counts ready pods. A broker is ready only when no partition waits for it to catch up, so
evictions are safe even while the operator is down.
"""

from __future__ import annotations

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import DISRUPTION_BUDGETS
from plimsoll_operator.manifests.manifest_context import Context


def pod_disruption_budget(context: Context) -> Manifest:
    return DISRUPTION_BUDGETS.manifest(
        context.metadata(f"{context.name}-broker"),
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels.selector(context.name)},
        },
    )
