"""Changes the committed members of a cluster step by step, until they are those that spec.brokers
asks for.

An edit of the count or the exclusions is followed once it has settled: ten seconds without another
edit. `settle` declares new members, drains leaving brokers, and removes them once they are empty.
`remove_remains` then removes a removed broker's pod, registration and, if asked for, volume.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import SetLeaving, UnregisterBroker, VolumeGone
from plimsoll_core.messages.requests import Refused, SetMembers
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import condition, milliseconds
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import PODS, STATEFUL_SETS, VOLUME_CLAIMS, Kind
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster import drain_and_fill
from plimsoll_operator.reconcile.cluster.drain_and_fill import blocked
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.membership")

SETTLE_MS = 10_000


Ids = tuple[BrokerId, ...]

LOOK_MS = 2_000
POD_LATE_MS = 30_000
"""For how many milliseconds after the end of its grace period a pod may still be terminating before
it is reported."""


@dataclass(slots=True)
class SettlingEdit:
    """An edit of the spec that is not followed yet: the members that the spec asks for, and since
    when (`monotonic_ms`). None if the spec is followed."""

    edit: tuple[Ids, int] | None = None


def settling_of(term: Term) -> SettlingEdit:
    return term.kept(SettlingEdit, SettlingEdit)


def is_settled(term: Term, result: PassResult, wanted: Ids) -> bool:
    """Return True if the spec has asked for the members `wanted` for `SETTLE_MS`, or if they need
    no change. Otherwise queue another pass for that time."""
    image, settling = term.image, settling_of(term)
    going = [b for b in image.members if b not in wanted]
    if set(wanted) <= set(image.members) and going == [b for b in image.leaving if b in going]:
        settling.edit = None
        return True
    if settling.edit is None or settling.edit[0] != wanted:
        settling.edit = (wanted, term.monotonic_ms())
    left_ms = settling.edit[1] + SETTLE_MS - term.monotonic_ms()
    if left_ms > 0:
        result.add_later(Work(Task.CLUSTER, term.key), left_ms)
    return left_ms <= 0


def unsettled(term: Term, cluster: LogCluster) -> Condition | None:
    """Return the condition Reconciling for an edit that waits to settle or is blocked. Return None
    if the committed members are those of the spec, or are on the way there.

    An edit that cannot be followed at all never reaches `is_settled`, so the state kept there may
    be of an earlier edit.
    """
    image = term.image
    wanted = next_members(image.members, cluster.id_ranges, cluster.excluded_ids)
    if set(wanted) == set(image.members) - set(image.leaving):
        return None
    edit = settling_of(term).edit
    if edit is not None and edit[0] == wanted:
        if term.monotonic_ms() - edit[1] < SETTLE_MS:
            return settling_condition(wanted)
        text = (
            f"The spec asks for {brokers_text(wanted)}; the change is blocked, see the "
            "condition Blocked."
        )
        return condition("Reconciling", True, "Blocked", text)
    return None


def settling_condition(wanted: Ids) -> Condition:
    """Return the condition for an edit that is not followed yet because another edit may follow
    soon: edits often come in several."""
    text = (
        f"The spec asks for {brokers_text(wanted)}; the change starts when the spec has not "
        "been edited for some seconds."
    )
    return condition("Reconciling", True, "Settling", text)


async def settle(term: Term, result: PassResult, cluster: LogCluster) -> list[BlockedAction]:
    """Commit the next step towards the members that the spec asks for. Members are committed before
    anything is created for them. Return the rows of `status.blocked` that say what a step waits
    for, [] if none waits."""
    wanted = next_members(term.image.members, cluster.id_ranges, cluster.excluded_ids)
    if not term.image.members:
        await _set_members(term, wanted)
        return []
    if not is_settled(term, result, wanted):
        return []
    if new := set(wanted) - set(term.image.members):
        hours = term.controller.settings.hours
        if (hold := hour_hold(hours, VoluntaryWork.ADD_BROKER)) is not None:
            return [blocked(term, b, hold.reason.name, hold.until, "Start") for b in sorted(new)]
        refusal = await _set_members(term, (*term.image.members, *new))
        if refusal is not None:
            return [blocked(term, min(new), refusal.reason, refusal.message, "Start")]
    rows = await _set_leaving(term, wanted)
    image = term.image
    empty = [b for b in image.leaving if b not in wanted and not image.hosted.get(b)]
    held = _held(term, empty, VoluntaryWork.REMOVE_BROKER)
    rows += held
    empty = [b for b in empty if b not in {row.broker for row in held}]
    kept = tuple(b for b in image.members if b not in empty)
    if kept != image.members:
        refusal = await _set_members(term, kept)
        if refusal is not None:
            raise Retry(refusal.message)
    return rows


def _held(term: Term, brokers: Iterable[BrokerId], work: VoluntaryWork) -> list[BlockedAction]:
    """Return a row of `status.blocked` for each broker for which `work` waits for its hours. A
    broker that is not active is replaced at once."""
    rows = []
    for broker_id in brokers:
        known = term.image.brokers.get(broker_id)
        urgent = known is None or not known.active
        hold = hour_hold(term.controller.settings.hours, work, urgent=urgent)
        if hold is not None:
            rows.append(blocked(term, broker_id, hold.reason.name, hold.until))
    return rows


async def follow(
    term: Term, result: PassResult, context: Context, rows: list[BlockedAction]
) -> None:
    """Create and remove objects as the committed members require: drains, fills, and what removed
    brokers left. `rows` is the result of `settle`; all rows are shown in `status.blocked`."""
    rows = [*rows, *await drain_and_fill.reconcile(term, context)]
    rows += await remove_remains(term, context.cluster)
    result.block("Members", rows)
    if rows or term.image.leaving or term.image.newcomers or removal_unfinished(term):
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


async def _set_members(term: Term, wanted: Ids) -> Refused | None:
    answer = await term.ask(SetMembers(broker_ids=tuple(sorted(wanted))))
    return answer if isinstance(answer, Refused) else None


async def _set_leaving(term: Term, wanted: Ids) -> list[BlockedAction]:
    """Commit the leaving members, as soon as all joining ones are active; a leave that is no longer
    wanted is cancelled at once. Return a row of `status.blocked` for each broker that waits."""
    image = term.image
    going = tuple(b for b in image.members if b not in wanted)
    former = tuple(b for b in image.leaving if b not in image.members)
    begun = tuple(b for b in going if b in image.leaving)
    held = _held(term, (b for b in going if b not in begun), VoluntaryWork.DRAIN)
    going = tuple(b for b in going if b not in {row.broker for row in held})
    waiting = [b for b in going if b not in begun]
    if absent := _absent(image):
        text = f"{brokers_text(absent)} have joined the cluster and can take replicas"
        rows = [blocked(term, b, "WaitingForBrokers", text) for b in waiting]
        await _commit_leaving(term, (*begun, *former))
        return [*held, *rows]
    refusal = await _commit_leaving(term, (*going, *former))
    if refusal is None:
        return held
    await _commit_leaving(term, (*begun, *former))
    return held + [blocked(term, b, refusal.reason, refusal.message) for b in waiting]


def _absent(image: ClusterImage) -> Ids:
    """Return the members that joined and are not active yet."""
    brokers = image.brokers
    return tuple(b for b in image.newcomers if b not in brokers or not brokers[b].active)


async def _commit_leaving(term: Term, leaving: Ids) -> Refused | None:
    leaving = tuple(sorted(leaving))
    if leaving == term.image.leaving:
        return None
    answer = await term.ask(SetLeaving(broker_ids=leaving))
    if isinstance(answer, Refused):
        return answer
    return None


async def remove_remains(term: Term, cluster: LogCluster) -> list[BlockedAction]:
    """Take the next step in the removal of each removed broker: StatefulSet, registration, volume.
    Return a row of `status.blocked` for each pod that does not end."""
    # These steps end a removal that has begun: only a pause delays them.
    hours = replace(term.controller.settings.hours, hibernated=False)
    hold = hour_hold(hours, VoluntaryWork.REMOVE_BROKER, urgent=True)
    if hold is not None:
        rest = sorted(set(term.image.brokers) - set(term.image.members))
        return [blocked(term, one, hold.reason.name, hold.until) for one in rest]
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


def removal_unfinished(term: Term) -> bool:
    """Return True if a removed broker is still registered or a volume is still to be deleted."""
    return bool(set(term.image.brokers) - set(term.image.members)) or bool(term.image.released)


async def _remove_sets(term: Term, cluster: LogCluster) -> set[BrokerId]:
    """Delete the StatefulSets of removed brokers. Return all brokers for which a StatefulSet was
    found, members included."""
    namespace, name = cluster.key
    found = await term.kube.list(
        STATEFUL_SETS, namespace, label_selector=f"{labels.CLUSTER}={name}"
    )
    standing: set[BrokerId] = set()
    for item in found.items:
        meta = item["metadata"]
        number = labels.broker_of(name, meta["name"])
        if number is None:
            continue  # it carries the label, but is not a broker's
        broker_id = BrokerId(number)
        standing.add(broker_id)
        if broker_id in term.image.members or term.image.hosted.get(broker_id):
            continue
        logger.info(
            "the operator deletes StatefulSet %s, because broker %d was removed from the cluster",
            *(meta["name"], broker_id),
        )
        await term.kube.delete(STATEFUL_SETS, namespace, meta["name"], uid=meta["uid"])
    return standing


def _stuck(term: Term, broker_id: BrokerId, pod: Object) -> Iterator[BlockedAction]:
    """Yield a row of `status.blocked` if the pod of a removed broker should have terminated by now:
    on a lost node it never terminates by itself."""
    deleted = pod["metadata"].get("deletionTimestamp")
    if deleted is None or term.server_ms() < milliseconds(deleted) + POD_LATE_MS:
        return
    text = (
        f"the operator deleted pod {pod['metadata']['name']} by force, because it did not "
        "terminate in time"
    )
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
    """Return the name of the broker's volume claim, as the StatefulSet controller makes it."""
    return f"data-{labels.broker_pod(cluster.key[1], broker_id)}"


