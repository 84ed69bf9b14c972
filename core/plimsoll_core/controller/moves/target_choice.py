"""Chooses the targets of moves, if only a number of replicas or the brokers to leave are stated,
and again if a target is away.

Called when a Topic object states other replicas, for Reassignments that leave the choice open, and
while moves are carried out. The planner chooses; this module gives it the loads, the constraints
and the disks. Only a stated change moves anything: another replication factor, or the rows of an
Explicit assignment. The placement formula is not applied again: placed replicas stay.

Another target is chosen only if the controller chose the first one (`onTargetLost: Replan`); a
target that a user named is waited for. `end_moves` ends the moves that can end without a change of
their partition: a restart that was granted and never began delays the end of a move, and so does a
controller of an earlier release with a stricter rule; no ISR changes when either is over.

Source: docs/protocol.md §3.0, step 1; crds/plimsoll.dev_topics.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.cluster.move_owners import mover_of, running
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import Ids, PartitionUpdate, ends_now
from plimsoll_core.controller.kernel.rack_rules import brokers_have_racks
from plimsoll_core.controller.kernel.replica_figures import most_replicas
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.controller.moves.move_room import MoveRoom, disk_rooms
from plimsoll_core.controller.moves.partition_move import begun, check_target
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.messages.moves import (
    RunReassignment,
)
from plimsoll_core.messages.requests import DeclareTopic
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.placement import EXPLICIT, Row
from plimsoll_core.planner.plan import plan
from plimsoll_core.planner.request import (
    ChangeTopics,
    MoveOff,
    PlanBroker,
    PlanPartition,
    PlanTopic,
    Request,
    SetReplicationFactor,
    TopicChange,
)

COMPARED_MAX = 20_000
"""The most partitions over which the planner counts the brokers' loads. In a larger cluster it
counts only the affected topics, as a turn must be short."""
DECLARED = "reassignment by its Topic object"
Moves = tuple[list[tuple[Partition, PartitionUpdate]], bool]
"""The changes that begin moves in this turn, and True if more are to follow in later turns."""


class Measured(NamedTuple):
    """What brokers reported, for plans: the size in bytes of one replica of each partition, its
    bytes in and out per second, and the room on each broker's disk. What is unknown is left
    out."""

    sizes: Mapping[PartitionKey, int]
    rates: Mapping[PartitionKey, tuple[float, float]]
    disks: Mapping[BrokerId, DiskRoom]
    replicas: Mapping[BrokerId, int] = {}


def measured(image: ClusterImage, soft: VolatileState, now_ms: int) -> Measured:
    """Return a copy of what brokers have reported, which a thread may read."""
    return Measured(
        sizes=dict(soft.sizes),
        rates={key: one.rates for key, one in soft.traffic.items() if one.rates is not None},
        disks=disk_rooms(image, soft, now_ms),
        replicas=most_replicas(image, soft),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A partition that should have `size` replicas, none of them on the brokers in `off`."""

    partition: Partition
    size: int
    off: AbstractSet[BrokerId] = frozenset()

    @property
    def fulfilled(self) -> bool:
        """Return True if the partition has, or is moving to, exactly `size` replicas outside
        `off`."""
        target = self.partition.target
        return len(target) == self.size and self.off.isdisjoint(target)


def choose(turn: DecisionContext, wants: Sequence[Want]) -> list[tuple[Partition, Row]] | Refusal:
    """Return the replicas that the planner chose for each of `wants`, as pairs of the partition and
    its new replicas, in the order of `wants`. Return a Refusal if too few brokers are suitable,
    their disks have no room, or a required rack is not known."""
    if not wants:
        return []
    image, usable = turn.image, turn.receivers()
    if refusal := brokers_have_racks(turn, (image.brokers[broker] for broker in usable)):
        return refusal
    topics = {want.partition.topic_id: None for want in wants}
    brokers = sorted(image.brokers.items())
    disks = disk_rooms(image, turn.soft, turn.now_ms)
    most = most_replicas(image, turn.soft)
    request = Request(
        brokers=tuple(
            PlanBroker(
                id=n,
                rack=b.rack,
                usable=n in usable,
                disk=disks.get(n),
                replicas_max=most.get(n),
            )
            for n, b in brokers
        ),
        topics=tuple(PlanTopic(id=t, name=image.topics[t].name) for t in image.topics),
        partitions=tuple(_plain(p, turn.soft.sizes.get(p.key)) for p in _compared(image, topics)),
        goal=ChangeTopics(changes=tuple(_changes(wants))),
        rack_policy=turn.settings.rack_policy,
    )
    planned = plan(request)
    if isinstance(planned, Refusal):
        return planned
    after = {move.partition: move.after for move in (*planned.moves, *planned.reorders)}
    return [
        (want.partition, after.get(want.partition.key, want.partition.target)) for want in wants
    ]


def _compared(image: ClusterImage, topics: Iterable[TopicId]) -> Iterable[Partition]:
    if len(image.partitions) <= COMPARED_MAX:
        return image.partitions.values()
    chosen = frozenset(topics)
    return (p for p in image.partitions.values() if p.topic_id in chosen)


def _plain(p: Partition, size: int | None) -> PlanPartition:
    """Return the partition as the planner's input, with the replicas of its target. `size` is the
    size of one replica in bytes, None if unknown."""
    return PlanPartition(
        topic_id=p.topic_id,
        index=p.index,
        replicas=p.target,
        isr=p.isr,
        min_isr=p.min_isr,
        size_bytes=size,
    )


