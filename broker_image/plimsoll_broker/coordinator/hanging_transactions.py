"""HangingTransactions: ends the open transactions of logs led here that lack a marker.

Every few seconds it looks at all logs led here. Which transactions to ask about, and what the
answers permit, `plimsoll_core.transactions.suspects` decides. The coordinators are asked by
AddPartitionsToTxn 4 without a transactional id; this broker's own ones without a request. Source:
docs/protocol.md §4.14.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_broker.replication.peer_queues import PeerQueues
from plimsoll_broker.replication.transactional_appends import append_marker
from plimsoll_core.cluster.topic_names import INTERNAL_TOPICS, TRANSACTION_STATE
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_core.replica.replica_values import Append
from plimsoll_core.transactions.operations import FatesTold, TellFates, TransactionFate
from plimsoll_core.transactions.suspects import QUIET_MS, LostMarker, OpenTransaction, Suspects
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.control_records import EndMarker
from plimsoll_wire.primitives import MalformedMessage

logger = logging.getLogger("plimsoll.hanging_transactions")
_VERSION = 4
_CODES = {
    TransactionFate.OPEN: Code.CONCURRENT_TRANSACTIONS,
    TransactionFate.COMMITTED: Code.NONE,
    TransactionFate.ABORTED: Code.INVALID_TXN_STATE,
}
_FATES = {code: fate for fate, code in _CODES.items()}
Answer = TransactionFate | Code


class HangingTransactions:
    """Looks for transactions without a marker in the logs led here."""

    def __init__(self, coordinators: TransactionCoordinators) -> None:
        self._coordinators = coordinators
        self._manager = coordinators.manager
        self._links = PeerQueues[None](self._manager, "plimsoll-hanging", _nothing)
        self._suspects = Suspects()

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(QUIET_MS / 1000)
            if self._coordinators.are_served:
                await self._look()

    def close(self) -> None:
        self._links.close()

    async def _look(self) -> None:
        """Ask about the transactions that are due, and end those that may be ended."""
        found = [
            one async for hosted in in_slices(self._manager.hosts()) for one in _open_in(hosted)
        ]
        manager = self._manager
        looked_ms = manager.now_ms()
        asked = self._suspects.look(found, looked_ms)
        brokers = self._brokers() if asked else None
        if not brokers:
            return
        told = await asyncio.gather(*(self._told(broker_id, asked) for broker_id in brokers))
        await manager.flusher.make_durable(manager.store, [one.partition for one in asked])
        # Which brokers to ask is known for certain only from fresh metadata.
        more = () if manager.serving.knows_since(looked_ms - QUIET_MS) else (Code.NOT_COORDINATOR,)
        for one, answers in zip(asked, zip(*told, strict=True), strict=True):
            end = self._suspects.heard(one, (*answers, *more), manager.now_ms())
            if end is not None:
                self._end(one, end)

    def _brokers(self) -> list[BrokerId] | None:
        """Return the brokers that lead the partitions of `__transaction_state`. Return None if one
        has no leader, or the topic does not exist."""
        image = self._manager.image
        topic_id = None if image is None else image.topic_ids.get(TRANSACTION_STATE)
        if image is None or topic_id is None:
            return None
        leaders: dict[BrokerId, None] = {}
        for index in range(image.topics[topic_id].partitions):
            partition = image.partition_named(TRANSACTION_STATE, index)
            if partition is None or partition.leader is None:
                return None
            leaders[partition.leader] = None
        return list(leaders)

    async def _told(self, broker_id: BrokerId, asked: Sequence[OpenTransaction]) -> list[Answer]:
        """Return what one broker answers about each of the transactions."""
        ops = [TellFates(producer=one.producer, partitions=(one.partition,)) for one in asked]
        if broker_id == self._manager.settings.broker_id:
            askers = [self._coordinators.ask("", op) for op in ops]
            return [
                _answer(fate_codes(op, await asker.future()), op.partitions[0])
                for op, asker in zip(ops, askers, strict=True)
            ]
        values = {"transactions": [_values(one) for one in asked]}
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        try:
            reply = await self._links.ask(broker_id, key, _VERSION, values)
        except (PeerLost, MalformedMessage):
            return [Code.COORDINATOR_NOT_AVAILABLE] * len(ops)
        results = [_codes(result) for result in reply.results_by_transaction]
        if len(results) != len(ops):
            return [Code.COORDINATOR_NOT_AVAILABLE] * len(ops)
        return [_answer(codes, op.partitions[0]) for op, codes in zip(ops, results, strict=True)]

    def _end(self, one: OpenTransaction, end: LostMarker) -> None:
        """Append the marker of a transaction, unless its log has changed since the question."""
        hosted = self._manager.by_name(*one.partition)
        if hosted is None or one not in _open_in(hosted):
            return
        (begun,) = (b for b in hosted.log.producers.begun() if b.producer == one.producer)
        commits = end is LostMarker.COMMIT
        marker = EndMarker(commits, max(begun.coordinator_epoch, 0))
        stamp_ms = self._manager.wall_clock.stamp_ms()
        placed = append_marker(self._manager, hosted, one.producer, marker, stamp_ms)
        if isinstance(placed, Append):
            logger.warning(
                "%r: producer %d (epoch %d) has had a transaction open since offset %d that is "
                "over: this log has lost its end marker, probably in an unclean election; this "
                "broker has written the marker again, as %s, and readers of committed records go "
                "on",
                *(hosted, *one.producer, one.first_offset),
                "committed" if commits else "aborted",
            )


async def _nothing(broker_id: BrokerId, some: list[None]) -> None:
    """Nothing is queued: each look asks all brokers itself."""


def _open_in(hosted: Hosted) -> Iterator[OpenTransaction]:
    """Yield the open transactions of a partition that is led here. Those of internal topics end
    with their coordinators' own records."""
    leader = hosted.replica.leader
    producers = hosted.log.producers
    if leader is None or not producers.transactions.open or hosted.name in INTERNAL_TOPICS:
        return
    partition = TopicPartition(hosted.name, hosted.key.index)
    for one in producers.begun():
        yield OpenTransaction(
            partition, leader.epoch, one.producer, one.first_offset, one.last_offset
        )


def fate_codes(op: TellFates, answer: object) -> dict[TopicPartition, Code]:
    """Return a coordinator's answer to the question for fates as one code for each partition:
    CONCURRENT_TRANSACTIONS for an open transaction, NONE for a committed one, INVALID_TXN_STATE for
    an aborted one."""
    if isinstance(answer, RefusedAsWhole):
        return dict.fromkeys(op.partitions, answer.code)
    assert isinstance(answer, FatesTold), answer
    return {partition: _CODES[fate] for partition, fate in answer.fates}


def _answer(codes: dict[TopicPartition, Code], partition: TopicPartition) -> Answer:
    code = codes.get(partition, Code.COORDINATOR_NOT_AVAILABLE)
    return _FATES.get(code, code)


def _values(one: OpenTransaction) -> dict[str, Any]:
    topic = {"name": one.partition.topic, "partitions": [one.partition.partition]}
    return {
        "transactional_id": "",
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.epoch,
        "verify_only": True,
        "topics": [topic],
    }


def _codes(result: Any) -> dict[TopicPartition, Code]:
    return {
        TopicPartition(topic.name, one.partition_index): Code(int(one.partition_error_code))
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
