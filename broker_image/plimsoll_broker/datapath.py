"""The data path of one lifetime, put together: replicas, fetchers, proposals and upkeep.

The lifecycle's `Serving` makes one once the broker epoch is known, runs its tasks, feeds it images
and closes it before the volume closes.  It decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from plimsoll_broker.fetcher import FetcherPool
from plimsoll_broker.proposals import Controller, ProposalSender
from plimsoll_broker.replicas import ReplicaManager, ReplicaSettings
from plimsoll_broker.storage.store import LogStore
from plimsoll_broker.upkeep import Upkeep
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.model import ClusterImage

LAG_CONFIG = "replica.lag.time.max.ms"
LAG_MS = 30_000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class DataPath:
    """Must be made inside the event loop that runs it."""

    def __init__(
        self,
        broker: tuple[BrokerId, BrokerEpoch],
        configs: Mapping[str, str],
        store: LogStore,
        controller: Controller,
    ) -> None:
        broker_id, broker_epoch = broker
        self._store = store
        lag = configs.get(LAG_CONFIG, "")
        settings = ReplicaSettings(
            broker_id=broker_id,
            lag_time_max_ms=int(lag) if lag.isdecimal() else LAG_MS,
            configs=configs,
        )
        self._sender = ProposalSender(controller, lambda: broker, self._altered)
        self.manager = ReplicaManager(settings, store, monotonic_ms, self._sender.propose)
        self._altered_by = self.manager.altered
        self.fetchers = FetcherPool(self.manager, lambda: broker_epoch)
        self.manager.fetchers = self.fetchers
        self._upkeep = Upkeep(self.manager)

    def _altered(self, *answer: Any) -> bool:
        return self._altered_by(*answer)

    def start(self, image: ClusterImage) -> None:
        """Read the volume, set strays aside, open the logs and take up roles."""
        self.manager.start(image, self._store.load(monotonic_ms()))

    def apply_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self.manager.apply_image(old, new)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What must run for as long as the broker does; any end is a failure."""
        yield "proposals", self._sender.run()
        yield "upkeep", self._upkeep.run()
        yield "fetchers", self._watch_fetchers()

    async def _watch_fetchers(self) -> None:
        await self.fetchers.failed

    async def close(self) -> None:
        """No more fetching, nobody waits any more; the logs stay open for the volume to close."""
        await self.fetchers.close()
        self.manager.close()
