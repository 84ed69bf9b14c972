"""The data path of one lifetime and its listeners, wired together.

The lifecycle starts it once this lifetime's epoch is known and stops it before the volume closes.
It decides nothing; it only says who is connected to whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.control.client import ControllerClient
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.handlers.routes import replication_routes, routes
from plimsoll_broker.node.client_limits import client_limits
from plimsoll_broker.node.data_path import DataPath
from plimsoll_broker.reporting.copy_progress import CopyReports
from plimsoll_broker.reporting.replica_logs import RecoveryReports
from plimsoll_broker.server.client_memory import ClientMemory
from plimsoll_broker.server.connection_limits import MIB, ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import Server
from plimsoll_broker.storage.checkpoints import Partition
from plimsoll_broker.storage.store import LogStore
from plimsoll_core.cluster.listeners import Port
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.replica.lease import LeaderLease

REPLICATION_LIMITS = ListenerLimits(
    connections_max=1024,
    idle_ms_max=60_000,
    frame_bytes_max=16 * MIB,
    other_frame_bytes_max=16 * MIB,
    in_flight_max=4,
)
"""Brokers have a few connections to each other and one request on each; the largest names 100,000
partitions."""


class Serving:
    """Made anew for each lifetime, inside the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        client: ControllerClient,
        stream: MetadataStream,
        lifetime: tuple[BrokerEpoch, LeaderLease | None],
    ) -> None:
        self._config = config
        self._broker_id = BrokerId(config.id)
        self._stream = stream
        self.loaded = False
        broker_epoch, lease = lifetime
        broker = (self._broker_id, broker_epoch)
        self.data = DataPath(broker, config.kafka_configs, store, client, lease)
        self._watch = ImageWatch(stream.image)
        self._reports = RecoveryReports(self.data.manager, client, broker)
        self._copies = CopyReports(self.data.manager, client, broker)
        port = Port.EVERYBODY if config.replication is None else Port.CLIENTS
        table = routes(broker, self.data.manager, client, self._watch, port)
        limits, budgets = client_limits(
            config.kafka_configs, config.memory_limit_bytes, config.open_files_max
        )
        self.server = Server(Dispatch(table), limits, ClientMemory(budgets))
        followers = replication_routes(self.data.manager)
        self.replication = Server(Dispatch(followers), REPLICATION_LIMITS)

    @property
    def listeners(self) -> Mapping[str, Server]:
        """By who they are for."""
        if self._config.replication is None:
            return {"clients": self.server}
        return {"clients": self.server, "replication": self.replication}

    @property
    def handler_failures(self) -> Mapping[str, int]:
        """Requests that met a bug, by API, on all ports together."""
        counted = Counter[str]()
        for port in (self.server, self.replication):
            counted.update(port.stats.handler_failures.counts)
        return counted

    @property
    def settled(self) -> bool:
        """In the ISR of every own partition whose ISR is at or below its min ISR, and not about to
        be restarted: while this pod counts as unavailable, no other one is evicted."""
        image = self._stream.image
        if image.restart_granted(self._broker_id):
            return False
        for key in image.hosted.get(self._broker_id) or ():
            partition = image.partitions[key]
            short = len(partition.isr) <= partition.effective_min_isr
            if short and self._broker_id not in partition.isr:
                return False
        return True

    async def start(self) -> None:
        """Load what is on the volume, take up roles, listen."""
        await self.data.load(self._stream.image)
        # The image may have moved on; what it added is opened now, and what it adds meanwhile
        # follows as it does later.
        begun = self._stream.image
        await self.data.start(begun)
        self.loaded = True
        self.data.apply_image(begun, self._stream.image)
        self._stream.subscribe(self.data.apply_image)
        # After the replicas: who is told of a topic finds it there.
        self._stream.subscribe(self._watch.update)
        self._stream.subscribe(self._reports.update)
        self._watch.update(self._watch.image, self._stream.image)
        if (own := self._config.replication) is not None:
            await self.replication.start(own.host, own.port)
        await self.server.start(self._config.listen.host, self._config.listen.port)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What must run for as long as the broker does; any end is a failure."""
        yield from self.data.tasks()
        yield "listener", self.server.failure()
        if self._config.replication is not None:
            yield "replication listener", self.replication.failure()
        yield "recovery reports", self._reports.run()
        yield "copy reports", self._copies.run()

    async def stop_network(self) -> None:
        """Nobody is heard or answered any more."""
        await self.server.stop()
        await self.replication.stop()

    async def close(self) -> None:
        """No more fetching; the logs stay open for the volume to close."""
        await self.data.close()

    def high_watermarks(self) -> dict[Partition, int]:
        return self.data.manager.high_watermarks()
