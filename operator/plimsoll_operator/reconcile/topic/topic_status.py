"""Status of a Topic: readiness, the health of its partitions, moves, and which partitions have
drifted from the placement formula.

Called by the status writer. Leaders are left out on purpose: they change with every failure, and
the status must stay small. Only the least healthy partitions are listed one by one. Moves of any
origin are shown: another replication factor, a Reassignment, a Rebalance.

The formula places replicas at creation and growth. Its result for the present brokers is only
shown, and moves nothing. A partition has drifted if the formula would now give other replicas or
another order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import msgspec

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.controller.partitions.unclean_recovery import Outlook
from plimsoll_core.errors import Refusal
from plimsoll_core.phrasing import counted, first_few
from plimsoll_core.planner import placement
from plimsoll_core.planner.placement import EXPLICIT, Assignment, Located, RackPolicy
from plimsoll_operator.api import topic as api
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.topic.topic_memory import bound_topic, topics_of
from plimsoll_operator.status.cluster_counts import have, is_healthy, margin, partitions_of
from plimsoll_operator.status.copy_meter import Copies, Meter
from plimsoll_operator.status.status_writer import StatusDraft

ASSIGNMENT_PARTITIONS_MAX = 200
UNHEALTHY_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Facts about unhealthy partitions that are not in the image. `outlook`: returns the cause, and
    the brokers that a partition waits for. `since_ms`: returns the wall-clock time since which a
    partition is unhealthy."""

    outlook: Callable[[Partition], Outlook]
    since_ms: Callable[[PartitionKey], int]


def render(term: Term, key: Key) -> StatusDraft | None:
    """Return the status of the Topic `key`. Return None if it does not exist, belongs to another
    cluster, or was not reconciled in this term yet."""
    found, memory = term.objects.topics.get(key), topics_of(term)
    if found is None or found.cluster_key != term.key or key not in memory.observed:
        return None
    refusal = memory.refusals.get(key)
    bound = bound_topic(term, found)
    if bound is not None:
        sight = Sight(outlook=term.controller.outlook, since_ms=memory.unhealthy.since_ms)
        status = _with_place(term, bound, topic_status(term.image, bound, sight, refusal))
    elif refusal is not None:
        status = api.TopicStatus(topic_name=found.topic_name, conditions=(refusal,))
    else:
        return None
    return StatusDraft(
        uid=found.metadata.uid,
        status=status,
        generation=memory.observed[key],
        shown=term.objects.topics.conditions(key),
        version=found.metadata.resource_version,
    )


def _with_place(term: Term, bound: Topic, status: api.TopicStatus) -> api.TopicStatus:
    """Return the status with the topic's moves and drift added, and the conditions about them."""
    image, meters = term.image, topics_of(term).meters
    partitions = partitions_of(image, bound)
    moving = [p for p in partitions if p.moving]
    if not moving:
        meters.pop(bound.id, None)
    meter = meters.setdefault(bound.id, Meter()) if moving else Meter()
    policy = term.controller.settings.rack_policy
    count = drifted(image, bound, partitions, policy)
    more = (reconciling(moving), drift(image, count, len(partitions)))
    copies, now_ms = term.controller.soft.copies, term.monotonic_ms()
    return msgspec.structs.replace(
        status,
        drifted=count,
        move=move(moving, meter, copies, now_ms),
        conditions=(*status.conditions, *more),
    )


def topic_status(
    image: ClusterImage, topic: Topic, sight: Sight, refusal: Condition | None = None
) -> api.TopicStatus:
    """Return the status of the object that declares `topic`. `refusal` is the condition Ready of
    its latest request if that was refused; None otherwise."""
    partitions = partitions_of(image, topic)
    unhealthy = sorted((p for p in partitions if not is_healthy(p)), key=_badness)
    return api.TopicStatus(
        topic_name=topic.name,
        topic_id=kafka_id(topic.id),
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        min_in_sync_replicas=topic.min_isr,
        strategy=cast("api.Strategy", topic.strategy),
        health=_health(partitions),
        assignment=_assignment(partitions),
        unhealthy=tuple(_unhealthy(p, sight) for p in unhealthy[:UNHEALTHY_MAX]) or None,
        conditions=(refusal or _serving(partitions, sight),),
    )


def _badness(partition: Partition) -> tuple[bool, int, int]:
    """Return a sort key that puts the least healthy partition first."""
    return partition.leader is not None, margin(partition), partition.index


def _health(partitions: list[Partition]) -> api.Health:
    return api.Health(
        full_isr=sum(len(p.isr) == len(p.replicas) for p in partitions),
        at_min_isr=sum(p.leader is not None and margin(p) == 0 for p in partitions),
        under_min_isr=sum(p.leader is not None and margin(p) < 0 for p in partitions),
        offline=sum(p.leader is None for p in partitions),
    )


