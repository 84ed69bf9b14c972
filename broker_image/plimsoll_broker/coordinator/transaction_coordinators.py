"""TransactionCoordinators: a shard for each partition of `__transaction_state` led here.

The handlers and the leaders of other partitions ask it. Its tasks load shards, one after another,
and send the markers of decided transactions. It decides nothing about transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.coordinator.led_shards import LedShards
from plimsoll_broker.coordinator.marker_sender import MarkerSender
from plimsoll_broker.coordinator.shard_log import UnreadableLog
from plimsoll_broker.coordinator.transaction_shard import TransactionShard
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.topic_names import TRANSACTION_STATE, TRANSACTIONS_VERSION
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.replica.leader import Leader
from plimsoll_core.transactions.checks import check_named
from plimsoll_core.transactions.memory import TransactionMemory
from plimsoll_core.transactions.operations import TellFates, TransactionOperation
from plimsoll_core.transactions.settings import TransactionSettings

logger = logging.getLogger("plimsoll.transaction_coordinators")


class TransactionCoordinators:
    """The transaction coordinators of one broker. `topics`: has `__transaction_state` created when
    it is missing. `memory`: the memory budget of all transactional ids; None for the default."""

    def __init__(
        self,
        manager: ReplicaManager,
        settings: TransactionSettings,
        topics: InternalTopics,
        memory: TransactionMemory | None = None,
    ) -> None:
        self.topics = topics
        self.memory = TransactionMemory() if memory is None else memory
        self._manager = manager
        self._settings = settings
        self._led = LedShards(manager, TRANSACTION_STATE, self._new_shard)
        self.sender = MarkerSender(manager, self._led.active)

    @property
    def manager(self) -> ReplicaManager:
        return self._manager

    @property
    def loading_ms(self) -> int:
        return self._led.loading_ms

    def shards(self) -> list[TransactionShard]:
        """Return all shards: loading, active or failed."""
        return self._led.all()

    def _new_shard(self, hosted: Hosted, leader: Leader) -> TransactionShard:
        new = TransactionShard(self._manager, hosted, leader, self._settings, self.memory)
        new.markers_due = self.sender.kick.set
        return new

    def stepped(self, hosted: Hosted) -> None:
        """Note a step of a partition of `__transaction_state` that may have begun or ended to be
        led here."""
        self._led.stepped(hosted)

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """Have markers sent to the leaders that the new metadata name."""
        self.sender.kick.set()

    def close(self) -> None:
        """Drop all shards, and create none from now on. Waiting requests get NOT_COORDINATOR."""
        self._led.close()
        self.sender.queues.close()

    # --- being asked ----------------------------------------------------------------------------

    @property
    def are_served(self) -> bool:
        """True if the cluster's metadata version has transactions."""
        image = self._manager.image
        return image is not None and image.metadata_version >= TRANSACTIONS_VERSION

    def partition_of(self, transactional_id: str) -> PartitionKey | None:
        """Return the partition of `__transaction_state` that holds an id. Return None if the topic
        does not exist yet."""
        return self._led.partition_of(transactional_id)

    def ask(self, transactional_id: str, op: TransactionOperation) -> Asker:
        """Pass the operation to the id's shard, which decides it now or, while it loads, later.
        Return the asker, which gets the answer: an error if the id is invalid or no shard here
        coordinates it."""
        if isinstance(op, TellFates):
            return self._ask_owner(op)
        refusal = check_named(transactional_id)
        key = None if refusal is not None else self.partition_of(transactional_id)
        shard = None if key is None else self._led.find(key)
        if shard is not None:
            return shard.ask(op)
        if refusal is None:
            missing = Code.COORDINATOR_NOT_AVAILABLE if key is None else Code.NOT_COORDINATOR
            refusal = RefusedAsWhole(missing)
        asker = Asker()
        asker.answer(refusal)
        return asker

    def _ask_owner(self, op: TellFates) -> Asker:
        """Pass a leader's question to the shard that knows the producer id. If none of those here
        does, the asker gets INVALID_PRODUCER_ID_MAPPING, or while one is loading
        COORDINATOR_LOAD_IN_PROGRESS."""
        active = self._led.active()
        for shard in active:
            name = shard.state.name_of(op.producer.producer_id)
            if name is not None:
                return shard.ask(replace(op, transactional_id=name))
        whole = len(active) == len(self._led.all())
        unknown = Code.INVALID_PRODUCER_ID_MAPPING
        asker = Asker()
        asker.answer(RefusedAsWhole(unknown if whole else Code.COORDINATOR_LOAD_IN_PROGRESS))
        return asker

    # --- its tasks ------------------------------------------------------------------------------

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task. The caller runs them as long as the broker
        runs; if one ends, that is a failure."""
        yield "transaction coordinators", self._run()
        yield "markers", self.sender.run()
        yield "marker queues", self.sender.queues.run()

    async def _run(self) -> None:
        """Load new shards one after another, until cancelled."""
        led = self._led
        while True:
            await led.kick.wait()
            led.kick.clear()
            while led.to_load:
                shard = next(iter(led.to_load))
                del led.to_load[shard]
                await self._load(shard)

    async def _load(self, shard: TransactionShard) -> None:
        """Read the shard's whole log, activate the shard and decide its held operations. If the log
        cannot be read, the shard fails; if leadership ends meanwhile, it is not activated."""
        manager, hosted = self._manager, shard.hosted
        # A new log must be durable before its first append.
        places = [(one.hosted.name, one.hosted.key.index) for one in (shard, *self._led.to_load)]
        await manager.flusher.make_durable(manager.store, places)
        began_s = time.monotonic()
        try:
            records = await shard.load()
        except UnreadableLog as error:
            if shard.leads:
                shard.fail()
                manager.driver.cannot_read(hosted, error.offset, error.fault)
                manager.touch(hosted)
            return
        if shard.leads:
            shard.activate()
            logger.info(
                "%r: this broker has loaded %d transactional ids from %d records of this "
                "partition, in %d ms",
                hosted,
                len(shard.state.ids),
                records,
                (time.monotonic() - began_s) * 1000,
            )
            await shard.decide_held()
