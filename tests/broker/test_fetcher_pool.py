"""Which fetcher follows which partition, when a fetcher has given up a partition by itself."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from plimsoll_broker.fetcher_pool import FetcherPool
from plimsoll_broker.following import Followed
from plimsoll_core.model import PartitionKey
from plimsoll_core.replica.values import Code

LEADER: Any = 1
TOPIC = UUID(int=7)


def partition(index: int) -> Any:
    return SimpleNamespace(
        key=PartitionKey(TOPIC, index),
        topic_id_bytes=TOPIC.bytes,
        replica=SimpleNamespace(stopped=False, fetches_from=None),
    )


async def test_a_partition_its_fetcher_has_stopped_can_be_unfollowed_last():
    manager: Any = SimpleNamespace(now_ms=lambda: 0)
    epoch: Any = 1
    pool = FetcherPool(manager, lambda: epoch)
    stopped, other = partition(0), partition(1)
    pool.follow(stopped, LEADER)
    pool.follow(other, LEADER)
    try:
        pool._fetchers[LEADER]._refused(Followed(stopped), Code.FENCED_LEADER_EPOCH)
        assert stopped.replica.stopped
        pool.unfollow(other)
        assert not pool._fetchers, "a leader of nothing keeps no fetcher"
        pool.unfollow(stopped)
        pool.follow(stopped, LEADER)
        assert len(pool._fetchers[LEADER]) == 1
    finally:
        await pool.close()
