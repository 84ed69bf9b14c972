"""Which fetcher follows which partition, when a fetcher has given up a partition by itself."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from plimsoll_broker.replication.fetcher import Fetcher, FetcherPool, Source
from plimsoll_broker.replication.follower_session import Followed
from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.errors import Code

LEADER: Any = 1
ONE = Source(LEADER, 0)
TOPIC = UUID(int=7)


class Replica:
    """What a fetcher tells it."""

    fetches_from = None

    def __init__(self) -> None:
        self.halted = False

    def halt(self) -> None:
        self.halted = True


def partition(index: int) -> Any:
    return SimpleNamespace(
        key=PartitionKey(TOPIC, index), topic_id_bytes=TOPIC.bytes, replica=Replica()
    )


def a_pool(fetchers: int) -> FetcherPool:
    settings = SimpleNamespace(fetchers_per_leader=fetchers)
    manager: Any = SimpleNamespace(now_ms=lambda: 0, settings=settings)
    epoch: Any = 1
    return FetcherPool(manager, lambda: epoch)


async def test_partition_of_stopped_fetcher_can_be_unfollowed():
    pool = a_pool(fetchers=1)
    stopped, other = partition(0), partition(1)
    pool.follow(stopped, LEADER)
    pool.follow(other, LEADER)
    try:
        pool._fetchers[ONE]._refused(Followed(stopped), Code.FENCED_LEADER_EPOCH)
        assert stopped.replica.halted
        pool.unfollow(other)
        assert not pool._fetchers, "a leader of nothing keeps no fetcher"
        pool.unfollow(stopped)
        pool.follow(stopped, LEADER)
        assert len(pool._fetchers[ONE]) == 1
    finally:
        await pool.close()


async def test_leader_reconnected_on_purpose_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reply to the last request had come, so that the next request meets the closed one."""
    pool = a_pool(fetchers=1)
    again = asyncio.Event()

    async def converse(fetcher: Fetcher) -> None:
        if len(fetcher) == 1:
            fetcher._idle_poll, fetcher._connection = True, PeerConnection()
            pool.follow(partition(1), LEADER)
            fetcher._changed.clear()
            raise PeerLost("closed")
        again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Fetcher, "_converse", converse)
    try:
        pool.follow(partition(0), LEADER)
        async with asyncio.timeout(10):
            await again.wait()
        assert pool.lost_leaders() == {}
    finally:
        await pool.close()


async def test_leader_with_closed_connection_is_lost_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it sent last is still being taken up."""
    pool = a_pool(fetchers=1)
    begun = asyncio.Event()

    async def converse(fetcher: Fetcher) -> None:
        fetcher._connection = PeerConnection()
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Fetcher, "_converse", converse)
    try:
        pool.follow(partition(0), LEADER)
        async with asyncio.timeout(10):
            await begun.wait()
        assert pool.lost_leaders() == {}
        connection = pool._fetchers[ONE]._connection
        assert connection is not None
        connection.connection_lost(None)
        assert list(pool.lost_leaders()) == [LEADER]
        assert connection._lost_s is not None
        connection._lost_s -= 60
        assert pool.lost_leaders()[LEADER] >= 60_000, "also while a limit keeps it from asking"
        assert pool._fetchers[ONE].silent_ms == 0, "it was not asked"
    finally:
        await pool.close()


async def test_leader_loss_time_is_the_latest_of_fetchers() -> None:
    pool = a_pool(fetchers=2)
    pool._manager.now_ms = lambda: 60_000
    try:
        for index in (0, 1):
            pool.follow(partition(index), LEADER)
        one, other = pool._fetchers.values()
        one._lost_at_ms, other._lost_at_ms = 0, 59_990
        assert pool.lost_leaders() == {LEADER: 10}
    finally:
        await pool.close()


async def test_partitions_are_shared_evenly_and_reproducibly():
    """num.replica.fetchers: a topic's partitions take turns, and keep their connection."""
    pool, again = a_pool(fetchers=3), a_pool(fetchers=3)
    partitions = [partition(index) for index in range(30)]
    try:
        for one in partitions:
            pool.follow(one, LEADER)
        assert sorted(pool._fetchers) == [Source(LEADER, n) for n in range(3)]
        assert {len(fetcher) for fetcher in pool._fetchers.values()} == {10}
        for one in reversed(partitions):
            again.follow(one, LEADER)
        assert again._following == pool._following
        for one in partitions[::3]:
            pool.unfollow(one)
        assert len(pool._fetchers) == 2, "the third has nothing left to fetch"
    finally:
        await pool.close()
        await again.close()
