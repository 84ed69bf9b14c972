"""DataPath: the replicas, fetchers, proposals and upkeep of one lifetime, from load to close.

`Serving` has it read the volume, runs its tasks, feeds it images and closes it before the volume
closes. It decides nothing; `assembly` makes its parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

from plimsoll_broker.background.threads import in_thread
from plimsoll_broker.monotonic_clock import monotonic_ms
from plimsoll_broker.replication.hosted_partition import log_config
from plimsoll_broker.replication.periodic_chores import Upkeep
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.reporting.isr_proposals import ProposalSender
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log_store import Found, LogStore
from plimsoll_core.cluster.model import ClusterImage


class DataPath:
    """`assembly` makes one per lifetime, inside the event loop that runs it."""

    def __init__(
        self, store: LogStore, manager: ReplicaManager, sender: ProposalSender, upkeep: Upkeep
    ) -> None:
        self._store = store
        self.manager = manager
        self.fetchers = manager.fetchers
        self._sender = sender
        self._upkeep = upkeep
        # The directories that `load` found; None until then.
        self._found: list[Found] | None = None

    async def load(self, image: ClusterImage) -> None:
        """Read the volume and recover the logs, one by one and in a thread: a scan may take many
        seconds, and health checks and heartbeats are answered meanwhile."""
        began_ms = monotonic_ms()
        self._found = self._store.load(began_ms)
        settings = self.manager.settings
        for key in image.hosted.get(settings.broker_id) or ():
            topic = image.topics[key.topic_id]
            config = log_config(topic, settings.configs)
            opened = partial(
                self._store.open_early, topic.name, topic.id, key.index, config, monotonic_ms()
            )
            # The regular opening meets the same error, and takes the log offline.
            with contextlib.suppress(StorageError):
                await in_thread(opened)
        self.manager.traffic.load_s = (monotonic_ms() - began_ms) / 1000

    async def start(self, image: ClusterImage) -> None:
        """Set strays aside and take up roles, with the logs loaded so far."""
        found = self._store.load(monotonic_ms()) if self._found is None else self._found
        await self.manager.start(image, found)
        self._store.save_lowered()

    def apply_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self.manager.apply_image(old, new)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that must run as long as the broker does; the end of any is a failure."""
        yield "proposals", self._sender.run()
        yield from self._upkeep.tasks()
        yield from self.manager.flusher.tasks()
        yield "opening", self.manager.opener.run()
        yield "roles", self.manager.roles.run()
        yield "fetchers", self._watch_fetchers()

    async def _watch_fetchers(self) -> None:
        await self.fetchers.failed

    async def close(self) -> None:
        """Stop fetching and fail parked requests; the logs stay open for the volume to close."""
        await self.fetchers.close()
        self.manager.close()
