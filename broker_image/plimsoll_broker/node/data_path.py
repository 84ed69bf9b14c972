"""The data path of one lifetime, put together: replicas, fetchers, proposals and upkeep.

The lifecycle's `Serving` makes one once the broker epoch is known, runs its tasks, feeds it images
and closes it before the volume closes.  It decides nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from plimsoll_broker.background.threads import in_thread
from plimsoll_broker.clock import monotonic_ms
from plimsoll_broker.replication.fetcher_pool import FetcherPool
from plimsoll_broker.replication.hosted_partition import effective_configs
from plimsoll_broker.replication.maintenance import Upkeep
from plimsoll_broker.replication.replica_manager import (
    ControllerEpochs,
    ReplicaManager,
    ReplicaSettings,
)
from plimsoll_broker.reporting.isr_proposals import ProposalSender, ProposalTarget
from plimsoll_broker.storage.config import LogConfig
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.store import Found, LogStore
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.replica.lease import LeaderLease


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    text = configs.get(name, "")
    return int(text) if text.isdecimal() else default


class ControllerLink(ProposalTarget, ControllerEpochs, Protocol):
    """What the data path needs of the controller client."""


class DataPath:
    """Must be made inside the event loop that runs it."""

    def __init__(
        self,
        broker: tuple[BrokerId, BrokerEpoch],
        configs: Mapping[str, str],
        store: LogStore,
        controller: ControllerLink,
        lease: LeaderLease | None = None,
    ) -> None:
        broker_id, broker_epoch = broker
        self._store = store
        settings = ReplicaSettings(
            broker_id=broker_id,
            lag_time_max_ms=_number(configs, "replica.lag.time.max.ms", 30_000),
            fetchers_per_leader=max(_number(configs, "num.replica.fetchers", 1), 1),
            configs=configs,
        )
        self._sender = ProposalSender(controller, lambda: broker, self._altered)
        self.manager = ReplicaManager(settings, store, monotonic_ms, self._sender.propose)
        self._altered_by = self.manager.altered
        self._found: list[Found] | None = None
        self.fetchers = FetcherPool(self.manager, lambda: broker_epoch)
        self.manager.fetchers = self.fetchers
        self.manager.controllers = controller
        self.manager.lease = lease
        self._upkeep = Upkeep(self.manager)

    def _altered(self, *answer: Any) -> bool:
        return self._altered_by(*answer)

    async def load(self, image: ClusterImage) -> None:
        """Read the volume and recover the logs, one by one and in a thread: a scan may take many
        seconds, and health checks and heartbeats are answered meanwhile."""
        self._found = self._store.load(monotonic_ms())
        settings = self.manager.settings
        for key in image.hosted.get(settings.broker_id) or ():
            topic = image.topics[key.topic_id]
            config = LogConfig.of(effective_configs(topic, settings.configs))
            opened = partial(
                self._store.open_early, topic.name, topic.id, key.index, config, monotonic_ms()
            )
            # Whoever opens it for good meets the same error, and takes it out of service.
            with contextlib.suppress(StorageError):
                await in_thread(opened)

    async def start(self, image: ClusterImage) -> None:
        """Set strays aside and take up roles, with the logs as far as they were loaded."""
        found = self._store.load(monotonic_ms()) if self._found is None else self._found
        await self.manager.start(image, found)
        self._store.save_lowered()

    def apply_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self.manager.apply_image(old, new)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What must run for as long as the broker does; any end is a failure."""
        yield "proposals", self._sender.run()
        yield from self._upkeep.tasks()
        yield from self.manager.flusher.tasks()
        yield "opening", self.manager.opener.run()
        yield "roles", self.manager.roles.run()
        yield "fetchers", self._watch_fetchers()

    async def _watch_fetchers(self) -> None:
        await self.fetchers.failed

    async def close(self) -> None:
        """No more fetching, nobody waits any more; the logs stay open for the volume to close."""
        await self.fetchers.close()
        self.manager.close()
