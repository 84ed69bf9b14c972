"""A broker that follows no leader, whatever its metadata say."""

from __future__ import annotations

import asyncio

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId


class NoFetchers:
    """In place of a broker's fetchers: it is told which leaders to follow, and follows none."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def follow(self, hosted: Hosted, leader: BrokerId, limit: str | None = None) -> None:
        pass

    def unfollow(self, hosted: Hosted) -> None:
        pass

    def silent_ms(self, key: PartitionKey) -> int:
        return 0

    def lost_leaders(self) -> dict[BrokerId, int]:
        return {}

    def limits_changed(self) -> None:
        pass

    async def close(self) -> None:
        pass
