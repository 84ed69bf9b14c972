"""Reconciles a Reassignment: asks the controller to begin it, follows it to its end, and has it
rolled back if its object is deleted.

All state is in the metadata log: the objects that were begun, and the progress of each partition.
So a Reassignment continues after a restart of the operator, and a deleted object is found by its
committed row. A fresh read proves the deletion. If the object was deleted by mistake (with its CRD,
say), the move is rolled back, and no record is lost.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Reassignment as Row
from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import (
    ReassignmentObjectGone,
    ReassignmentState,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.conditions import has_ended, milliseconds
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.api.reassignment import Move, Reassignment, ReassignmentSpec
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import REASSIGNMENTS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reassignment.reassignment_status import FINAL, status_of
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.copy_meter import Meter
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 2_000
REFUSED_MS = 5_000


class _Meters(dict[str, Meter]):
    """Progress of the copies of each Reassignment, by its object's uid."""


def meters_of(term: Term) -> dict[str, Meter]:
    return term.kept(_Meters, _Meters)


async def reconcile(term: Term, key: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    found, target = term.objects.reassignments.get(key), Target(REASSIGNMENTS, *key)
    going = found is None or found.metadata.deletion_timestamp is not None
    for row in _rows(term, key):
        if going or found is None or row.object.uid != found.metadata.uid:
            await _forget(term, row)
    if found is None or going:
        result.show_no_more(target)
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
    meter = meters_of(term).setdefault(uid, Meter())
    copies, now_ms = term.controller.soft.copies, term.monotonic_ms()
    status = status_of(found, term.image, answer, meter, copies, now_ms)
    result.show(target, found.metadata.generation, status)
    if isinstance(answer, Refused):
        raise Retry(answer.message, after_ms=REFUSED_MS)
    if status.phase not in FINAL:
        result.add_later(Work(Task.REASSIGNMENT, key), LOOK_MS)


def abandoned(term: Term) -> list[Key]:
    """Return the keys of committed Reassignments with an object that the watches no longer see."""
    keys = [(row.object.namespace, row.object.name) for row in term.image.reassignments.values()]
    return [key for key in keys if term.objects.reassignments.get(key) is None]


def _rows(term: Term, key: Key) -> list[Row]:
    rows = term.image.reassignments.values()
    return [row for row in rows if (row.object.namespace, row.object.name) == key]


async def _forget(term: Term, row: Row) -> None:
    """Ask the controller to roll back and forget a committed Reassignment, if a read of the API
    server proves that its object is deleted."""
    if await _exists(term, row):
        return
    answer = await term.ask(ReassignmentObjectGone(object=row.object, wall_ms=term.now_ms()))
    if isinstance(answer, Refused | ReassignmentState) and answer.reason:
        raise Retry(answer.message, after_ms=LOOK_MS)
    meters_of(term).pop(row.object.uid, None)


async def _exists(term: Term, row: Row) -> bool:
    """Return True if the object with this uid exists and is not being deleted. Raise Retry if it
    cannot be read."""
    try:
        found = await term.kube.get(REASSIGNMENTS, row.object.namespace, row.object.name)
    except NotFound:
        return False
    except ApiError as error:
        text = (
            "the operator cannot ask the API server if Reassignment "
            f"{row.object.namespace}/{row.object.name} is deleted; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    meta = found["metadata"]
    return meta["uid"] == row.object.uid and not meta.get("deletionTimestamp")


def run_request(found: Reassignment, wall_ms: int, server_ms: int) -> RunReassignment:
    """Return the request to begin or continue the Reassignment by its spec. `wall_ms` is the host's
    clock; `server_ms` is the API server's, which also made the object's creation time."""
    spec, made = found.spec, found.metadata.creation_timestamp
    return RunReassignment(
        object=object_of(found),
        moves=tuple(_topic_move(spec, move) for move in spec.moves),
        bytes_per_second=bytes_per_second(spec.throttle.bytes_per_second)
        if spec.throttle
        else None,
        paused=bool(spec.paused),
        cancelled=bool(spec.cancelled),
        wall_ms=wall_ms,
        waited_ms=max(0, server_ms - milliseconds(made)) if made else 0,
    )


def object_of(found: Reassignment) -> ReassignmentObject:
    """Return the reference to the object for the metadata log."""
    meta = found.metadata
    return ReassignmentObject(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _topic_move(spec: ReassignmentSpec, move: Move) -> TopicMove:
    default = "Block" if move.replicas is not None else "Replan"
    return TopicMove(
        topic=move.topic,
        partitions=move.partitions,
        replicas=_brokers(move.replicas),
        replication_factor=move.replication_factor,
        away_from=_brokers(move.away_from),
        replan=(spec.on_target_lost or default) == "Replan",
    )


def _brokers(numbers: tuple[int, ...] | None) -> tuple[BrokerId, ...] | None:
    return None if numbers is None else tuple(BrokerId(number) for number in numbers)
