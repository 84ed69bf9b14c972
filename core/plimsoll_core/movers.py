"""Who moves a partition, and how fast its new replicas may be copied.

Called by brokers, which keep to it.  A replica is limited while it is being added and not yet in
sync: a replica that merely fell behind never is, nor one that commits have begun to wait for.  What
an object with a limit of its own moves has that limit to itself, beside the cluster's; everything
else that moves shares the cluster's.  A broker keeps to each limit by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plimsoll_core.ids import BrokerId
from plimsoll_core.model import ClusterImage, Partition, PartitionKey, Reassignment

CLUSTER = "cluster"

Mover = Reassignment
"""An object that moves partitions."""


class Limit(NamedTuple):
    """`name`: whose limit it is, as people read it.  0 bytes a second: the move is paused."""

    name: str
    bytes_per_second: int


def running(image: ClusterImage) -> list[Mover]:
    """The objects that move partitions now."""
    return [row for row in image.reassignments.values() if row.partitions]


def mover_of(movers: Iterable[Mover], key: PartitionKey) -> Mover | None:
    """Which of them moves a partition."""
    return next((row for row in movers if any(some.holds(key) for some in row.partitions)), None)


def limit_of(mover: Mover | None, cluster_limit: int) -> Limit:
    """How fast an object's moves may go; None: what topics and clients move."""
    if mover is None:
        return Limit(CLUSTER, cluster_limit)
    if not mover.paused and mover.bytes_per_second is None:
        return Limit(CLUSTER, cluster_limit)
    name = f"{type(mover).__name__} {mover.object.namespace}/{mover.object.name}"
    return Limit(name, 0 if mover.paused else mover.bytes_per_second or 0)


def is_limited(partition: Partition, broker_id: BrokerId) -> bool:
    """Whether this broker's copy is one that nobody waits for yet."""
    return broker_id in partition.adding and broker_id not in partition.isr
