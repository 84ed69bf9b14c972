"""Corrects the volatile state of a term after queued decisions were dropped.

Called by the controller's process when queued records cannot be committed (the log is full, or a
batch was refused) and the term goes on.  Volatile state was updated when they were decided: a
leadership that was about to return would stay away for the rest of the term, and a partition that
was never created would be looked for.  Brokers repeat their reports; decisions over several turns
are either requested again or completed by ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.records import (
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicRemoved,
)
from plimsoll_core.controller.kernel.volatile_state import VolatileState


def unsee(soft: VolatileState, image: ClusterImage, records: Iterable[Record], now_ms: int) -> None:
    """Set the volatile state of all partitions that dropped `records` had changed back to what
    `image` says, the committed one without these records."""
    for record in records:
        for key in _touched(image, record):
            partition = image.partitions.get(key)
            if partition is None:
                soft.forget_partition(key)
            else:
                soft.saw(partition, now_ms)


def _touched(image: ClusterImage, record: Record) -> Iterator[PartitionKey]:
    match record:
        case PartitionsChanged(topic_id=topic_id, ranges=ranges):
            indexes = (n for first, last in ranges for n in range(first, last + 1))
        case PartitionsCreated(topic_id=topic_id, first=first, replicas=rows):
            indexes = (first + n for n in range(len(rows)))
        case TopicRemoved(topic_id=topic_id) if topic_id in image.topics:
            indexes = (n for n in range(image.topics[topic_id].partitions))
        case _:
            return
    for index in indexes:
        yield PartitionKey(topic_id, index)