def _changes(wants: Iterable[Want]) -> Iterable[TopicChange]:
    """Yield the changes for the planner: one for all wants of a topic with the same replication
    factor, or with the same brokers to leave."""
    groups: dict[tuple[TopicId, int | frozenset[BrokerId]], list[int]] = {}
    for want in wants:
        p = want.partition
        way = frozenset(want.off) if want.size == len(p.target) else want.size
        groups.setdefault((p.topic_id, way), []).append(p.index)
    for (topic_id, way), indexes in groups.items():
        partitions = tuple(sorted(indexes))
        if isinstance(way, int):
            yield SetReplicationFactor(
                topic_id=topic_id, replication_factor=way, partitions=partitions
            )
        else:
            yield MoveOff(topic_id=topic_id, brokers=tuple(sorted(way)), partitions=partitions)


def note_away(turn: DecisionContext) -> None:
    """Record when this term first saw each inactive broker inactive, and forget the active ones. No
    broker counts as lost because its cluster hibernates."""
    away = turn.soft.away_ms
    for broker_id, broker in turn.image.brokers.items():
        if broker.active or turn.image.hibernated:
            away.pop(broker_id, None)
        else:
            away.setdefault(broker_id, turn.now_ms)


def waited_for(turn: DecisionContext, p: Partition) -> list[BrokerId]:
    """Return the inactive brokers that the partition's move waits for, in the order of its target.
    First these are added replicas outside the ISR. If all added replicas are in the ISR, the move
    waits for replicas that stay: without them the ISR is too small for it to end."""
    added = set(p.adding)
    missing = [b for b in p.target if b not in p.isr]
    needed = [b for b in missing if b in added] or missing
    return [b for b in needed if not turn.acceptable(b)]


def lost_targets(turn: DecisionContext, p: Partition) -> frozenset[BrokerId]:
    """Return the brokers that the partition's move waits for and that have been inactive for at
    least `target_lost_ms`."""
    limit_ms = turn.settings.target_lost_ms
    away = turn.soft.away_ms
    return frozenset(
        b for b in waited_for(turn, p) if turn.now_ms - away.get(b, turn.now_ms) >= limit_ms
    )


def is_lost(turn: DecisionContext, broker: BrokerId) -> bool:
    """Return True if a move should get another target in place of this broker: it takes no new
    replicas, or has been inactive for at least `target_lost_ms`."""
    if not turn.image.takes_replicas(broker):
        return True
    if turn.acceptable(broker):
        return False
    away_ms = turn.now_ms - turn.soft.away_ms.get(broker, turn.now_ms)
    return away_ms >= turn.settings.target_lost_ms


def replans(turn: DecisionContext, request: RunReassignment, p: Partition) -> bool:
    """Return True if the Reassignment permits the controller to choose another target for the
    partition."""
    name = turn.image.topics[p.topic_id].name
    return any(
        move.replan and move.topic == name and (not move.partitions or p.index in move.partitions)
        for move in request.moves
    )


def end_moves(turn: DecisionContext) -> None:
    """End the moves that are complete without a change of their ISR. At most one slice of
    partitions is changed; later ticks change the rest."""
    absent = away(turn.image)
    found = (turn.image.partitions.get(key) for key in turn.soft.moving)
    over = (p for p in found if p is not None and p.moving and ends_now(p, absent))
    now = list(islice(over, turn.settings.slice_partitions_max))
    turn.change([(p, PartitionUpdate()) for p in now], "reassignment completed")


def declared_moves(turn: DecisionContext, topic: Topic, request: DeclareTopic) -> Moves | Refusal:
    """Return the moves that the declaration requires, at most one slice of partitions; there are
    none if all partitions have the declared replicas or are moving to them. Return a Refusal if a
    target is not possible or another object moves a partition."""
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    partitions = [turn.image.partitions[key] for key in keys]
    at_once = turn.settings.slice_partitions_max
    if request.strategy == EXPLICIT and request.assignment is not None:
        rows = zip(partitions, request.assignment, strict=False)
        targets = [(p, row) for p, row in rows if row != p.target]
        more = len(targets) > at_once
        targets = targets[:at_once]
        if (full := MoveRoom(turn).refusal(targets)) is not None:
            return full
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
    """Return the changes that give all partitions `factor` replicas: for partitions with another
    number, and for partitions that no Reassignment or Rebalance moves and that are moving to a
    broker that was lost before it was in sync."""
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
    hold = hour_hold(turn.settings.hours, VoluntaryWork.MOVE)
    for p, target in targets:
        if hold is not None and not p.moving:
            return hold.refusal
        held = mover_of(movers, p.key)
        if held is not None:
            return Refusal(
                reason=Reason.ReassignmentInProgress,
                message=(
                    f"The replicas of partition {topic.name}-{p.index} do not change to those of "
                    f"the Topic object yet, because {held} is moving the partition; they change "
                    "when that move has ended."
                ),
            )
        refusal = check_target(turn, p, target)
        if refusal:
            return refusal.renamed(Reason.InvalidReplicaAssignment, Reason.PlacementInvalid)
        wish = begun(p, turn.image.name_of(p), target, away(turn.image))
        if isinstance(wish, Refusal):
            return wish
        wishes.append((p, wish))
    return wishes
