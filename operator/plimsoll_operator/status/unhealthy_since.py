"""Stores since when each unhealthy partition of a cluster is unhealthy, as far as this term knows.

The metadata log holds no such times, since no decision depends on them. A new term starts without
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.records import PartitionsChanged, PartitionsCreated, Record, TopicRemoved
from plimsoll_core.ids import TopicId
from plimsoll_operator.status.cluster_counts import is_healthy


class Unhealthy:
    """Keeps the unhealthy partitions of one cluster (no leader, or not all replicas in the ISR),
    and since when. Call `begin` with each term and `update` after each commit. Times are wall-clock
    times."""

    def __init__(self) -> None:
        self._since_ms: dict[PartitionKey, int] = {}

    def begin(self, image: ClusterImage, now_ms: int) -> None:
        self._since_ms = {
            key: self._since_ms.get(key, now_ms)
            for key, partition in image.partitions.items()
            if not is_healthy(partition)
        }

    def update(
        self, old: ClusterImage, new: ClusterImage, records: Iterable[Record], now_ms: int
    ) -> set[TopicId]:
        """Update the partitions that `records` changed; the records turn the image `old` into
        `new`, at `now_ms`. Return the topics of the changed partitions that have no leader in
        `new`."""
        leaderless: set[TopicId] = set()
        for record in records:
            match record:
                case PartitionsChanged(topic_id=topic_id, ranges=ranges):
                    indexes = (n for first, last in ranges for n in range(first, last + 1))
                case PartitionsCreated(topic_id=topic_id, first=first, replicas=replicas):
                    indexes = (n for n in range(first, first + len(replicas)))
                case TopicRemoved(topic_id=topic_id):
                    topic = old.topics.get(topic_id)
                    indexes = (n for n in range(topic.partitions if topic else 0))
                case _:
                    continue
            for index in indexes:
                self._look(new, topic_id, index, now_ms)
                partition = new.partitions.get(PartitionKey(topic_id, index))
                if partition is not None and partition.leader is None:
                    leaderless.add(topic_id)
        return leaderless

    def _look(self, image: ClusterImage, topic_id: TopicId, index: int, now_ms: int) -> None:
        key = PartitionKey(topic_id, index)
        found = image.partitions.get(key)
        if found is None or is_healthy(found):
            self._since_ms.pop(key, None)
        else:
            self._since_ms.setdefault(key, now_ms)

    def since_ms(self, key: PartitionKey) -> int:
        """Return the wall-clock time, in milliseconds since 1970, since which this partition is
        unhealthy. Raise `KeyError` if it is healthy."""
        return self._since_ms[key]

    def restless_topics(self, image: ClusterImage) -> list[TopicId]:
        """Return, in order of their ids, the topics with an unhealthy partition that has no leader
        or is moving. Their status changes without a commit."""
        found = set()
        for key in self._since_ms:
            partition = image.partitions.get(key)
            if partition is not None and (partition.leader is None or partition.moving):
                found.add(key.topic_id)
        return sorted(found)
