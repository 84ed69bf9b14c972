"""The object or client that moves a partition.

Called by the decisions that would move replicas, since a partition that one object moves is not
moved by another; and by brokers, which apply the rate limit of the mover (`limited_copies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from plimsoll_core.cluster.model import (
    ClusterImage,
    PartitionKey,
    Reassignment,
    Rebalance,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """A Reassignment or Rebalance object that is moving partitions. `moves` returns True for the
    partitions that it moves. `bytes_per_second` None means the cluster's limit."""

    kind: Literal["Reassignment", "Rebalance"]
    name: str
    uid: str
    paused: bool
    bytes_per_second: int | None
    moves: Callable[[PartitionKey], bool]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def mover_name(row: Reassignment | Rebalance) -> str:
    """Return the name of a Reassignment or Rebalance as `str(Mover)` gives it; the object may have
    ended."""
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
