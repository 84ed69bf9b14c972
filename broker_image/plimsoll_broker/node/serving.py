"""Serving: one lifetime of a broker: its data path and its listeners, from start to stop.

`assembly` makes it once the broker epoch is known; `node.broker` starts it, and stops it before the
volume closes. It decides nothing and ensures the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.node.client_listeners import ClientListeners, Register
from plimsoll_broker.node.data_path import DataPath
from plimsoll_broker.node.readiness import is_settled
from plimsoll_broker.reporting.copy_progress import CopyReports
from plimsoll_broker.reporting.replica_logs import RecoveryReports
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_broker.server.listener import Server
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_core.ids import BrokerId


@dataclass(slots=True, kw_only=True, eq=False)
class Serving:
    """Made anew for each lifetime."""

    config: BrokerConfig
    stream: MetadataStream
    data: DataPath

    watch: ImageWatch
    """Lets requests wait for an image; it gets each image after the replicas."""

    coordinators: Coordinators
    """Coordinates the groups of partitions led here."""

    authority: Authority
    """Decides what clients may do."""

    quotas: Quotas
    """The clients' quotas and their usage."""

    long_work: FairWork
    """Clients' work in threads."""

    reports: RecoveryReports
    copies: CopyReports

    clients: ClientListeners
    """The clients' listeners; they serve followers too if these have none of their own."""

    replication: Server
    """The followers' listener; opened only if the config has an address for it."""

    register: Register
    """Commits other endpoints of this lifetime."""

    loaded: bool = False
    """True once the volume is loaded and every partition has its role."""

    @property
    def listeners(self) -> Mapping[str, Server]:
        """The open listeners, by the peers that they serve or by their declared names."""
        if self.config.replication is None:
            return self.clients.servers
        return {**self.clients.servers, "replication": self.replication}

    @property
    def handler_failures(self) -> Mapping[str, int]:
        """Requests that met a bug, by API, on all ports together."""
        counted = Counter[str]()
        for port in (*self.clients.servers.values(), self.replication):
            counted.update(port.stats.handler_failures.counts)
        return counted

    @property
    def settled(self) -> bool:
        return is_settled(self.stream.image, BrokerId(self.config.id))

    async def start(self) -> None:
        """Load the volume, take up roles, listen."""
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
        """Yield the tasks that must run as long as the broker does; the end of any is a failure."""
        yield from self.data.tasks()
        yield from self.coordinators.tasks()
        yield "listeners", self.clients.run(lambda: self.stream.image, self.register)
        if self.config.replication is not None:
            yield "replication listener", self.replication.failure()
        yield "recovery reports", self.reports.run()
        yield "copy reports", self.copies.run()

    async def stop_network(self) -> None:
        """Stop the listeners: no more requests are read or answered."""
        await self.clients.stop()
        await self.replication.stop()

    async def close(self) -> None:
        """Stop fetching; the logs stay open for the volume to close."""
        self.authority.close()
        self.coordinators.close()
        await self.data.close()

    def high_watermarks(self) -> dict[Partition, int]:
        return self.data.manager.high_watermarks()
