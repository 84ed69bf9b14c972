"""SeenShrinks: counts the replicas that left ISRs led here, by cause as far as a broker can tell.

The replica manager reports images, changed partitions and proposals. A follower that fell behind is
counted when its leader proposes to drop it, even if no controller can commit that; others are
counted when the metadata show it. The operator counts the same from the records, which tell more: a
broker knows of no evictions and of no other broker's disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause, covered_by, seen_in_images
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.ids import BrokerEpoch, BrokerId


class SeenShrinks:
    """`counts` only grow."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self.counts: Counter[Left] = Counter()
        # The newest image, and the one before it.
        self._image: ClusterImage | None = None
        self._before: ClusterImage | None = None
        # By broker: the broker epoch in which it was last active. A later one began with a restart.
        self._lifetimes: dict[BrokerId, BrokerEpoch] = {}
        # Drops that were proposed here and are counted.
        self._proposed: set[tuple[PartitionKey, BrokerId]] = set()

    def update(self, image: ClusterImage) -> None:
        """Take the newest metadata; partitions follow one by one."""
        self._before, self._image = self._image or image, image
        if self._before.brokers is image.brokers and self._lifetimes:
            return
        for broker in image.brokers.values():
            if broker.active:
                self._lifetimes[broker.id] = broker.broker_epoch
        for broker_id in self._lifetimes.keys() - image.brokers.keys():
            del self._lifetimes[broker_id]

    def proposed(self, partition: Partition, leaving: Iterable[BrokerId]) -> None:
        """Count replicas that this leader proposes to drop because they lag."""
        for broker_id in leaving:
            mark = (partition.key, broker_id)
            if mark in self._proposed or self._image is None:
                continue
            self._proposed.add(mark)
            cause = covered_by(self._image, partition, broker_id) or ShrinkCause.LAG
            self.counts[Left(broker_id=broker_id, cause=cause)] += 1

    def applied(self, before: Partition, after: Partition) -> None:
        """Count the replicas that left between two states of a partition."""
        if self._image is None or self._before is None:
            return
        if after.leader == self._broker_id:
            for left in seen_in_images(self._before, self._image, before, after):
                if (after.key, left.broker_id) not in self._proposed:
                    self.counts[self._told(left)] += 1
        self.dropped(before)

    def dropped(self, partition: Partition) -> None:
        """The partition changed or was dropped: its proposals are committed or void."""
        for broker_id in partition.replicas if self._proposed else ():
            self._proposed.discard((partition.key, broker_id))

    def _told(self, left: Left) -> Left:
        """Name RESTART as the cause if the broker is fenced with a new broker epoch."""
        assert self._image is not None
        broker = self._image.brokers.get(left.broker_id)
        known = self._lifetimes.get(left.broker_id)
        began_anew = broker is not None and known is not None and broker.broker_epoch != known
        if left.cause is ShrinkCause.FENCED and began_anew:
            return Left(broker_id=left.broker_id, cause=ShrinkCause.RESTART)
        return left
