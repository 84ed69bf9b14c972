"""Checks that a Reassignment object can begin: its topics and brokers exist, are free, named once.

Called by `reassignment_object`.  Missing names are waited for until the object is a minute old; an
error in the object itself is final at once, whatever else moves; a partition that another object
moves is waited for.  Source: the rule of docs/protocol.md for reassignments.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import (
    Partition,
    PartitionKey,
)
from plimsoll_core.cluster.move_owners import Mover, mover_of, running
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import Ids
from plimsoll_core.controller.moves.partition_move import (
    contradicts,
)
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.reassignments import (
    RunReassignment,
    TopicMove,
)
from plimsoll_core.phrasing import ids_text

FINAL = frozenset({Reason.InvalidRequest, Reason.PolicyViolation})
"""The reasons of refusals that end a Reassignment as Failed: the object is wrong, and waiting does
not help."""


MISSING_MS = 60_000
"""Age of an object, in milliseconds, up to which missing names are waited for: objects are often
applied together."""


Named = list[tuple[TopicMove, list[Partition]]]


def wrong_form(request: RunReassignment) -> Refusal | None:
    """Return a refusal for an error in the Reassignment itself, or None. No state of the cluster
    can cure it, so this is checked before anything is waited for."""
    listed: dict[str, set[int]] = {}
    whole: set[str] = set()
    for move in request.moves:
        if refusal := _check_form(move):
            return refusal
        named, indexes = listed.setdefault(move.topic, set()), set(move.partitions or ())
        if both := named & indexes:
            return _invalid(f"Two moves name {move.topic}-{min(both)}. Name it once.")
        named |= indexes
        # With `awayFrom` and no list, only where replicas are says which ones it is about.
        all_of_it = move.partitions is None and move.away_from is None
        if (all_of_it and named) or (move.topic in whole and (all_of_it or indexes)):
            return _invalid(
                f"One move names all partitions of {move.topic}, and another names some of"
                " them. Name each partition once."
            )
        if all_of_it:
            whole.add(move.topic)
    return None


def missing_names(turn: DecisionContext, request: RunReassignment) -> Refusal | None:
    """Refuse a topic, partition or broker that does not exist. A member that has not registered yet
    is accepted."""
    for move in request.moves:
        partitions = _partitions(turn, move)
        if isinstance(partitions, Refusal):
            return partitions
        unknown = set(move.replicas or ()) - set(turn.image.brokers) - set(turn.image.members)
        if unknown:
            text = f"The target of topic {move.topic} names brokers that do not exist: "
            return Refusal(
                reason=Reason.InvalidReplicaAssignment, message=f"{text}{ids_text(unknown)}."
            )
    return None


def named_partitions(turn: DecisionContext, request: RunReassignment) -> Named | Refusal:
    """Return the partitions that each entry names. Refuse if a partition is named twice or is moved
    by another object. An entry that moves replicas away from brokers may have no partition left."""
    found: Named = []
    seen: set[PartitionKey] = set()
    movers = running(turn.image)
    for move in request.moves:
        partitions = _partitions(turn, move)
        if isinstance(partitions, Refusal):
            return partitions
        for p in partitions:
            refusal = _check_free(movers, move, p) or _check_stated(turn, move, p)
            if p.key in seen:
                refusal = _invalid(f"Two moves name {move.topic}-{p.index}. Name it once.")
            if refusal:
                return refusal
            seen.add(p.key)
        found.append((move, partitions))
    leaves = any(move.away_from and move.partitions != () for move in request.moves)
    return found if seen or leaves else _invalid("The moves match no partition.")


def _check_form(move: TopicMove) -> Refusal | None:
    ways = [
        way for way in (move.replicas, move.replication_factor, move.away_from) if way is not None
    ]
    if len(ways) != 1:
        return _invalid(
            "Each move must have exactly one of replicas, replicationFactor and awayFrom."
        )
    if move.replicas is not None and len(set(move.replicas)) != len(move.replicas):
        return _invalid(f"A move of topic {move.topic} names a broker twice.")
    if move.replication_factor is not None and move.replication_factor < 1:
        return _invalid("replicationFactor must be at least 1.")
    return None


def _partitions(turn: DecisionContext, move: TopicMove) -> list[Partition] | Refusal:
    topic_id = turn.image.topic_ids.get(move.topic)
    if topic_id is None:
        return _unknown(f"There is no topic {move.topic}.")
    count = turn.image.topics[topic_id].partitions
    indexes = range(count) if move.partitions is None else dict.fromkeys(move.partitions)
    missing = [index for index in indexes if not 0 <= index < count]
    if missing:
        return _unknown(f"Topic {move.topic} has no partition {missing[0]}.")
    found = [turn.image.partitions[PartitionKey(topic_id, index)] for index in indexes]
    if move.away_from is None:
        return found
    return [p for p in found if not set(p.replicas).isdisjoint(move.away_from)]


def _check_free(movers: Iterable[Mover], move: TopicMove, p: Partition) -> Refusal | None:
    held = mover_of(movers, p.key)
    if held is None:
        return None
    return Refusal(
        reason=Reason.ReassignmentInProgress,
        message=(
            f"{move.topic}-{p.index} is being moved by {held}. This Reassignment begins when that "
            "has ended."
        ),
    )


def _check_stated(turn: DecisionContext, move: TopicMove, p: Partition) -> Refusal | None:
    """Refuse if the Topic object of the partition's topic states other replicas, or another number
    of them, than the move."""
    replicas: Ids = move.replicas or ()
    if move.replicas is None:
        size = move.replication_factor or len(p.target)
        replicas = tuple(BrokerId(-1 - n) for n in range(size))  # whichever will be chosen
    return contradicts(turn.image.topics[p.topic_id], p, replicas)


def _invalid(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)


def _unknown(message: str) -> Refusal:
    return Refusal(reason=Reason.UnknownTopicOrPartition, message=message)
