"""Tells which brokers would lose their data if their pods stopped: their volume claims are deleted.

Kubernetes keeps a deleted claim, with its data, until the pod that uses it has stopped. So while a
claim is being deleted the operator stops its broker for no voluntary action: neither for a restart
nor to hibernate. A person deletes the pod, once the other replicas suffice. Called where the
operator is about to stop pods, each time with a fresh list.
"""

from __future__ import annotations

from typing import Literal

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.kube.resources import VOLUME_CLAIMS
from plimsoll_operator.reconcile.reconcile_term import Term

DELETED = "VolumeDeleted"


async def brokers_with_deleted_claims(term: Term) -> frozenset[BrokerId]:
    """Return the members with a volume claim that is being deleted. Raises ApiError."""
    namespace, name = term.key
    found = await term.kube.list(
        VOLUME_CLAIMS, namespace, label_selector=f"{labels.CLUSTER}={name}"
    )
    going = {
        claim["metadata"]["name"]
        for claim in found.items
        if claim["metadata"].get("deletionTimestamp")
    }
    members = term.image.members
    return frozenset(b for b in members if f"data-{labels.broker_pod(name, b)}" in going)


def waits_for_claim(
    term: Term, broker_id: BrokerId, action: Literal["Restart", "Hibernate"]
) -> BlockedAction:
    """Return the row that says that the broker is not stopped for `action`, because its data would
    go."""
    pod = labels.broker_pod(term.key[1], broker_id)
    until = (
        f"volume claim data-{pod}, which is being deleted, is replaced: its data goes when pod "
        f"{pod} stops. Delete that pod once no partition needs its replica"
    )
    since = timestamp(term.now_ms())
    return BlockedAction(action=action, broker=broker_id, reason=DELETED, until=until, since=since)
