"""Request of a Reassignment object to its cluster's controller, with defaults. Pure.

Called by the Reassignment reconciler.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.reassignments import RunReassignment, TopicMove
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.api.reassignment import Move, Reassignment, ReassignmentSpec


def run_request(found: Reassignment, wall_ms: int, server_ms: int) -> RunReassignment:
    """Return the request. `server_ms` is on the clock of the object's creation time."""
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
    """Return the object's reference in the metadata log."""
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
