"""MarkerSender: sends the end markers of decided transactions to the leaders of their partitions.

Which markers are due, and when a refused one is sent again, `plimsoll_core.transactions.markers`
decides. This broker's own partitions get theirs without a request. Source: KIP-98;
docs/protocol.md §4.14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from plimsoll_broker.coordinator.transaction_shard import TransactionShard
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_broker.replication.peer_queues import PeerQueues
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.transactional_appends import MarkerWriter, PartitionMarker
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_core.transactions.markers import DueMarker
from plimsoll_core.transactions.operations import MarkerCode
from plimsoll_process.waits import set_within
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.control_records import EndMarker
from plimsoll_wire.primitives import MalformedMessage

_VERSION = 1


_Codes = dict[tuple[int, TopicPartition], Code]
"""Results by producer id and partition."""


class _Sent(NamedTuple):
    """Markers of one transaction to one leader. `shard`: has decided it."""

    shard: TransactionShard
    marker: DueMarker

    def heard(self, told: _Codes, otherwise: Code) -> None:
        """Report the results; `otherwise` for a marker without one."""
        producer_id = self.marker.producer.producer_id
        self.shard.heard_markers(
            self.marker,
            [
                MarkerCode(one, told.get((producer_id, one), otherwise))
                for one in self.marker.partitions
            ],
        )


class MarkerSender:
    """Sends the markers of the shards that `active` returns. `kick`: set when some may be due."""

    def __init__(
        self, manager: ReplicaManager, active: Callable[[], list[TransactionShard]]
    ) -> None:
        self.kick = asyncio.Event()
        self.queues = PeerQueues[_Sent](manager, "plimsoll-markers", self._send)
        self._manager = manager
        self._active = active
        self._writer = MarkerWriter(manager)

    async def run(self) -> None:
        """Queue markers as they become due, until cancelled. `queues.run` sends them."""
        while True:
            await set_within(self.kick, self._pause_s())
            self.kick.clear()
            self._look()

    def _pause_s(self) -> float | None:
        """Return the time until refused markers are to be sent again; None if there are none."""
        now_ms = self._manager.now_ms()
        times = [at for s in self._active() if (at := s.soft.markers.next_ms()) is not None]
        return max(min(times) - now_ms, 1) / 1000 if times else None

    def _look(self) -> None:
        """Queue all markers that are due, each for the leader of its partition."""
        for shard in self._active():
            for due in shard.take_markers():
                if not due.partitions:
                    shard.heard_markers(due, ())
                for leader, parts in self._by_leader(due.partitions).items():
                    sent = _Sent(shard, due._replace(partitions=tuple(parts)))
                    if leader is None:
                        sent.heard({}, Code.LEADER_NOT_AVAILABLE)
                    else:
                        self.queues.add(leader, sent)

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[BrokerId | None, list[TopicPartition]]:
        found: dict[BrokerId | None, list[TopicPartition]] = {}
        image = self._manager.image
        for one in partitions:
            known = None if image is None else image.partition_named(*one)
            found.setdefault(None if known is None else known.leader, []).append(one)
        return found

    async def _send(self, leader: BrokerId, some: list[_Sent]) -> None:
        """Send markers to one leader, and report the results."""
        led = [one for one in some if one.shard.leads]
        if not led:
            return
        if leader == self._manager.settings.broker_id:
            markers = [one for sent in led for one in _markers(sent)]
            codes = await self._writer.write(markers)
            told = {(one.producer.producer_id, one.partition): code for one, code in codes}
        else:
            told = await self._ask(leader, led)
        for sent in led:
            sent.heard(told, Code.REQUEST_TIMED_OUT)
        self.kick.set()

    async def _ask(self, leader: BrokerId, some: list[_Sent]) -> _Codes:
        """Send one request to another broker; return the codes, none if it does not answer."""
        values = {"markers": [_values(sent) for sent in some]}
        try:
            reply = await self.queues.ask(leader, ApiKey.WRITE_TXN_MARKERS, _VERSION, values)
        except (PeerLost, MalformedMessage):
            return {}
        return {
            (marker.producer_id, TopicPartition(topic.name, one.partition_index)): Code(
                int(one.error_code)
            )
            for marker in reply.markers
            for topic in marker.topics
            for one in topic.partitions
        }


def _markers(sent: _Sent) -> list[PartitionMarker]:
    marker = EndMarker(sent.marker.commits, sent.shard.leader.epoch)
    producer = sent.marker.producer
    return [PartitionMarker(one, producer, marker) for one in sent.marker.partitions]


def _values(sent: _Sent) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for one in sent.marker.partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return {
        "producer_id": sent.marker.producer.producer_id,
        "producer_epoch": sent.marker.producer.epoch,
        "transaction_result": sent.marker.commits,
        "coordinator_epoch": sent.shard.leader.epoch,
        "topics": [{"name": name, "partition_indexes": ids} for name, ids in topics.items()],
    }
