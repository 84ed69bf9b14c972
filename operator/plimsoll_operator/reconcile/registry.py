"""Table of the kinds that users apply, and LogBroker, which the operator creates for users to read.
One row (`UserKind`) holds all differences between a kind and the others.

Watches, resyncs, the queue's work and the status writer loop over these rows; a new kind is a new
row and its folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.logbroker import LogBrokerStatus
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.api.verification_schedule import VerificationScheduleStatus
from plimsoll_operator.kube.resources import (
    LOG_BROKERS,
    LOG_CLUSTERS,
    REASSIGNMENTS,
    REBALANCES,
    TOPICS,
    USERS,
    VERIFICATION_SCHEDULES,
    VERIFICATIONS,
    Kind,
)
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key, Objects, ObjectShelf
from plimsoll_operator.reconcile.cluster import logcluster_status, metadata_log_repair
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.logbroker import reconcile as log_broker
from plimsoll_operator.reconcile.logbroker.logbroker_status import render as render_log_broker
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reassignment import reconcile as reassignment
from plimsoll_operator.reconcile.rebalance import reconcile as rebalance
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.restarts import reconcile as restarts
from plimsoll_operator.reconcile.stall_causes import Cause
from plimsoll_operator.reconcile.topic import deletion_proof, topic_status
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.verification import reconcile as verification
from plimsoll_operator.reconcile.verification_schedule import reconcile as verification_schedule
from plimsoll_operator.status.status_writer import StatusDraft, Target

Reconcile = Callable[[Term, Key], Awaitable[PassResult]]
Look = Callable[[str], AbstractContextManager[None]]
"""Function of the name of a step that returns the context in which to run the step. The context
confines a bug of the step to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKind:
    """Row of one kind: its API `resource`, the `shelf` of its objects as last seen, the class of
    its `status`, the `task` that an event about an object queues, and functions: `reconcile` runs
    one pass, `render` returns the status to write (None if there is none), and `absent` yields the
    work for deleted objects that the committed image still knows."""

    # API resource of its objects.
    resource: Kind
    # Returns the shelf with the objects of this kind as last seen.
    shelf: Callable[[Objects], ObjectShelf[Any]]
    # Class of its status. While no controller leads the cluster, a status holds conditions alone.
    status: type[
        LogClusterStatus
        | TopicStatus
        | ReassignmentStatus
        | RebalanceStatus
        | VerificationStatus
        | VerificationScheduleStatus
        | UserStatus
        | LogBrokerStatus
    ]
    # Work for an event about one of its objects, and the function that does it.
    task: Task
    reconcile: Reconcile
    # Renders the status of one object; returns None if there is no such object or nothing to show
    # yet.
    render: Callable[[Term, Key], StatusDraft | None]
    # Yields work for each deleted object that the committed image still knows.
    absent: Callable[[Term], Iterable[Work]]


def _absent_topics(term: Term) -> Iterable[Work]:
    """Yield one work item. Its pass deletes all topics without their Topic object of which the
    absence is proven and the grace period has passed."""
    return (Work(Task.ABSENT_TOPICS, term.key),)


def _absent_reassignments(term: Term) -> Iterable[Work]:
    """Yield work for each deleted Reassignment with unfinished moves, which are then rolled
    back."""
    return (Work(Task.REASSIGNMENT, key) for key in reassignment.abandoned(term))


def _absent_rebalances(term: Term) -> Iterable[Work]:
    """Yield work for each deleted Rebalance with unfinished moves, which are then rolled back."""
    return (Work(Task.REBALANCE, key) for key in rebalance.abandoned(term))


def _absent_users(term: Term) -> Iterable[Work]:
    """Yield work for each deleted User that can still log in. Its login ends once the absence is
    proven."""
    return (Work(Task.USER, key) for key in user.abandoned(term))


def _leaves_nothing(_: Term) -> Iterable[Work]:
    """Return (): nothing has to be done for a deleted object of such a kind, since the committed
    image holds nothing about it, and Kubernetes deletes its children (ownerReferences)."""
    return ()


def _render_reconciled(resource: Kind, term: Term, key: Key) -> StatusDraft | None:
    """Return the status that the object's reconciler set at its last pass. Return None if the
    object does not exist or no pass has set a status yet."""
    shelf = BY_RESOURCE[resource].shelf(term.objects)
    found, reconciled = shelf.get(key), term.shown.statuses.get(Target(resource, *key))
    if found is None or reconciled is None:
        return None
    generation, status = reconciled
    return StatusDraft(
        uid=found.metadata.uid,
        status=status,
        generation=generation,
        shown=shelf.conditions(key),
        version=found.metadata.resource_version,
    )


