"""The data path of one lifetime: logs, replicas and the Kafka listener, wired together.

The lifecycle starts it once this lifetime's epoch is known and stops it before the volume closes.
It decides nothing; it only says who is connected to whom.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.controller_client import ControllerClient
from plimsoll_broker.metadata_stream import MetadataStream
from plimsoll_broker.metrics import BrokerMetrics
from plimsoll_broker.storage.checkpoints import Partition
from plimsoll_broker.storage.store import LogStore
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.model import ClusterImage


class Serving:
    """Made anew for each lifetime."""

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        client: ControllerClient,
        metrics: BrokerMetrics,
    ) -> None:
        self._config = config
        self._store = store
        self._client = client
        self._metrics = metrics
        self._image: ClusterImage | None = None

    @property
    def settled(self) -> bool:
        """In the ISR of every own partition whose ISR is at or below its min ISR."""
        image = self._image
        if image is None:
            return False
        broker_id = BrokerId(self._config.id)
        for key in image.hosted.get(broker_id) or ():
            partition = image.partitions[key]
            short = len(partition.isr) <= partition.effective_min_isr
            if short and broker_id not in partition.isr:
                return False
        return True

    async def start(self, stream: MetadataStream, broker_epoch: BrokerEpoch) -> None:
        """Load what is on the volume, take up roles, listen."""
        self._image = stream.image
        stream.subscribe(self._apply)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What must run for as long as the broker does."""
        yield from ()

    async def stop_network(self) -> None:
        """Nobody is heard or answered any more."""

    def high_watermarks(self) -> dict[Partition, int]:
        return {}

    def _apply(self, old: ClusterImage, new: ClusterImage) -> None:
        self._image = new
