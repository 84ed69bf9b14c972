"""Derives the moves that a Topic object asks for from the replicas that it states.

Called for DeclareTopic, and in part for the internal topics.  Only what is stated moves anything:
another replication factor, or the rows of an Explicit assignment.  The placement formula is not
applied again: placed replicas stay.  A move under way is left alone, unless a broker that it adds
has been away for long and another broker can take its place.  Sources: the rule of docs/protocol.md
for reassignments; crds/plimsoll.dev_topics.yaml.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition, PartitionKey, Topic
from plimsoll_core.cluster.move_owners import mover_of, running
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import Ids, PartitionUpdate
from plimsoll_core.controller.moves.lost_targets import lost_targets
from plimsoll_core.controller.moves.partition_move import begun, check_target
from plimsoll_core.controller.moves.target_choice import Want, choose
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import DeclareTopic
from plimsoll_core.planner.placement import EXPLICIT

CAUSE = "reassignment by its Topic object"


Moves = tuple[list[tuple[Partition, PartitionUpdate]], bool]
"""The changes that begin moves in this turn, and True if more are to follow in later turns."""


def declared_moves(turn: DecisionContext, topic: Topic, request: DeclareTopic) -> Moves | Refusal:
    """Return the moves that the declaration requires; there are none if all partitions have the
    declared replicas or are moving to them. Return a Refusal if a target is not possible."""
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    partitions = [turn.image.partitions[key] for key in keys]
    at_once = turn.settings.slice_partitions_max
    if request.strategy == EXPLICIT and request.assignment is not None:
        rows = zip(partitions, request.assignment, strict=False)
        targets = [(p, row) for p, row in rows if row != p.target]
        more = len(targets) > at_once
        targets = targets[:at_once]
    else:
        wants = wants_of(turn, request.replication_factor, partitions)
        more = len(wants) > at_once
        chosen = choose(turn, wants[:at_once])
        if isinstance(chosen, Refusal):
            return chosen
        targets = chosen
    wishes = _begun(turn, topic, targets)
    return wishes if isinstance(wishes, Refusal) else (wishes, more)


def wants_of(turn: DecisionContext, factor: int, partitions: list[Partition]) -> list[Want]:
    """Return what to change to give all partitions `factor` replicas: partitions with another
    number, and partitions that are moving to a broker that was lost before it was in sync."""
    wants = [Want(partition=p, size=factor) for p in partitions]
    movers = running(turn.image)
    for p in partitions:
        lost = lost_targets(turn, p) if p.moving else frozenset()
        if lost and len(p.target) == factor and mover_of(movers, p.key) is None:
            wants.append(Want(partition=p, size=factor, off=lost))
    return [want for want in wants if not want.fulfilled]


def _begun(
    turn: DecisionContext, topic: Topic, targets: list[tuple[Partition, Ids]]
) -> list[tuple[Partition, PartitionUpdate]] | Refusal:
    movers = running(turn.image)
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    for p, target in targets:
        held = mover_of(movers, p.key)
        if held is not None:
            return Refusal(
                reason=Reason.ReassignmentInProgress,
                message=(
                    f"{topic.name}-{p.index} is moved by {held}; its replicas change"
                    " when that has ended."
                ),
            )
        refusal = check_target(turn, p, target)
        if refusal:
            return refusal.renamed(Reason.InvalidReplicaAssignment, Reason.PlacementInvalid)
        wish = begun(p, target, away(turn.image))
        if isinstance(wish, Refusal):
            return wish
        wishes.append((p, wish))
    return wishes
