"""FetcherPool: the fetchers of this broker, and which of them follows which partition.

The replica manager assigns leaders. A leader with followed partitions has fetchers; other brokers
are not connected to. It decides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from plimsoll_broker.replication.fetcher import Fetcher
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerEpoch, BrokerId


class Source(NamedTuple):
    """The leader that a partition is fetched from, and the connection. Copies under a limit have a
    connection of their own, one for each limit, so that nothing else waits behind them."""

    leader: BrokerId
    number: int
    limit: str | None = None


class FetcherPool:
    """A few fetchers per leader (num.replica.fetchers), each with a share of the partitions.
    `failed` completes when a fetcher dies, which is a bug."""

    def __init__(self, manager: ReplicaManager, epoch: Callable[[], BrokerEpoch]) -> None:
        self._manager = manager
        self._epoch = epoch
        self._fetchers: dict[Source, Fetcher] = {}
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._following: dict[PartitionKey, Source] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _source(self, key: PartitionKey, leader: BrokerId, limit: str | None) -> Source:
        """Return the source of a partition: always the same for one leader, with a topic's
        partitions distributed in turn."""
        if limit is not None:
            return Source(leader, 0, limit)
        number = (key.topic_id.int + key.index) % self._manager.settings.fetchers_per_leader
        return Source(leader, number)

    def follow(self, hosted: Hosted, leader: BrokerId, limit: str | None = None) -> None:
        self.unfollow(hosted)
        source = self._source(hosted.key, leader, limit)
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            fetcher = self._start(source)
        self._following[hosted.key] = source
        fetcher.follow(hosted)

    def _start(self, source: Source) -> Fetcher:
        leader, number, limit = source
        bucket = None if limit is None else self._manager.copy_buckets.bucket(limit)
        fetcher = self._fetchers[source] = Fetcher(self._manager, leader, self._epoch, bucket)
        name = f"fetcher-{leader}-{number}" if limit is None else f"mover-{leader}-{limit}"
        task = asyncio.create_task(fetcher.run(), name=name)
        task.add_done_callback(self._ended)
        self._tasks[source] = task
        return fetcher

    def unfollow(self, hosted: Hosted) -> None:
        source = self._following.pop(hosted.key, None)
        if source is None:
            return
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            # The fetcher stopped this partition itself, and ended when it lost the rest.
            return
        fetcher.unfollow(hosted)
        if not fetcher:
            # The last partition is gone: close the connection to a leader that may never come back.
            del self._fetchers[source]
            self._tasks.pop(source).cancel()

    def silent_ms(self, key: PartitionKey) -> int:
        """Return for how long the leader of a followed partition has been silent, in ms."""
        source = self._following.get(key)
        fetcher = self._fetchers.get(source) if source is not None else None
        return 0 if fetcher is None else fetcher.silent_ms

    def lost_leaders(self) -> dict[BrokerId, int]:
        """Return the followed leaders that cannot be reached, with the time since, in ms."""
        lost: dict[BrokerId, int] = {}
        for source, fetcher in self._fetchers.items():
            if (ms := fetcher.lost_for_ms) is not None:
                lost[source.leader] = min(ms, lost.get(source.leader, ms))
        return lost

    def limits_changed(self) -> None:
        for source, fetcher in self._fetchers.items():
            if source.limit is not None:
                fetcher.look_again()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._fetchers.clear()
        self._following.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.failed.done():
            self.failed.cancel()
