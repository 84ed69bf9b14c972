"""The kinds that users apply, and LogBroker, which the operator makes for them to read, one row
each: everything that differs between them, and nothing else.

Watches, resyncs, the queue's work and the status writer loop over these rows; a new kind is a new
row and its folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
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
from plimsoll_operator.kube.resources import (
    LOG_BROKERS,
    LOG_CLUSTERS,
    REASSIGNMENTS,
    REBALANCES,
    TOPICS,
    USERS,
    VERIFICATIONS,
    Kind,
)
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key, Objects, Shelf
from plimsoll_operator.reconcile.cluster import logcluster_status, metadata_log_repair
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.logbroker import reconcile as log_broker
from plimsoll_operator.reconcile.logbroker.logbroker_status import render as render_log_broker
from plimsoll_operator.reconcile.reassignment import reconcile as reassignment
from plimsoll_operator.reconcile.rebalance import reconcile as rebalance
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.restarts import reconcile as restarts
from plimsoll_operator.reconcile.topic import deletion_proof, topic_status
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.verification import reconcile as verification
from plimsoll_operator.status.status_writer import StatusDraft, Target

Reconcile = Callable[[Term, Key], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKind:
    """One kind that users apply or read."""

    # Where the API server keeps its objects.
    resource: Kind
    # Its objects as last seen; the shelf knows the model that an object is read into.
    shelf: Callable[[Objects], Shelf[Any]]
    # What its objects show when no controller leads their cluster: conditions alone.
    status: type[
        LogClusterStatus
        | TopicStatus
        | ReassignmentStatus
        | RebalanceStatus
        | VerificationStatus
        | UserStatus
        | LogBrokerStatus
    ]
    # The work that an event about one of its objects asks for, and what does it.
    task: Task
    reconcile: Reconcile
    # The status of one object; None when there is nothing to say of it.
    render: Callable[[Term, Key], StatusDraft | None]
    # What the absence of objects means: the work for those that left something in the image.
    absent: Callable[[Term], Iterable[Work]]


def _reconcile_cluster(term: Term, _: Key) -> Awaitable[None]:
    return cluster.reconcile(term)


def _absent_topics(term: Term) -> Iterable[Work]:
    """Topics are deleted once the absence is proven and the grace period is over."""
    return (Work(Task.ABSENT_TOPICS, term.key),)


def _absent_reassignments(term: Term) -> Iterable[Work]:
    """Moves are rolled back."""
    return (Work(Task.REASSIGNMENT, key) for key in reassignment.abandoned(term))


def _absent_rebalances(term: Term) -> Iterable[Work]:
    """Moves that have not ended are rolled back."""
    return (Work(Task.REBALANCE, key) for key in rebalance.abandoned(term))


def _absent_users(term: Term) -> Iterable[Work]:
    """They may log in no more, once the absence is proven."""
    return (Work(Task.USER, key) for key in user.abandoned(term))


def _leaves_nothing(_: Term) -> Iterable[Work]:
    """Children go with their owner (ownerReferences), and the image holds nothing."""
    return ()


def _render_reconciled(resource: Kind, term: Term, key: Key) -> StatusDraft | None:
    """The status that the reconciler found at its last pass."""
    shelf = BY_RESOURCE[resource].shelf(term.objects)
    found, reconciled = shelf.get(key), term.statuses.get(Target(resource, *key))
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
    reconcile=_reconcile_cluster,
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
"""Kinds whose objects name the LogCluster that they belong to (`cluster_key`)."""
KINDS = (LOG_CLUSTER, *OF_A_CLUSTER)
BY_RESOURCE = {kind.resource: kind for kind in KINDS}

RECONCILERS: dict[Task, Reconcile] = {kind.task: kind.reconcile for kind in KINDS} | {
    Task.ROLLS: lambda term, _: restarts.reconcile(term),
    Task.ABSENT_TOPICS: lambda term, _: deletion_proof.reconcile(term),
    Task.LOG: lambda term, _: metadata_log_repair.reconcile(term),
}


async def reconcile(term: Term, work: Work) -> None:
    """One pass.  `Retry` when it has to be repeated before the next event or resync."""
    await RECONCILERS[work.task](term, work.key)


def all_work(term: Term) -> Iterator[Work]:
    """The LogCluster, its objects, and what absent objects left: everything, for a resync."""
    yield Work(Task.CLUSTER, term.key)
    for kind in OF_A_CLUSTER:
        for found in kind.shelf(term.objects):
            if found.cluster_key == term.key:
                yield Work(kind.task, found.key)
    for kind in OF_A_CLUSTER:
        yield from kind.absent(term)


def draft_of(term: Term, target: Target) -> StatusDraft | None:
    """An object's status, from the committed image and the last pass of its reconciler."""
    draft = BY_RESOURCE[target.kind].render(term, (target.namespace, target.name))
    return unread_as_such(term, target, draft)


def unread_as_such(term: Term, target: Target, draft: StatusDraft | None) -> StatusDraft | None:
    """A spec that cannot be read is not followed: its object is not Ready, whatever else it is."""
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
