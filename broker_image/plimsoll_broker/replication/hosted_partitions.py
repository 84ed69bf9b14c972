"""HostedPartitions: the partitions that a broker hosts, by key and by name.

Owned by `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_core.cluster.model import PartitionKey


class HostedPartitions(dict[PartitionKey, Hosted]):
    """Changed one item at a time."""

    __slots__ = ("_by_name", "_topic_ids")

    def __init__(self) -> None:
        super().__init__()
        self._topic_ids: Mapping[str, UUID] = {}
        # Look-ups by name since the last change: a produce does two, and hashing a UUID is slow.
        self._by_name: dict[tuple[str, int], Hosted] = {}

    def named(self, topic_ids: Mapping[Any, Any]) -> None:
        """Take the topic ids by name of a new image."""
        self._topic_ids = topic_ids
        self._by_name.clear()

    def by_name(self, name: str, index: int) -> Hosted | None:
        hosted = self._by_name.get((name, index))
        if hosted is None and (topic_id := self._topic_ids.get(name)) is not None:
            hosted = self.get(PartitionKey(topic_id, index))
            if hosted is not None:
                self._by_name[name, index] = hosted
        return hosted

    def __setitem__(self, key: PartitionKey, hosted: Hosted) -> None:
        super().__setitem__(key, hosted)
        self._by_name.clear()

    def __delitem__(self, key: PartitionKey) -> None:
        super().__delitem__(key)
        self._by_name.clear()

    def take(self, key: PartitionKey) -> Hosted | None:
        """Remove and return the partition, if it is here."""
        self._by_name.clear()
        return self.pop(key, None)
