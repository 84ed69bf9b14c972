"""CopyBuckets: the buckets that throttle this broker's copies, one for each limit.

The replica manager updates it with the newest metadata and asks which limit applies to a partition.
Fetchers take bytes from a limit's bucket, which all leaders share.
`plimsoll_core.cluster.move_owners` decides which copies are limited.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.cluster.move_owners import (
    CLUSTER,
    Limit,
    Mover,
    is_limited,
    limit_of,
    mover_of,
    running,
)
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.throttle import Bucket


class CopyBuckets:
    """The token buckets that limit how fast this broker copies partitions of reassignments and
    rebalances. `limits`: bytes per second by the limit's name. It always includes the cluster-wide
    limit, even if nothing is copied, so that metrics show a limit that was left set by mistake."""

    def __init__(self, broker_id: BrokerId, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._image: ClusterImage | None = None
        self._movers: list[Mover] = []
        self._buckets: dict[str, Bucket] = {}
        self.limits: dict[str, int] = {}

    def update(self, image: ClusterImage) -> bool:
        """Set the rates of the buckets by a new metadata image, and remove buckets of limits that
        have ended. Return True if a rate, or the set of running reassignments and rebalances, may
        have changed; False if the image changes none of them."""
        old, self._image = self._image, image
        cluster_limit = image.movement_bytes_per_second
        if (
            old is not None
            and old.reassignments is image.reassignments
            and old.rebalances is image.rebalances
            and old.rebalance_rests is image.rebalance_rests
            and old.movement_bytes_per_second == cluster_limit
        ):
            return False
        self._movers = running(image)
        found = (Limit(CLUSTER, cluster_limit), *(limit_of(m, cluster_limit) for m in self._movers))
        self.limits = {limit.name: limit.bytes_per_second for limit in found}
        now_ms = self._now_ms()
        for name, bucket in list(self._buckets.items()):
            if name not in self.limits:
                del self._buckets[name]
            elif bucket.rate != self.limits[name]:
                bucket.limit(self.limits[name], now_ms)
        return True

    def limit(self, partition: Partition) -> Limit | None:
        """Return the limit (name and bytes per second; 0 pauses the copy) that applies to this
        broker's copy of the partition. Return None if the copy is not limited, or before the first
        image."""
        if self._image is None or not is_limited(partition, self._broker_id):
            return None
        mover = mover_of(self._movers, partition.key)
        return limit_of(mover, self._image.movement_bytes_per_second)

    def bucket(self, name: str) -> Bucket:
        """Return the bucket of the limit with this name; create it if there is none. A caller may
        keep using it after the limit has ended."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(self.limits.get(name, 0), self._now_ms())
        return bucket
