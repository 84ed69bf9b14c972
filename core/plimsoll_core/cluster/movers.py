"""The object or client that moves a partition, and the rate limit of its new replicas.

Called by the decisions that would move replicas, since what an object moves is its alone; and by
brokers, which keep to the limits.  A replica is limited while it is being added and not yet in
sync: a replica that merely fell behind never is, nor one that commits have begun to wait for.  What
an object with a limit of its own moves has that limit to itself, beside the cluster's; everything
else that moves shares the cluster's.  A broker keeps to each limit by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from plimsoll_core.cluster.model import (
    ClusterImage,
    Partition,
    PartitionKey,
    Reassignment,
    Rebalance,
)
from plimsoll_core.ids import BrokerId

CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """An object that moves partitions.  `bytes_per_second` None: the cluster's limit."""

    kind: Literal["Reassignment", "Rebalance"]
    name: str
    uid: str
    paused: bool
    bytes_per_second: int | None
    moves: Callable[[PartitionKey], bool]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Limit(NamedTuple):
    """`name`: the limit's owner, as people read it.  0 bytes a second: the move is paused."""

    name: str
    bytes_per_second: int


def running(image: ClusterImage) -> list[Mover]:
    """The objects that move partitions now."""
    found = [_mover(row, _holds(row)) for row in image.reassignments.values() if row.partitions]
    for uid, rest in image.rebalance_rests.items():
        if rest.active:
            found.append(_mover(image.rebalances[uid], rest.active.__contains__))
    return found


def mover_of(movers: Iterable[Mover], key: PartitionKey) -> Mover | None:
    """Which of them moves a partition."""
    return next((mover for mover in movers if mover.moves(key)), None)


def limit_of(mover: Mover | None, cluster_limit: int) -> Limit:
    """How fast an object's moves may go; None: what topics and clients move."""
    if mover is None:
        return Limit(CLUSTER, cluster_limit)
    if not mover.paused and mover.bytes_per_second is None:
        return Limit(CLUSTER, cluster_limit)
    return Limit(str(mover), 0 if mover.paused else mover.bytes_per_second or 0)


def is_limited(partition: Partition, broker_id: BrokerId) -> bool:
    """Whether this broker's copy is being added and not in sync yet."""
    return broker_id in partition.adding and broker_id not in partition.isr


def _mover(row: Reassignment | Rebalance, moves: Callable[[PartitionKey], bool]) -> Mover:
    return Mover(
        kind="Reassignment" if isinstance(row, Reassignment) else "Rebalance",
        name=f"{row.object.namespace}/{row.object.name}",
        uid=row.object.uid,
        paused=row.paused,
        bytes_per_second=row.bytes_per_second,
        moves=moves,
    )


def _holds(row: Reassignment) -> Callable[[PartitionKey], bool]:
    return lambda key: any(some.holds(key) for some in row.partitions)
