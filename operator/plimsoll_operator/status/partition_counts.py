"""Counts all partitions of a cluster once, for every gauge that asks about them.

Called for metrics.  The image is a value, so what was counted of one stays true of it; the counts
of the newest are made in slices, so that a hundred thousand partitions do not hold the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_operator.status.partition_health import margin

SLICE = 2_500
"""Partitions counted in one turn of the event loop: a few milliseconds."""
MARGINS = ("-1", "0", "1", "2")
"""What is shown of margins: further ones count with the nearest of these."""


@dataclass(slots=True, kw_only=True)
class PartitionCounts:
    """Grows while it is counted."""

    total: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reduced_to_min_isr: int = 0
    """At min ISR, and a replica that would be in sync is not: unlike one that never has more."""
    moving: int = 0
    not_led_by_preferred: int = 0
    by_margin: Counter[str] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    """By broker."""

    def add(self, partition: Partition) -> None:
        """One more."""
        left, size = margin(partition), len(partition.isr)
        self.total += 1
        self.by_margin[MARGINS[min(max(left, -1), 2) + 1]] += 1
        self.under_replicated += size < len(partition.replicas)
        if partition.adding or partition.removing:
            self.moving += 1
        if partition.leader is None:
            self.offline += 1
            return
        self.leaders[partition.leader] += 1
        self.not_led_by_preferred += partition.leader != partition.replicas[0]
        if left < 0:
            self.under_min_isr += 1
        elif left == 0:
            self.at_min_isr += 1
            self.reduced_to_min_isr += not set(partition.settled) <= set(partition.isr)


def count(partitions: Iterable[Partition]) -> PartitionCounts:
    """In one go."""
    counts = PartitionCounts()
    for partition in partitions:
        counts.add(partition)
    return counts


class CountedImage:
    """The counts of one cluster's newest image, as far as they were made."""

    def __init__(self) -> None:
        self._of: object | None = None
        self._counts = PartitionCounts()
        self._prepared = False

    def read(self, image: ClusterImage) -> PartitionCounts:
        """Of this image, counted now if it was not yet; of an earlier one right after `prepare`."""
        if self._of is not image.partitions and not self._prepared:
            self._keep(image, count(image.partitions.values()))
        self._prepared = False
        return self._counts

    async def prepare(self, image: ClusterImage) -> None:
        """Count this image for the next `read`; others have their turn in between."""
        self._prepared = True
        if self._of is image.partitions:
            return
        counts = PartitionCounts()
        left: Iterator[Partition] = iter(image.partitions.values())
        while part := list(islice(left, SLICE)):
            for partition in part:
                counts.add(partition)
            await asyncio.sleep(0)
        self._keep(image, counts)

    def _keep(self, image: ClusterImage, counts: PartitionCounts) -> None:
        self._of, self._counts = image.partitions, counts
