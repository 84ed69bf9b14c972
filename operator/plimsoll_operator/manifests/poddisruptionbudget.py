"""The PodDisruptionBudget: one broker at a time may be evicted.

It counts ready pods, and a broker is ready only when no partition needs it to catch up first, so
the budget is right even while the operator is down.
"""

from __future__ import annotations

from plimsoll_operator.manifests import labels
from plimsoll_operator.manifests.context import Context
from plimsoll_operator.manifests.labels import Manifest


def pod_disruption_budget(context: Context) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(f"{context.name}-broker"),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels.selector(context.name)},
        },
    }