LOG_CLUSTER = UserKind(
    resource=LOG_CLUSTERS,
    shelf=lambda objects: objects.clusters,
    status=LogClusterStatus,
    task=Task.CLUSTER,
    reconcile=cluster.reconcile,
    render=logcluster_status.render,
    absent=_leaves_nothing,
)
OF_A_CLUSTER = (
    UserKind(
        resource=TOPICS,
        shelf=lambda objects: objects.topics,
        status=TopicStatus,
        task=Task.TOPIC,
        reconcile=topic.reconcile,
        render=topic_status.render,
        absent=_absent_topics,
    ),
    UserKind(
        resource=REASSIGNMENTS,
        shelf=lambda objects: objects.reassignments,
        status=ReassignmentStatus,
        task=Task.REASSIGNMENT,
        reconcile=reassignment.reconcile,
        render=partial(_render_reconciled, REASSIGNMENTS),
        absent=_absent_reassignments,
    ),
    UserKind(
        resource=REBALANCES,
        shelf=lambda objects: objects.rebalances,
        status=RebalanceStatus,
        task=Task.REBALANCE,
        reconcile=rebalance.reconcile,
        render=partial(_render_reconciled, REBALANCES),
        absent=_absent_rebalances,
    ),
    UserKind(
        resource=VERIFICATIONS,
        shelf=lambda objects: objects.verifications,
        status=VerificationStatus,
        task=Task.VERIFICATION,
        reconcile=verification.reconcile,
        render=partial(_render_reconciled, VERIFICATIONS),
        absent=_leaves_nothing,
    ),
    UserKind(
        resource=VERIFICATION_SCHEDULES,
        shelf=lambda objects: objects.verification_schedules,
        status=VerificationScheduleStatus,
        task=Task.VERIFICATION_SCHEDULE,
        reconcile=verification_schedule.reconcile,
        render=partial(_render_reconciled, VERIFICATION_SCHEDULES),
        absent=_leaves_nothing,
    ),
    UserKind(
        resource=USERS,
        shelf=lambda objects: objects.users,
        status=UserStatus,
        task=Task.USER,
        reconcile=user.reconcile,
        render=partial(_render_reconciled, USERS),
        absent=_absent_users,
    ),
    UserKind(
        resource=LOG_BROKERS,
        shelf=lambda objects: objects.log_brokers,
        status=LogBrokerStatus,
        task=Task.BROKER,
        reconcile=log_broker.reconcile,
        render=render_log_broker,
        absent=log_broker.missing,
    ),
)
"""Kinds of which each object names the LogCluster that it belongs to (`cluster_key`)."""
BUG = "InternalError"
"""Reason of a condition that reports a bug of the operator."""
BUGS_NAMED_MAX = 5
KINDS = (LOG_CLUSTER, *OF_A_CLUSTER)
BY_RESOURCE = {kind.resource: kind for kind in KINDS}

RECONCILERS: dict[Task, Reconcile] = {kind.task: kind.reconcile for kind in KINDS} | {
    Task.ROLLS: restarts.reconcile,
    Task.ABSENT_TOPICS: deletion_proof.reconcile,
    Task.LOG: metadata_log_repair.reconcile,
}


async def reconcile(term: Term, work: Work) -> PassResult:
    """Run one pass of the reconciler for `work` and return its result. `TermEffects` carries the
    result out."""
    return await RECONCILERS[work.task](term, work.key)


def all_work(term: Term, look: Look = lambda _: nullcontext()) -> Iterator[Work]:
    """Yield all work for a resync: the LogCluster, each object that belongs to it, and each deleted
    object that the image still knows. The search for deleted objects of a kind runs within the
    context of `look`."""
    yield Work(Task.CLUSTER, term.key)
    for kind in OF_A_CLUSTER:
        for found in kind.shelf(term.objects):
            if found.cluster_key == term.key:
                yield Work(kind.task, found.key)
    for kind in OF_A_CLUSTER:
        with look(f"the check for deleted {kind.resource.plural}"):
            yield from kind.absent(term)


def draft_of(term: Term, target: Target) -> StatusDraft | None:
    """Return the status to write for an object, from the committed image and the last pass over it.
    An unreadable spec sets its Ready to False, and bugs add Stalled. Return None if the object does
    not exist, or has neither a status yet nor a bug."""
    draft = BY_RESOURCE[target.kind].render(term, (target.namespace, target.name))
    return failing_as_such(term, target, unread_as_such(term, target, draft))


