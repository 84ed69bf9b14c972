"""Puts a LogCluster to sleep and wakes it, as `spec.hibernated` asks, and shows how far that is.

Hibernation is committed first; then the brokers' StatefulSets lose their pods one after another
(`shared.hibernation`), so that each stops cleanly. On waking all brokers start, and the waking is
committed when all members are back, so that each partition gets its preferred leader by one
election. If a member does not come back, the others wait no longer than `WAKE_MS_MAX` for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import HIBERNATION_SINCE, release_of
from plimsoll_core.controller.brokers.hibernation import is_asleep
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import SetHibernation
from plimsoll_core.messages.requests import Refused
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.deleted_claims import (
    brokers_with_deleted_claims,
    waits_for_claim,
)
from plimsoll_operator.reconcile.shared.hibernation import end_stops
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry

HIBERNATED = "Hibernated"
LOOK_MS = 1_000
WAKE_MS_MAX = 120_000
"""Milliseconds after which a cluster wakes without the members that have not come back."""


@dataclass(slots=True)
class Waking:
    """Since when this term has seen the cluster wake (`monotonic_ms`), None if it does not."""

    since_ms: int | None = None


async def settle(term: Term, result: PassResult, cluster: LogCluster) -> None:
    """Commit the hibernation or the waking that the spec asks for, once it may be."""
    waking = term.kept(Waking, Waking)
    wanted = bool(cluster.spec.hibernated)
    if wanted == term.image.hibernated:
        waking.since_ms = None
        result.block(HIBERNATED, ())
        return
    if not wanted and not _may_wake(term, waking):
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)
        return
    if wanted and (deleted := await _deleted_claims(term)):
        result.block(HIBERNATED, [waits_for_claim(term, b, "Hibernate") for b in sorted(deleted)])
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)
        return
    if not wanted:
        await _end_stops(term)
    answer = await term.ask(SetHibernation(hibernated=wanted))
    rows: tuple[BlockedAction, ...] = ()
    if isinstance(answer, Refused):
        now = timestamp(term.now_ms())
        text = answer.message[:1024]
        if answer.known_reason is Reason.MetadataTooOld:
            text = f"metadata version {release_of(HIBERNATION_SINCE)} is finalised"
        rows = (BlockedAction(action="Hibernate", reason=answer.reason, until=text, since=now),)
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)
    result.block(HIBERNATED, rows)


async def _deleted_claims(term: Term) -> frozenset[BrokerId]:
    try:
        return await brokers_with_deleted_claims(term)
    except ApiError as error:
        text = (
            "the operator cannot list the brokers' PersistentVolumeClaims, so the cluster does "
            f"not hibernate yet; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error


async def _end_stops(term: Term) -> None:
    try:
        await end_stops(term)
    except ApiError as error:
        text = (
            "the operator cannot change the brokers' StatefulSets, so the cluster does not wake "
            f"from hibernation yet; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error


def _may_wake(term: Term, waking: Waking) -> bool:
    if waking.since_ms is None:
        waking.since_ms = term.monotonic_ms()
    image = term.image
    back = all(b in image.brokers and image.brokers[b].active for b in image.members)
    return back or term.monotonic_ms() - waking.since_ms >= WAKE_MS_MAX


def hibernation_conditions(image: ClusterImage, cluster: LogCluster) -> list[Condition]:
    """Return the conditions Hibernated, Ready and Reconciling of a cluster that hibernates or is on
    the way into or out of it; [] for any other."""
    if not image.hibernated:
        return []
    running = [b.id for _, b in sorted(image.brokers.items()) if not b.fenced]
    if not cluster.spec.hibernated:
        reason, text = (
            "Waking",
            f"The cluster wakes from hibernation: {len(running)} of {len(image.members)} brokers "
            "are back.",
        )
    elif not is_asleep(image):
        reason, text = (
            "Stopping",
            (f"The cluster is going to hibernate: {brokers_text(running)} still to be stopped."),
        )
    else:
        reason = "Asleep"
        text = (
            "All brokers have stopped, and their volumes are kept. Set spec.hibernated to false "
            "to start the brokers again."
        )
    asleep = reason == "Asleep"
    text = text[:1].upper() + text[1:]
    return [
        condition(HIBERNATED, asleep, reason, text),
        condition("Ready", False, HIBERNATED, f"Clients are not served. {text}"),
        condition("Reconciling", not asleep, reason, text),
    ]
