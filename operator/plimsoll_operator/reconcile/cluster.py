"""What a LogCluster asks for: which children, which id.  Pure.

Which brokers it has is the controller's decision (`plimsoll_core.controller.membership`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from uuid import UUID

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.manifests.context import Context
from plimsoll_operator.manifests.labels import Manifest
from plimsoll_operator.manifests.networkpolicy import network_policy
from plimsoll_operator.manifests.poddisruptionbudget import pod_disruption_budget
from plimsoll_operator.manifests.serviceaccount import service_account
from plimsoll_operator.manifests.services import bootstrap_service, brokers_service
from plimsoll_operator.manifests.statefulset import stateful_set


def cluster_id(cluster: LogCluster) -> UUID:
    """Whose log and volumes these are: what `spec.clusterId` says, else the object's own uid.

    The uid is random and never used twice, so two operators agree on it without asking, and an
    object that is made again is another cluster unless it says otherwise.
    """
    stated = cluster.spec.cluster_id
    if not stated:
        return UUID(cluster.metadata.uid)
    return (
        UUID(stated) if len(stated) == 36 else UUID(bytes=base64.urlsafe_b64decode(stated + "=="))
    )


def kafka_id(value: UUID) -> str:
    """A UUID as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def children(context: Context) -> list[Manifest]:
    """What a cluster has besides its brokers, in the order of creation."""
    return [
        service_account(context),
        brokers_service(context),
        bootstrap_service(context),
        pod_disruption_budget(context),
        network_policy(context),
    ]


def broker_sets(context: Context, broker_ids: Iterable[BrokerId]) -> list[Manifest]:
    """The brokers' StatefulSets."""
    return [stateful_set(context, broker_id) for broker_id in sorted(broker_ids)]
