"""A Rebalance's plan: from a committed image to moves that can be approved and begun.

Called by the operator, outside of any turn, since it may take seconds; and by the simulator. This
module makes the planner's request of the image and numbers the moves in its answer. The plan is
compared with the cluster again when it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from plimsoll_core.cluster.model import ClusterImage, PartitionKey, RebalanceMode, RebalanceMove
from plimsoll_core.cluster.record_versions import LOAD_SINCE, release_of
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import MoveLimits
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.draft import WhatIf, what_if
from plimsoll_core.planner.outcome import Plan, plan_hash
from plimsoll_core.planner.placement import RackPolicy
from plimsoll_core.planner.plan import plan
from plimsoll_core.planner.request import (
    AddBrokers,
    EvenLoad,
    FullRebalance,
    Goal,
    PlanBroker,
    PlanPartition,
    PlanTopic,
    PreferredLeaders,
    RemoveBrokers,
    Request,
)
from plimsoll_core.planner.traffic_capacity import TrafficCapacity
from plimsoll_core.planner.waves import Limits, waves


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The goal of a Rebalance, and the inputs that the planner needs beside the image.

    `brokers`: those to add or remove; other modes do not use it. `away`: brokers that have been
    inactive for so long that they get no replicas. `sizes`: the size of one replica in bytes, as
    far as leaders have reported it. `rates`: bytes in and bytes out per second of each partition,
    as far as they were measured. `even_load`: the goal of the mode Load. `disks`: the room
    on brokers' disks, as far as they have reported it. `traffic`: the capacity of brokers, as far
    as their pools declare it. `replicas`: for how many replicas brokers have room, as far as they
    have reported it.
    """

    mode: RebalanceMode
    brokers: tuple[BrokerId, ...] = ()
    limits: MoveLimits = MoveLimits()
    rack_policy: RackPolicy = "Preferred"
    away: AbstractSet[BrokerId] = frozenset()
    sizes: Mapping[PartitionKey, int] = {}
    rates: Mapping[PartitionKey, tuple[float, float]] = {}
    even_load: EvenLoad = EvenLoad()
    disks: Mapping[BrokerId, DiskRoom] = {}
    traffic: Mapping[BrokerId, TrafficCapacity] = {}
    replicas: Mapping[BrokerId, int] = {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with its hash, its moves and then its reorders as numbered moves, the number of waves,
    and for each broker the partitions that its death would now take below min ISR (`risks`)."""

    plan: Plan
    hash: str
    moves: tuple[RebalanceMove, ...]
    waves: int
    risks: tuple[WhatIf, ...]


def too_old(image: ClusterImage, mode: RebalanceMode) -> Refusal | None:
    """Refuse a mode that the cluster's metadata version does not know."""
    if mode != "Load" or image.metadata_version >= LOAD_SINCE:
        return None
    return Refusal(
        reason=Reason.MetadataTooOld,
        message=(
            f"The mode Load needs metadata version {release_of(LOAD_SINCE)}, and"
            f" {release_of(image.metadata_version)} is finalised. Upgrade all brokers first, or use"
            " the mode Full."
        ),
    )


def make(image: ClusterImage, wish: PlanRequest) -> Planned | Refusal:
    if refusal := too_old(image, wish.mode):
        return refusal
    request = question(image, wish)
    answer = plan(request)
    if isinstance(answer, Refusal):
        return answer
    limits = Limits(
        concurrent_moves_per_broker=wish.limits.concurrent_moves_per_broker,
        max_bytes=wish.limits.max_bytes,
    )
    schedule = waves(answer, request.partitions, limits)
    wave_of = {
        move.partition: number
        for number, wave in enumerate(schedule.waves, start=1)
        for move in wave
    }
    last = max(1, len(schedule.waves))
    moves = tuple(
        RebalanceMove(
            number=number,
            topic_id=move.partition.topic_id,
            index=move.partition.index,
            before=move.before,
            after=move.after,
            size=move.size_bytes,
            wave=wave_of.get(move.partition, last),
        )
        for number, move in enumerate((*answer.moves, *answer.reorders))
    )
    return Planned(
        plan=answer,
        hash=plan_hash(answer),
        moves=moves,
        waves=len(schedule.waves),
        risks=what_if(request.partitions, image.brokers),
    )


def question(image: ClusterImage, wish: PlanRequest) -> Request:
    """Return the planner's request for an image and the goal of a Rebalance."""
    brokers = sorted(image.brokers.items())
    return Request(
        brokers=tuple(
            PlanBroker(
                id=n,
                rack=broker.rack,
                usable=image.takes_replicas(n) and n not in wish.away,
                disk=wish.disks.get(n),
                traffic=wish.traffic.get(n),
                replicas_max=wish.replicas.get(n),
            )
            for n, broker in brokers
        ),
        topics=tuple(
            PlanTopic(id=topic.id, name=topic.name, strategy=topic.strategy)
            for topic in image.topics.values()
        ),
        partitions=tuple(
            PlanPartition(
                topic_id=p.topic_id,
                index=p.index,
                replicas=p.target,
                isr=p.isr,
                min_isr=p.min_isr,
                size_bytes=wish.sizes.get(key),
                bytes_in=None if (rates := wish.rates.get(key)) is None else rates[0],
                bytes_out=None if rates is None else rates[1],
            )
            for key, p in image.partitions.items()
        ),
        goal=_goal(wish),
        rack_policy=wish.rack_policy,
    )


def _goal(wish: PlanRequest) -> Goal:
    match wish.mode:
        case "AddBrokers":
            return AddBrokers(brokers=wish.brokers)
        case "RemoveBrokers":
            return RemoveBrokers(brokers=wish.brokers)
        case "PreferredLeaders":
            return PreferredLeaders()
        case "Load":
            return wish.even_load
        case _:
            return FullRebalance()