def unread_as_such(term: Term, target: Target, draft: StatusDraft | None) -> StatusDraft | None:
    """Return the draft with Ready set to False and the generation of the object's spec, if that
    spec cannot be decoded: the operator then still applies an earlier one. Return the draft
    unchanged (None too) if the spec can be decoded."""
    shelf = BY_RESOURCE[target.kind].shelf(term.objects)
    unread = shelf.unread((target.namespace, target.name))
    if draft is None or unread is None or unread.metadata.uid != draft.uid:
        return draft
    shown = {c.type: c for c in draft.status.conditions}
    shown["Ready"] = condition("Ready", False, INVALID_SPEC, unread.sentence)
    return replace(
        draft,
        status=msgspec.structs.replace(draft.status, conditions=tuple(shown.values())),
        generation=unread.metadata.generation,
    )


# --- bugs of ours ---------------------------------------------------------------------------------


def target_of(term: Term, work: Work) -> Target:
    """Return the object of which the status shows the result of `work`: the object that it
    reconciles, or the LogCluster if `work` is about no object or a deleted one."""
    for kind in OF_A_CLUSTER:
        if kind.task is work.task and kind.shelf(term.objects).get(work.key) is not None:
            return Target(kind.resource, *work.key)
    return Target(LOG_CLUSTERS, *term.key)


def uid_of(term: Term, target: Target) -> str:
    """Return the uid of the object as last seen, "" if it does not exist."""
    found = BY_RESOURCE[target.kind].shelf(term.objects).get((target.namespace, target.name))
    return "" if found is None else str(found.metadata.uid)


def bugs_of_cluster(term: Term) -> Cause | None:
    """Return the stall cause that names the bugs shown by the LogCluster, or None if it shows
    none."""
    cluster = Target(LOG_CLUSTERS, *term.key)
    found = sorted(
        f"{what} ({failure.where})"
        for what, failure in term.shown.failures.items()
        if failure.target == cluster
    )
    if not found:
        return None
    rest = f" and {len(found) - BUGS_NAMED_MAX} more" if len(found) > BUGS_NAMED_MAX else ""
    return Cause(reason=BUG, message=_bug_sentence(", ".join(found[:BUGS_NAMED_MAX]) + rest))


def failing_as_such(term: Term, target: Target, draft: StatusDraft | None) -> StatusDraft | None:
    """Return the draft with a Stalled condition that names the bugs met in handling this object. If
    a bug kept the newest spec from being reconciled, Ready is False too; otherwise `Ready` still
    describes the spec reconciled last. Without a draft, return one with these two conditions.
    Return the draft unchanged if there is no bug, the object does not exist, or it is the
    LogCluster."""
    if target.kind is LOG_CLUSTERS or not (text := _bugs_of(term, target)):
        return draft
    found = BY_RESOURCE[target.kind].shelf(term.objects).get((target.namespace, target.name))
    if found is None:
        return draft
    if draft is None:
        return bare_draft(term, target, ready=False)
    shown = {c.type: c for c in draft.status.conditions}
    shown["Stalled"] = condition("Stalled", True, BUG, text)
    if draft.generation != found.metadata.generation or "Ready" not in shown:
        shown["Ready"] = condition("Ready", False, BUG, text)
    return replace(
        draft,
        status=msgspec.structs.replace(draft.status, conditions=tuple(shown.values())),
        generation=found.metadata.generation,
    )


def bare_draft(term: Term, target: Target, *, ready: bool | None) -> StatusDraft | None:
    """Return a status that holds only the conditions about bugs in handling the object: Stalled,
    and Ready with the status `ready` (None: Unknown). Return None if the object does not exist."""
    kind, key = BY_RESOURCE[target.kind], (target.namespace, target.name)
    shelf = kind.shelf(term.objects)
    found = shelf.get(key)
    if found is None:
        return None
    text = _bugs_of(term, target)
    conditions = (condition("Ready", ready, BUG, text), condition("Stalled", True, BUG, text))
    status = kind.status(conditions=conditions)
    if isinstance(status, LogClusterStatus):
        status = logcluster_status.with_choices(term, key, status)
    return StatusDraft(
        uid=found.metadata.uid,
        status=status,
        generation=found.metadata.generation,
        shown=shelf.conditions(key),
        version=found.metadata.resource_version,
    )


def _bugs_of(term: Term, target: Target) -> str:
    """Return the sentence that names the bugs met in handling this object (the same uid), "" if
    there are none."""
    uid = uid_of(term, target)
    found = sorted(
        f"{what} ({failure.where})"
        for what, failure in term.shown.failures.items()
        if failure.target == target and failure.uid == uid
    )
    return _bug_sentence(", ".join(found)) if found else ""


def _bug_sentence(where: str) -> str:
    return (
        f"Internal error of the operator in {where}. This object's spec may not be applied "
        "until a retry succeeds; the operator retries within every minute, and at once after a "
        "restart. The previously applied state stays in effect, and other objects are not "
        "affected. Report this with the operator's log lines of plimsoll.failures; undoing the "
        "last change of this object may help."
    )
