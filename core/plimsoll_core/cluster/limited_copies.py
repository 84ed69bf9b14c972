"""Selects the replicas that are copied with a limited rate, and their limit.

Read by the brokers. Only a replica that a move adds and that is not in the ISR yet is limited. A
replica that fell behind is not, nor one in the ISR, for which the high watermark waits. The moves
of a Reassignment or Rebalance with a limit of its own share that limit; all other moves share the
cluster's. Each broker applies each limit to itself (its `copy_buckets`).
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.cluster.model import Partition
from plimsoll_core.cluster.move_owners import Mover
from plimsoll_core.ids import BrokerId

CLUSTER = "cluster"


class Limit(NamedTuple):
    """A rate limit for copies to new replicas. `name` is the object that sets it, as shown to
    users, or "cluster". A rate of 0 bytes per second means that the move is paused."""

    name: str
    bytes_per_second: int


def limit_of(mover: Mover | None, cluster_limit: int) -> Limit:
    """Return the rate limit of the copies that `mover` (a Reassignment or Rebalance) causes: its
    own, or the cluster's if it has none. With None, which stands for moves by clients or topics,
    return the cluster's."""
    if mover is None:
        return Limit(CLUSTER, cluster_limit)
    if not mover.paused and mover.bytes_per_second is None:
        return Limit(CLUSTER, cluster_limit)
    return Limit(str(mover), 0 if mover.paused else mover.bytes_per_second or 0)


def is_limited(partition: Partition, broker_id: BrokerId) -> bool:
    """Return True if the broker is a replica that a move adds and that is not in the ISR yet."""
    return broker_id in partition.adding and broker_id not in partition.isr
