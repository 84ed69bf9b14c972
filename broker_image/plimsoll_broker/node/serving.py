"""Serving: the components of one lifetime of a broker: data path and listeners, from start to stop.

`assembly` makes it once the broker epoch is known. `node.broker` starts it, and stops it before the
volume closes. It decides nothing; it only keeps the order of start and stop.

`DataPath`: the replicas, fetchers, proposals and chores of one lifetime. `Serving` loads it from
the volume, runs its tasks, gives it images and closes it.

`is_settled`: True if no partition's min ISR waits for this broker. `BrokerNode.ready` adds that the
broker runs and is unfenced. While a pod is not ready the PodDisruptionBudget permits no eviction of
another one.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from plimsoll_broker.background import in_thread
from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.node.client_listeners import ClientListeners, Register
from plimsoll_broker.replication.hosted_partitions import log_config
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.reporting.isr_proposals import ProposalSender
from plimsoll_broker.reporting.replica_reports import CopyReports, RecoveryReports
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log_store import Found, LogStore
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId


class DataPath:
    """The replicas, fetchers, proposals and chores of one lifetime of a broker."""

    def __init__(
        self,
        store: LogStore,
        manager: ReplicaManager,
        sender: ProposalSender,
        chores: PeriodicChores,
    ) -> None:
        self._store = store
        self.manager = manager
        self.fetchers = manager.fetchers
        self._sender = sender
        self._chores = chores
        # The directories that `load` found; None until then.
        self._found: list[Found] | None = None

    async def load(self, image: ClusterImage) -> None:
        """Read the volume, and recover the logs of the partitions that the image assigns to this
        broker, one by one. Each log is recovered in a thread, since that may take many seconds:
        meanwhile the broker answers health checks and sends heartbeats. A log that cannot be
        recovered is left to `start`, which takes its replica offline."""
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
        """Put every partition of the image in its role (leading or following). Set aside the
        directories of partitions that the image does not assign to this broker."""
        found = self._store.load(monotonic_ms()) if self._found is None else self._found
        await self.manager.start(image, found)
        self._store.save_lowered()

    def apply_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self.manager.apply_image(old, new)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task. The caller runs them as long as the broker
        runs; if one ends, that is a failure."""
        yield "proposals", self._sender.run()
        yield from self._chores.tasks()
        yield from self.manager.flusher.tasks()
        yield "opening", self.manager.opener.run()
        yield "roles", self.manager.roles.run()
        yield "fetchers", self._watch_fetchers()

    async def _watch_fetchers(self) -> None:
        await self.fetchers.failed

    async def close(self) -> None:
        """Stop fetching and fail the waiting requests. The logs stay open until the store
        closes."""
        await self.fetchers.close()
        self.manager.close()


def is_settled(image: ClusterImage, own_id: BrokerId) -> bool:
    """Return True unless a partition's min ISR may need this broker: it is out of the ISR of a
    partition with no more than min ISR members in sync, or a restart of it has been granted. While
    it is False the broker's pod counts as unavailable, so that no other pod is evicted."""
    if image.restart_granted(own_id):
        return False
    for key in image.hosted.get(own_id) or ():
        partition = image.partitions[key]
        # Nearly always it is in sync: looked at first, no min ISR is computed.
        if own_id not in partition.isr and len(partition.isr) <= partition.effective_min_isr:
            return False
    return True


@dataclass(slots=True, kw_only=True, eq=False)
class Serving:
    """All components of one lifetime of a broker, in the order in which they start and stop."""

    config: BrokerConfig
    stream: MetadataStream
    data: DataPath

    watch: ImageWatch
    """Lets requests wait for a metadata image. It gets each image after the replica manager."""

    coordinators: Coordinators
    """Coordinates the groups of partitions led here."""

    authority: Authority
    """Decides what clients may do."""

    quotas: Quotas
    """The clients' quotas and their usage."""

    long_work: FairWork
    """The pool of threads for clients' long work."""

    reports: RecoveryReports
    copies: CopyReports

    clients: ClientListeners
    """The clients' listeners; they serve followers too if these have none of their own."""

    replication: BrokerListener
    """The followers' listener; opened only if the config has an address for it."""

    register: Register
    """Has the controller commit changed client endpoints."""

    loaded: bool = False
    """True once the volume is loaded and every partition has its role."""

    @property
    def listeners(self) -> Mapping[str, BrokerListener]:
        """The open listeners for clients, by name, and that for followers as "replication"."""
        return {**self.clients.servers, "replication": self.replication}

    @property
    def handler_failures(self) -> Mapping[str, int]:
        """The number of requests that failed by a bug of the broker, by API, on all listeners
        together."""
        counted = Counter[str]()
        for port in (*self.clients.servers.values(), self.replication):
            counted.update(port.stats.handler_failures.counts)
        return counted

    @property
    def settled(self) -> bool:
        """True if no partition's min ISR waits for this broker."""
        return is_settled(self.stream.image, BrokerId(self.config.id))

    async def start(self) -> None:
        """Load the volume, put partitions in their roles, and open the listeners."""
        await self.data.load(self.stream.image)
        # The image may have changed meanwhile. What it added is opened now; later changes follow as
        # usual.
        begun = self.stream.image
        await self.data.start(begun)
        self.loaded = True
        self.data.apply_image(begun, self.stream.image)
        self.stream.subscribe(self.data.apply_image)
        # After the replicas: a client that is told of a topic finds it there.
        self.stream.subscribe(self.coordinators.update)
        self.stream.subscribe(self.watch.update)
        self.stream.subscribe(self.authority.update)
        self.stream.subscribe(self.quotas.update)
        self.stream.subscribe(self.reports.update)
        self.watch.update(self.watch.image, self.stream.image)
        self.authority.update(self.authority.image, self.stream.image)
        self.quotas.update(self.stream.image, self.stream.image)
        if (own := self.config.replication) is not None:
            if (peers := self.replication.inside) is not None:
                peers.let_in_plaintext = lambda: self.replication.plaintext
                peers.changed = self.replication.review
            await self.replication.start(own.host, own.port)
        await self.clients.settle(self.stream.image)
        self.stream.subscribe(self.clients.update)
        await self.clients.register(self.register)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task. The caller runs them as long as the broker
        runs; if one ends, that is a failure."""
        yield from self.data.tasks()
        yield from self.coordinators.tasks()
        yield "listeners", self.clients.run(lambda: self.stream.image, self.register)
        if self.config.replication is not None:
            yield "replication listener", self.replication.failure()
        yield "recovery reports", self.reports.run()
        yield "copy reports", self.copies.run()

    async def stop_network(self) -> None:
        """Stop all listeners: no more requests are read or answered."""
        await self.clients.stop()
        await self.replication.stop()

    async def close(self) -> None:
        """Close the coordinators and the data path. The logs stay open until the store closes."""
        self.authority.close()
        self.coordinators.close()
        await self.data.close()

    def high_watermarks(self) -> dict[Partition, int]:
        return self.data.manager.high_watermarks()
