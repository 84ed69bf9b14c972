"""Gives the brokers' volumes the cluster's id and the spec's labels and annotations, grows them if
`storage.size` grows, and reports claims that were deleted by hand. Never shrinks, recreates or
deletes a volume.

A claim that cannot grow stalls the LogCluster, since waiting does not change a StorageClass. The
user may set the size back to that of the volumes, which the status shows. A claim that was deleted
by hand disappears when its broker's pod ends, and is reported before that.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import counted
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.quantities import amount
from plimsoll_operator.kube.errors import NotFound, Rejected
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import VOLUME_CLAIMS
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.statefulset import claim_metadata
from plimsoll_operator.reconcile.cluster.logcluster_status import cluster_memory
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.shared.deleted_claims import DELETED
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

logger = logging.getLogger("plimsoll.volumes")

CANNOT_GROW = "VolumeCannotGrow"
GROW: Final = "GrowVolume"


async def reconcile(term: Term, result: PassResult, context: Context) -> None:
    """Grow the claims that are smaller than the spec's size, and complete their metadata. Report
    those that cannot grow or were deleted."""
    cluster = context.cluster
    namespace, name = cluster.key
    short = labels.short_id(term.cluster_id)
    selector = f"{labels.CLUSTER}={name},{labels.CLUSTER_ID}={short}"
    found = await term.kube.list(VOLUME_CLAIMS, namespace, label_selector=selector)
    claims = [c for c in found.items if _broker(c) in term.image.members]
    claims += await _label(term, cluster, claims)
    for claim in claims:
        await _mark(term, context, claim)
    refused = [(claim, why) for claim in claims if (why := await _grow(term, context, claim))]
    sizes = {_broker(claim): _asked(claim) for claim in claims}
    memory = cluster_memory(term)
    memory.volume_size = min(sizes.values(), key=amount, default=None)
    memory.pool_sizes = {
        pool.name: min(own, key=amount)
        for pool in cluster.spec.pools or ()
        if (own := [size for broker_id, size in sizes.items() if broker_id in pool.ids])
    }
    _say_refused(term, result, context, refused)
    _say_deleted(term, result, [c for c in claims if c["metadata"].get("deletionTimestamp")])


async def _label(term: Term, cluster: LogCluster, claims: list[Object]) -> list[Object]:
    """State the whole cluster id in the labels of the members' claims: only that names their
    owner once every other object is gone. `claims`: those that have the cluster's labels. Return
    the claims of registered members that had none, such as volumes that a person handed over."""
    for claim in claims:
        meta = claim["metadata"]
        is_labelled = meta["labels"].get(labels.LOG_CLUSTER_ID) == str(term.cluster_id)
        if not is_labelled and not meta.get("deletionTimestamp"):
            await _merge(term, claim, {"labels": {labels.LOG_CLUSTER_ID: str(term.cluster_id)}})
    known = {_broker(claim) for claim in claims}
    added = []
    for broker_id in term.image.members:
        if broker_id in known or broker_id not in term.image.brokers:
            continue
        found = await _read(term, f"data-{labels.broker_pod(cluster.key[1], broker_id)}")
        if found is None or (found["metadata"].get("labels") or {}).get(labels.CLUSTER_ID):
            continue
        own = labels.labels(cluster.key[1], term.cluster_id, "broker")
        ids = {labels.BROKER_ID: str(broker_id), labels.LOG_CLUSTER_ID: str(term.cluster_id)}
        if labelled := await _merge(term, found, {"labels": own | ids}):
            added.append(labelled)
    return added


async def _read(term: Term, name: str) -> Object | None:
    try:
        return await term.kube.get(VOLUME_CLAIMS, term.key[0], name)
    except NotFound:
        return None


async def _mark(term: Term, context: Context, claim: Object) -> None:
    """Set the labels and annotations of the spec that the volume claim lacks. Others stay: tools
    add some."""
    meta, broker_id = claim["metadata"], _broker(claim)
    wanted = claim_metadata(context, broker_id)
    patch = {
        field: values
        for field, values in wanted.items()
        if not values.items() <= (meta.get(field) or {}).items()
    }
    is_kept = not meta.get("deletionTimestamp")
    if patch and is_kept and not context.cluster.is_without_pool(broker_id):
        await _merge(term, claim, patch)


async def _merge(term: Term, claim: Object, added: dict[str, Any]) -> Object | None:
    """Add labels and annotations to a claim and return it. Return None if it is gone or the API
    server refuses: a later pass repeats this, and nothing waits for it."""
    name, patch = claim["metadata"]["name"], {"metadata": added}
    try:
        return await term.kube.merge(VOLUME_CLAIMS, term.key[0], name, patch)
    except (NotFound, Rejected) as error:
        logger.info(
            "the operator cannot write its labels to PersistentVolumeClaim %s and tries again "
            "later; nothing needs to be done: %s",
            *(name, error),
        )
        return None


def _wanted(context: Context, claim: Object) -> str:
    return context.of_broker(_broker(claim)).cluster.spec.storage.size


async def _grow(term: Term, context: Context, claim: Object) -> str:
    """Grow the volume claim to the size of its pool, or of the cluster, if it is smaller. Return
    "", or the reason why the API server refuses."""
    wanted = _wanted(context, claim)
    if context.cluster.is_without_pool(_broker(claim)):
        return ""
    if amount(_asked(claim)) >= amount(wanted):
        return ""
    patch = {"spec": {"resources": {"requests": {"storage": wanted}}}}
    volume = claim["metadata"]["name"]
    try:
        await term.kube.merge(VOLUME_CLAIMS, context.namespace, volume, patch)
    except Rejected as error:
        return error.reply
    logger.info(
        "the operator enlarges PersistentVolumeClaim %s to storage.size, %s", volume, wanted
    )
    return ""


def _say_refused(
    term: Term, result: PassResult, context: Context, refused: list[tuple[Object, str]]
) -> None:
    rows = [
        BlockedAction(
            action=GROW,
            broker=_broker(claim),
            reason=CANNOT_GROW,
            until=f"storage.size is set back to {_asked(claim)}, or its StorageClass allows "
            "expansion",
            since=timestamp(term.now_ms()),
        )
        for claim, _ in sorted(refused, key=lambda one: _broker(one[0]))
    ]
    result.block(GROW, rows)
    if not refused:
        result.unstall(StallSource.VOLUME_GROWTH)
        return
    claim, why = refused[0]
    name, asked = claim["metadata"]["name"], _asked(claim)
    stated = claim["spec"].get("storageClassName")
    text = (
        f"storage.size asks for {_wanted(context, claim)}, but the API server refuses to let "
        f"{counted(len(refused), 'PersistentVolumeClaim')} grow ({name} stays at {asked}): {why}. "
        f"Set storage.size back to {asked}, or set allowVolumeExpansion: true in "
        f"{f'StorageClass {stated}' if stated else 'their StorageClass'}."
    )
    result.stall(StallSource.VOLUME_GROWTH, Cause(reason=CANNOT_GROW, message=text))


def _say_deleted(term: Term, result: PassResult, deleted: list[Object]) -> None:
    if not deleted:
        result.unstall(StallSource.DELETED_VOLUMES)
        return
    names = ", ".join(sorted(claim["metadata"]["name"] for claim in deleted))
    pods = ", ".join(labels.broker_pod(term.key[1], _broker(claim)) for claim in deleted)
    text = (
        f"The PersistentVolumeClaims {names} were deleted by another client; Kubernetes removes "
        "each, with its broker's data, when the broker's pod stops. While all partitions are in "
        f"sync, delete the pods ({pods}) one at a time: each broker then gets an empty volume and "
        "copies its replicas from the other brokers."
    )
    result.stall(StallSource.DELETED_VOLUMES, Cause(reason=DELETED, message=text))


def _broker(claim: Object) -> BrokerId:
    """Return the id of the broker that a claim belongs to, by the claim's name `data-<pod>`. Return
    -1 if the name is of another form."""
    meta = claim["metadata"]
    stateful_set = meta["name"].removeprefix("data-").removesuffix("-0")
    number = labels.broker_of(meta["labels"][labels.CLUSTER], stateful_set)
    return BrokerId(-1 if number is None else number)


def _asked(claim: Object) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