def _assignment(partitions: list[Partition]) -> tuple[str, ...] | None:
    if len(partitions) > ASSIGNMENT_PARTITIONS_MAX:
        return None
    return tuple(",".join(str(b) for b in p.replicas) for p in partitions)


def _unhealthy(partition: Partition, sight: Sight) -> api.UnhealthyPartition:
    found = sight.outlook(partition)
    loss = None
    if found.loss is not None:
        loss = api.EstimatedLoss(leader=found.loss.leader, records=found.loss.records)
    return api.UnhealthyPartition(
        partition=partition.index,
        leader=-1 if partition.leader is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        elr=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
        waits_for=found.waits_for,
        estimated_loss=loss,
        cause=found.cause,
        since=timestamp(sight.since_ms(partition.key)),
    )


def _serving(partitions: list[Partition], sight: Sight) -> Condition:
    """Return the condition Ready as it follows from the health of the partitions alone."""
    offline = [p for p in partitions if p.leader is None]
    under = [p for p in partitions if p.leader is not None and margin(p) < 0]
    if offline:
        worst = min(offline, key=_badness)
        return condition(
            "Ready",
            False,
            "PartitionsOffline",
            f"{len(offline)} of {len(partitions)} partitions have no leader ({_few(offline)}); "
            "status.unhealthy[].waitsFor lists the brokers that they wait for. "
            f"{sight.outlook(worst).why}",
        )
    if under:
        return condition(
            "Ready",
            False,
            "UnderMinISR",
            f"{len(under)} of {len(partitions)} partitions are below min ISR ({_few(under)}): "
            "reads work, but writes with acks=all are rejected until replicas catch up.",
        )
    return condition(
        "Ready",
        True,
        "Serving",
        f"{have(len(partitions))} a leader and at least min ISR.",
    )


# --- moves ---------------------------------------------------------------------------------------


def move(
    moving: list[Partition], meter: Meter, copies: Copies, now_ms: int
) -> api.TopicMove | None:
    """Return the progress of the topic's moves, or None if no partition is moving. `copies` are the
    sizes that brokers reported, `now_ms` the time on a monotonic clock."""
    if not moving:
        return None
    progress = meter.read(moving, copies, now_ms)
    return api.TopicMove(
        partitions=len(moving),
        bytes_left=binary(progress.left),
        eta_seconds=progress.eta_seconds,
    )


def reconciling(moving: list[Partition]) -> Condition:
    if not moving:
        text = "Every partition has its intended replicas."
        return condition("Reconciling", False, "Done", text)
    changing = any(len(p.target) != len(p.settled) for p in moving)
    reason = "ChangingReplicationFactor" if changing else "MovingReplicas"
    return condition(
        "Reconciling",
        True,
        reason,
        f"The replicas of {counted(len(moving), 'partition')} are moving ({_few(moving)}).",
    )


def _few(partitions: list[Partition]) -> str:
    """Return the first few of these partitions, for parentheses after their number."""
    return first_few([str(p.index) for p in sorted(partitions, key=lambda p: p.index)])


# --- drift ---------------------------------------------------------------------------------------


def drifted(
    image: ClusterImage, topic: Topic, partitions: list[Partition], policy: RackPolicy
) -> int:
    """Return the number of partitions that the formula would place differently on the present
    brokers. Return 0 for strategy Explicit, or with fewer brokers than replicas."""
    if topic.strategy == EXPLICIT:
        return 0
    members = [image.brokers[b] for b in image.members if b in image.brokers]
    pool = tuple((b.id, None if policy == "Ignored" else b.rack) for b in members)
    if topic.replication_factor > len(pool):
        return 0
    first = partitions[0].replicas[0]
    rows = _formula(pool, topic.partitions, topic.replication_factor, topic.strategy, first)
    return sum(p.target != row for p, row in zip(partitions, rows, strict=True))


@lru_cache(maxsize=256)
def _formula(
    pool: tuple[Located, ...], partitions: int, factor: int, strategy: str, first: int
) -> Assignment:
    start = placement.start_at(pool, first)
    rows = placement.place(pool, partitions, factor, strategy, start=start)
    return () if isinstance(rows, Refusal) else rows


def drift(image: ClusterImage, count: int, partitions: int) -> Condition:
    if not count:
        text = "Every partition is placed as the placement formula would place it."
        return condition("DriftDetected", False, "AsPlaced", text)
    empty = [b for b in image.members if b in image.brokers and not image.hosted.get(b)]
    text = (
        f"The placement formula would place {count} of {partitions} partitions differently on "
        "the current brokers. Nothing moves automatically; create a Rebalance to move them."
    )
    return condition("DriftDetected", True, "BrokerAdded" if empty else "ReplicasMoved", text)
