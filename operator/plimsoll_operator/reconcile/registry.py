"""Objects that ask for something once: what there is to look at, and what their statuses show.

Called by the leader: reassignments, rebalances and verifications are handled alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from plimsoll_operator.api.conditions import condition
from plimsoll_operator.kube.cache import INVALID_SPEC
from plimsoll_operator.kube.resources import REASSIGNMENTS, REBALANCES
from plimsoll_operator.reconcile.context import Task, Term, Work
from plimsoll_operator.reconcile.reassignment import reconcile as reassignment
from plimsoll_operator.reconcile.rebalance import reconcile as rebalance
from plimsoll_operator.status.writer import StatusDraft, Target


def other_work(term: Term) -> Iterator[Work]:
    """All of the cluster's, and those that are gone but left a row."""
    objects = term.objects
    for move in objects.reassignments:
        if move.cluster_key == term.key:
            yield Work(Task.REASSIGNMENT, move.key)
    for plan in objects.rebalances:
        if plan.cluster_key == term.key:
            yield Work(Task.REBALANCE, plan.key)
    for wanted in objects.verifications:
        if wanted.cluster_key == term.key:
            yield Work(Task.VERIFICATION, wanted.key)
    for key in reassignment.abandoned(term):
        yield Work(Task.REASSIGNMENT, key)
    for key in rebalance.abandoned(term):
        yield Work(Task.REBALANCE, key)


def draft_of(term: Term, target: Target) -> StatusDraft | None:
    """What is shown, as the last look found it."""
    key = (target.namespace, target.name)
    if target.kind is REASSIGNMENTS:
        return _reassignment(term, target)
    if target.kind is REBALANCES:
        return _rebalance(term, target)
    found = term.objects.verifications.get(key)
    status = term.verifications.get(key)
    if found is None or status is None:
        return None
    return StatusDraft(
        uid=found.metadata.uid,
        status=status,
        generation=term.observed.get(key, 0),
        shown=term.objects.verifications.conditions(key),
    )


def unread_as_such(term: Term, target: Target, draft: StatusDraft | None) -> StatusDraft | None:
    """A spec that cannot be read is not followed: its object is not Ready, whatever else it is."""
    unread = term.objects.shelf(target.kind.kind).unread((target.namespace, target.name))
    if draft is None or unread is None or unread.metadata.uid != draft.uid:
        return draft
    shown = {c.type: c for c in draft.status.conditions}
    shown["Ready"] = condition("Ready", False, INVALID_SPEC, unread.sentence)
    return replace(
        draft,
        status=msgspec.structs.replace(draft.status, conditions=tuple(shown.values())),
        generation=unread.metadata.generation,
    )


def _reassignment(term: Term, target: Target) -> StatusDraft | None:
    key = (target.namespace, target.name)
    found = term.objects.reassignments.get(key)
    shown = term.reassignments.get(key)
    if found is None or shown is None:
        return None
    return StatusDraft(
        uid=found.metadata.uid,
        status=shown[1],
        generation=shown[0],
        shown=term.objects.reassignments.conditions(key),
    )


def _rebalance(term: Term, target: Target) -> StatusDraft | None:
    key = (target.namespace, target.name)
    found = term.objects.rebalances.get(key)
    shown = term.rebalances.get(key)
    if found is None or shown is None:
        return None
    return StatusDraft(
        uid=found.metadata.uid,
        status=shown[1],
        generation=shown[0],
        shown=term.objects.rebalances.conditions(key),
    )
