"""The children that a LogCluster requires.  Pure.

Which brokers it has is the controller's decision (`plimsoll_core.controller.brokers.membership`).
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.networkpolicy import network_policy
from plimsoll_operator.manifests.poddisruptionbudget import pod_disruption_budget
from plimsoll_operator.manifests.serviceaccount import service_account
from plimsoll_operator.manifests.services import bootstrap_service, brokers_service
from plimsoll_operator.manifests.statefulset import stateful_set


def children(context: Context, listeners: tuple[Listener, ...] = ()) -> list[Manifest]:
    """What a cluster has besides its brokers, in the order of creation.  `listeners`: as they are
    committed: brokers have these open, whatever the spec asks for by now."""
    return [
        service_account(context),
        brokers_service(context, listeners),
        bootstrap_service(context, listeners),
        pod_disruption_budget(context),
        network_policy(context, listeners),
    ]


def broker_sets(context: Context, broker_ids: Iterable[BrokerId]) -> list[Manifest]:
    """The brokers' StatefulSets."""
    return [stateful_set(context, broker_id) for broker_id in sorted(broker_ids)]
