"""Progress of a Reassignment: partitions by state, bytes, and single moves. Pure.

Called by `reassignment_status`.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_operator.api import reassignment as api
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.status.copy_meter import Copies, MoveProgress, copied

ACTIVE_MAX = 20


def partition_counts(
    total: int, moving: Iterable[Partition], copies: Copies, rolled_back: int = 0
) -> api.PartitionCounts:
    """Count partitions by state. A moving partition is pending until a new replica holds data."""
    pending = under_way = 0
    for partition in moving:
        sizes = copies.get(partition.key, {})
        begun = any(sizes.get(b) or b in partition.isr for b in partition.adding)
        begun |= not partition.adding
        under_way += begun
        pending += not begun
    return api.PartitionCounts(
        total=total,
        pending=pending,
        copying=under_way,
        done=max(0, total - pending - under_way - rolled_back),
        rolled_back=rolled_back,
    )


def byte_counts(progress: MoveProgress) -> api.ByteCounts:
    rate = progress.rate
    return api.ByteCounts(
        total=binary(progress.total),
        copied=binary(progress.copied),
        left=binary(progress.left),
        rate_per_second=None if rate is None else binary(rate),
    )


def active(
    image: ClusterImage, moving: Iterable[Partition], copies: Copies
) -> tuple[api.ActiveMove, ...] | None:
    """Return the first moving partitions, one by one."""
    rows = []
    for partition in sorted(moving, key=lambda p: (image.topics[p.topic_id].name, p.index)):
        known = copied(partition, copies.get(partition.key, {}))
        rows.append(
            api.ActiveMove(
                topic=image.topics[partition.topic_id].name,
                partition=partition.index,
                from_=partition.settled,
                adding=partition.adding,
                removing=partition.removing,
                copied=None if known is None else binary(known.copied),
                total=None if known is None else binary(known.total),
            )
        )
        if len(rows) == ACTIVE_MAX:
            break
    return tuple(rows) or None
