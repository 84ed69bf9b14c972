"""Chooses replicas where only their number, or the brokers to leave, are stated.

Called when a topic's replication factor changes, and for a Reassignment that leaves the choice
open. The planner chooses; this module gives it the loads and the constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.rack_rules import brokers_have_racks
from plimsoll_core.controller.moves.disk_figures import disk_rooms
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.planner.placement import Row
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
"""The greatest number of partitions of which the loads are compared. In a larger cluster only those
of the affected topics are, as a turn must be short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A partition that should have `size` replicas, none of them on the brokers in `off`."""

    partition: Partition
    size: int
    off: AbstractSet[BrokerId] = frozenset()

    @property
    def fulfilled(self) -> bool:
        """Return True if the partition has such replicas, or is moving to such replicas."""
        target = self.partition.target
        return len(target) == self.size and self.off.isdisjoint(target)


def choose(turn: DecisionContext, wants: Sequence[Want]) -> list[tuple[Partition, Row]] | Refusal:
    """Return the replicas that the planner chose for each of `wants`, as pairs of the partition and
    its new replicas, in the order of `wants`. Return a Refusal if too few brokers are suitable."""
    if not wants:
        return []
    image, usable = turn.image, turn.receivers()
    if refusal := brokers_have_racks(turn, (image.brokers[broker] for broker in usable)):
        return refusal
    topics = {want.partition.topic_id: None for want in wants}
    brokers = sorted(image.brokers.items())
    disks = disk_rooms(image, turn.soft, turn.now_ms)
    request = Request(
        brokers=tuple(
            PlanBroker(id=n, rack=b.rack, usable=n in usable, disk=disks.get(n)) for n, b in brokers
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
    """Yield the changes for the planner: one for all wants of a topic that ask for the same."""
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
