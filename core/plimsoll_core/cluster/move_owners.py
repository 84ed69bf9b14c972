"""The object or client that moves a partition, and the rate limit of its copies.

Called by the decisions that would move replicas, since a partition that one object moves is not
moved by another; and by brokers, which limit copies. Only a replica that a move adds and that is
not in the ISR yet is limited. A replica that fell behind is not, nor one in the ISR, for which the
high watermark waits. The moves of a Reassignment or Rebalance with a limit of its own share that
limit; all other moves share the cluster's. Each broker applies each limit to itself (its
`copy_buckets`).
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
    """A Reassignment or Rebalance object that is moving partitions. `name` is namespace/name.
    `moves` returns True for the partitions that the object moves. `bytes_per_second` None means the
    cluster's limit."""

    kind: Literal["Reassignment", "Rebalance"]
    name: str
    uid: str
    paused: bool
    bytes_per_second: int | None
    moves: Callable[[PartitionKey], bool]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def mover_name(row: Reassignment | Rebalance) -> str:
    """Return the name of a Reassignment or Rebalance in the form of `str(Mover)`. The object may
    have ended."""
    return str(_mover(row, lambda _: False))


def running(image: ClusterImage) -> list[Mover]:
    """Return the Reassignment and Rebalance objects that are moving partitions now."""
    found = [_mover(row, _holds(row)) for row in image.reassignments.values() if row.partitions]
    for uid, rest in image.rebalance_rests.items():
        if rest.active:
            found.append(_mover(image.rebalances[uid], rest.active.__contains__))
    return found


def mover_of(movers: Iterable[Mover], key: PartitionKey) -> Mover | None:
    """Return the object that is moving the partition, or None if none of `movers` is."""
    return next((mover for mover in movers if mover.moves(key)), None)


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


class Limit(NamedTuple):
    """A rate limit for copies to new replicas. `name` is the object that sets it, as shown to
    users, or "cluster". A rate of 0 bytes per second means that the move is paused."""

    name: str
    bytes_per_second: int


def limit_of(mover: Mover | None, cluster_limit: int) -> Limit:
    """Return the rate limit of the copies that `mover` (a Reassignment or Rebalance) causes: 0
    bytes per second while it is paused, else its own limit, or the cluster's if it has none. With
    None, which stands for moves by clients or topics, return the cluster's."""
    if mover is None:
        return Limit(CLUSTER, cluster_limit)
    if not mover.paused and mover.bytes_per_second is None:
        return Limit(CLUSTER, cluster_limit)
    return Limit(str(mover), 0 if mover.paused else mover.bytes_per_second or 0)


def is_limited(partition: Partition, broker_id: BrokerId) -> bool:
    """Return True if the broker is a replica that a move adds and that is not in the ISR yet."""
    return broker_id in partition.adding and broker_id not in partition.isr