def _is_ours(term: Term, claim: Object) -> bool:
    """Return True if the volume claim belongs to this cluster, by the cluster id in its label. An
    earlier cluster of the same name may have left claims of the same name."""
    found = claim["metadata"].get("labels") or {}
    return found.get(labels.CLUSTER_ID) == labels.short_id(term.cluster_id)


async def _remove_volumes(term: Term, cluster: LogCluster) -> None:
    """Delete the volume claims that are committed as released, by their uids, and report to the
    controller those that no longer exist. Another operator can continue."""
    for pvc_uid, broker_id in sorted(term.image.released.items()):
        name = claim_name(cluster, broker_id)
        claim = await _read(term, VOLUME_CLAIMS, name)
        if claim is None or claim["metadata"]["uid"] != pvc_uid:
            await term.ask(VolumeGone(pvc_uid=pvc_uid))
        elif not claim["metadata"].get("deletionTimestamp"):
            logger.info(
                "the operator deletes PersistentVolumeClaim %s, because broker %d was removed "
                "from the cluster",
                *(name, broker_id),
            )
            try:
                await term.kube.delete(VOLUME_CLAIMS, term.key[0], name, uid=pvc_uid)
            except (NotFound, Conflict):
                continue


async def _read(term: Term, kind: Kind, name: str) -> Object | None:
    try:
        return await term.kube.get(kind, term.key[0], name)
    except NotFound:
        return None
