"""A Reassignment: begun by the controller, followed to its end, rolled back if its object is
deleted.

All state is in the metadata log: the objects that were begun, and the progress of each partition.
So it continues after a restart of the operator, and a deleted object is found by its row. A fresh
read proves the deletion. If no user wanted it (the CRD was deleted, say), the move is rolled back,
and nothing is lost.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Reassignment as Row
from plimsoll_core.messages.reassignments import ReassignmentObjectGone, ReassignmentState
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.conditions import has_ended
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import REASSIGNMENTS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.reassignment.reassignment_request import run_request
from plimsoll_operator.reconcile.reassignment.reassignment_status import FINAL, status_of
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.copy_meter import Meter
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 2_000
REFUSED_MS = 5_000


async def reconcile(term: Term, key: Key) -> None:
    found, target = term.objects.reassignments.get(key), Target(REASSIGNMENTS, *key)
    going = found is None or found.metadata.deletion_timestamp is not None
    for row in _rows(term, key):
        if going or found is None or row.object.uid != found.metadata.uid:
            await _forget(term, row)
    if found is None or going:
        term.shows_no_more(target)
        return
    if found.cluster_key != term.key or term.cluster is None:
        return
    if found.metadata.uid not in term.image.reassignments and has_ended(
        term.objects.reassignments.conditions(key)
    ):
        return  # it ran in an earlier cluster of this name; it runs once
    answer = await term.ask(run_request(found, term.now_ms(), term.server_ms()))
    assert isinstance(answer, ReassignmentState | Refused), answer
    uid = found.metadata.uid
    meter = term.meters.setdefault(uid, Meter())
    copies, now_ms = term.controller.soft.copies, term.monotonic_ms()
    status = status_of(found, term.image, answer, meter, copies, now_ms)
    term.show(target, found.metadata.generation, status)
    if isinstance(answer, Refused):
        raise Retry(answer.message, after_ms=REFUSED_MS)
    if status.phase not in FINAL:
        term.add_later(Work(Task.REASSIGNMENT, key), LOOK_MS)


def abandoned(term: Term) -> list[Key]:
    """Return the objects with a row that are not among those last seen."""
    keys = [(row.object.namespace, row.object.name) for row in term.image.reassignments.values()]
    return [key for key in keys if term.objects.reassignments.get(key) is None]


def _rows(term: Term, key: Key) -> list[Row]:
    rows = term.image.reassignments.values()
    return [row for row in rows if (row.object.namespace, row.object.name) == key]


async def _forget(term: Term, row: Row) -> None:
    """Roll back the moves of a row and forget it, once its object is deleted."""
    if await _exists(term, row):
        return
    answer = await term.ask(ReassignmentObjectGone(object=row.object, wall_ms=term.now_ms()))
    if isinstance(answer, Refused | ReassignmentState) and answer.reason:
        raise Retry(answer.message, after_ms=LOOK_MS)
    term.meters.pop(row.object.uid, None)


async def _exists(term: Term, row: Row) -> bool:
    """Return True if the very object, by uid, exists and is not being deleted."""
    try:
        found = await term.kube.get(REASSIGNMENTS, row.object.namespace, row.object.name)
    except NotFound:
        return False
    except ApiError as error:
        raise Retry(f"cannot read Reassignment {row.object.name}: {error}") from error
    meta = found["metadata"]
    return meta["uid"] == row.object.uid and not meta.get("deletionTimestamp")
