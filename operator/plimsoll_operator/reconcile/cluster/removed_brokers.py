"""Removes the remains of brokers that are no members any more: their pods, their registration,
their volumes, in this order.

A broker that hosts a replica is left alone whatever the spec says.  Its StatefulSet goes first, so
that its process stops as cleanly as it can; when the pod is gone the broker is unregistered; and
its volume is deleted only because that was committed with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import UnregisterBroker, VolumeGone
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import PODS, STATEFUL_SETS, VOLUME_CLAIMS, Kind
from plimsoll_operator.reconcile.cluster.membership_rebalances import blocked
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.removal")

POD_LATE_MS = 30_000
"""So long after its grace a pod is said to be stuck."""


async def reconcile(term: Term, cluster: LogCluster) -> list[BlockedAction]:
    """One step further with each; returns what they wait for."""
    standing = await _remove_sets(term, cluster)
    rows: list[BlockedAction] = []
    for broker_id in sorted(set(term.image.brokers) - set(term.image.members)):
        if broker_id in standing or term.image.hosted.get(broker_id):
            continue
        pod = await _read(term, PODS, labels.broker_pod(cluster.key[1], broker_id))
        if pod is None:
            await _unregister(term, cluster, broker_id)
        else:
            rows += _stuck(term, broker_id, pod)
    await _remove_volumes(term, cluster)
    return rows


def unfinished(term: Term) -> bool:
    """Whether there is something to look at again soon."""
    return bool(set(term.image.brokers) - set(term.image.members)) or bool(term.image.released)


async def _remove_sets(term: Term, cluster: LogCluster) -> set[BrokerId]:
    """Returns the brokers whose StatefulSets were there."""
    namespace, name = cluster.key
    found = await term.kube.list(
        STATEFUL_SETS, namespace, label_selector=f"{labels.CLUSTER}={name}"
    )
    standing: set[BrokerId] = set()
    for item in found.items:
        meta = item["metadata"]
        number = labels.broker_of(name, meta["name"])
        if number is None:
            continue  # whoever labelled it so, it is no broker's
        broker_id = BrokerId(number)
        standing.add(broker_id)
        if broker_id in term.image.members or term.image.hosted.get(broker_id):
            continue
        logger.info("removing %s: broker %d was removed from the cluster", meta["name"], broker_id)
        await term.kube.delete(STATEFUL_SETS, namespace, meta["name"], uid=meta["uid"])
    return standing


def _stuck(term: Term, broker_id: BrokerId, pod: Object) -> Iterator[BlockedAction]:
    """A pod on a node that is gone does not end by itself."""
    deleted = pod["metadata"].get("deletionTimestamp")
    if deleted is None or term.server_ms() < milliseconds(deleted) + POD_LATE_MS:
        return
    text = f"deleted pod {pod['metadata']['name']}, which failed to terminate in time"
    yield blocked(term, broker_id, "PodRemains", text)


async def _unregister(term: Term, cluster: LogCluster, broker_id: BrokerId) -> None:
    claim = None
    if cluster.deletes_volumes:
        claim = await _read(term, VOLUME_CLAIMS, claim_name(cluster, broker_id))
    broker = term.image.brokers.get(broker_id)
    if broker is None:
        return
    answer = await term.ask(
        UnregisterBroker(
            broker_id=broker_id,
            broker_epoch=broker.broker_epoch,
            pvc_uid=str(claim["metadata"]["uid"]) if claim and _is_ours(term, claim) else None,
        )
    )
    if isinstance(answer, Refused) and answer.known_reason is not Reason.BrokerLives:
        raise Retry(answer.message)


def claim_name(cluster: LogCluster, broker_id: BrokerId) -> str:
    """As the StatefulSet controller names it."""
    return f"data-{labels.broker_pod(cluster.key[1], broker_id)}"


def _is_ours(term: Term, claim: Object) -> bool:
    """Not one that an earlier cluster of the same name left."""
    found = claim["metadata"].get("labels") or {}
    return found.get(labels.CLUSTER_ID) == labels.short_id(term.cluster_id)


async def _remove_volumes(term: Term, cluster: LogCluster) -> None:
    """What was released, by the uid that was released; a successor goes on where this one ends."""
    for pvc_uid, broker_id in sorted(term.image.released.items()):
        name = claim_name(cluster, broker_id)
        claim = await _read(term, VOLUME_CLAIMS, name)
        if claim is None or claim["metadata"]["uid"] != pvc_uid:
            await term.ask(VolumeGone(pvc_uid=pvc_uid))
        elif not claim["metadata"].get("deletionTimestamp"):
            logger.info("deleting %s: broker %d was removed", name, broker_id)
            try:
                await term.kube.delete(VOLUME_CLAIMS, term.key[0], name, uid=pvc_uid)
            except (NotFound, Conflict):
                continue


async def _read(term: Term, kind: Kind, name: str) -> Object | None:
    try:
        return await term.kube.get(kind, term.key[0], name)
    except NotFound:
        return None
