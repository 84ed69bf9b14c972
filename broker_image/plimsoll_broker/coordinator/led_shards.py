"""LedShards: a shard for each partition of one internal topic that this broker leads.

The replica manager reports each step of such a partition (`PartitionWatcher`). A shard is made when
a leader epoch begins here, queued to be loaded, and dropped when the epoch ends. `Coordinators` and
`TransactionCoordinators` own one each, and load what is queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from plimsoll_broker.coordinator.coordinator_shard import CoordinatorShard, ShardPhase
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.coordination.hashing import partition_of
from plimsoll_core.replica.leader import Leader

ShardT = TypeVar("ShardT", bound=CoordinatorShard[Any, Any])


class LedShards(Generic[ShardT]):
    """The shards of the topic `name`. `make`: returns a new shard of a partition; `ended`: called
    with each shard that was dropped. `kick`: set when a shard waits to be loaded."""

    def __init__(
        self,
        manager: ReplicaManager,
        name: str,
        make: Callable[[Hosted, Leader], ShardT],
        ended: Callable[[ShardT], None] | None = None,
    ) -> None:
        self.kick = asyncio.Event()
        # Shards that wait to be loaded, in order.
        self.to_load: dict[ShardT, None] = {}
        self._manager = manager
        self._name = name
        self._make = make
        self._ended = ended
        # By partition, for as long as this broker leads it in one leader epoch.
        self._shards: dict[PartitionKey, ShardT] = {}
        self._closed = False
        manager.watchers[name] = self

    def __iter__(self) -> Iterator[ShardT]:
        """Yield all shards: loading, active or failed. They must not change meanwhile."""
        return iter(self._shards.values())

    def all(self) -> list[ShardT]:
        """Return all shards: loading, active or failed."""
        return list(self._shards.values())

    def active(self) -> list[ShardT]:
        """Return the shards that are loaded."""
        return [s for s in self._shards.values() if s.phase is ShardPhase.ACTIVE]

    def find(self, key: PartitionKey) -> ShardT | None:
        return self._shards.get(key)

    def partition_of(self, name: str) -> PartitionKey | None:
        """Return the partition of the topic that holds a group, or a transactional id. Return None
        if the topic does not exist yet."""
        image = self._manager.image
        topic_id = None if image is None else image.topic_ids.get(self._name)
        if image is None or topic_id is None:
            return None
        partitions = image.topics[topic_id].partitions
        return PartitionKey(topic_id, partition_of(name, partitions)) if partitions else None

    @property
    def loading_ms(self) -> int:
        """The time in ms for which the oldest of the shards in loading has waited or loaded; 0 if
        none is loading."""
        now_ms = self._manager.now_ms()
        loading = (s for s in self._shards.values() if s.phase is ShardPhase.LOADING)
        return max((now_ms - shard.begun_ms for shard in loading), default=0)

    def stepped(self, hosted: Hosted) -> None:
        """Make a shard, to be loaded, if this broker has begun to lead the partition, and drop the
        shard of an earlier leader epoch. Ignore partitions of other topics."""
        if hosted.name != self._name:
            return
        shard, leader = self._shards.get(hosted.key), hosted.replica.leader
        if shard is not None and shard.hosted is hosted and shard.leader is leader:
            shard.stepped()
            return
        if self._manager.hosted(hosted.key) is not hosted:
            leader = None  # dropped, or replaced by another replica
        if shard is not None and (leader is not None or shard.hosted is hosted):
            self._drop(shard)
            del self._shards[hosted.key]
            self.to_load.pop(shard, None)
        if leader is not None and not self._closed:
            new = self._make(hosted, leader)
            self._shards[hosted.key] = new
            self.to_load[new] = None
            self.kick.set()

    def close(self) -> None:
        """Drop all shards, and make none from now on. Waiting requests get NOT_COORDINATOR."""
        self._closed = True
        for shard in self._shards.values():
            self._drop(shard)
        self._shards.clear()
        self.to_load.clear()

    def _drop(self, shard: ShardT) -> None:
        shard.drop()
        if self._ended is not None:
            self._ended(shard)
