"""Drift of a topic, as its status shows it: its replicas beside the formula's.

The formula places replicas at creation and growth; its result for today's brokers is only shown. A
partition has drifted if the formula would now give other replicas or another order.
"""

from __future__ import annotations

from functools import lru_cache

from plimsoll_core.cluster.model import ClusterImage, Partition, Topic
from plimsoll_core.errors import Refusal
from plimsoll_core.planner import placement
from plimsoll_core.planner.placement import EXPLICIT, Assignment, Located, RackPolicy
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition


def drifted(
    image: ClusterImage, topic: Topic, partitions: list[Partition], policy: RackPolicy
) -> int:
    """Return how many partitions the formula would place differently on the present brokers."""
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
