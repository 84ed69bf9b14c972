"""Verifier: asks coordinators whether partitions are part of a producer's open transaction.

Called by the produce handler before a producer's first batch of a transaction in a partition. The
coordinator may be this broker, which is then asked without a request. What the answer permits,
`plimsoll_core.replica.verified_writers` decides. Source: KIP-890, part 1; docs/protocol.md §4.14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from plimsoll_broker.coordinator.hanging_transactions import HangingTransactions
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_broker.replication.peer_queues import PeerQueues
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, ProducerLife, TopicPartition
from plimsoll_core.transactions.operations import PartitionsVerified, VerifyPartitions
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.primitives import MalformedMessage

_VERSION = 4
_LATER = frozenset(
    {
        Code.CONCURRENT_TRANSACTIONS,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
    }
)
Codes = dict[TopicPartition, Code]


@dataclass(frozen=True, slots=True, eq=False)
class _Verification:
    """One question. `answer`: completes with the codes; without any if the coordinator cannot be
    reached."""

    op: VerifyPartitions
    answer: asyncio.Future[Codes]


class Verifier:
    """Verifies partitions of transactions that any broker coordinates."""

    def __init__(self, coordinators: TransactionCoordinators) -> None:
        self.queues = PeerQueues[_Verification](
            coordinators.manager, "plimsoll-verifier", self._ask
        )
        self._coordinators = coordinators

    async def verify(
        self, transactional_id: str, producer: ProducerLife, partitions: Iterable[TopicPartition]
    ) -> Codes:
        """Return for each partition NONE if it is part of the producer's open transaction, or the
        error for its batch: NOT_ENOUGH_REPLICAS, with which clients try again, if the coordinator
        cannot answer now."""
        asked = tuple(partitions)
        op = VerifyPartitions(
            transactional_id=transactional_id, producer=producer, partitions=asked
        )
        leader = self._coordinator(transactional_id)
        codes: Codes = {}
        if leader == self._coordinators.manager.settings.broker_id:
            codes = verified(op, await self._coordinators.ask(transactional_id, op).future())
        elif leader is not None:
            question = _Verification(op, asyncio.get_running_loop().create_future())
            self.queues.add(leader, question)
            codes = await question.answer
        return {one: _for_producer(codes.get(one, Code.NOT_COORDINATOR)) for one in asked}

    def _coordinator(self, transactional_id: str) -> BrokerId | None:
        image, key = (
            self._coordinators.manager.image,
            self._coordinators.partition_of(transactional_id),
        )
        partition = None if image is None or key is None else image.partitions.get(key)
        return None if partition is None else partition.leader

    async def _ask(self, broker_id: BrokerId, some: list[_Verification]) -> None:
        """Ask one broker. Questions about one transactional id go one after another, since the
        reply names nothing else."""
        first = {one.op.transactional_id: one for one in reversed(some)}
        rest = [one for one in some if first[one.op.transactional_id] is not one]
        for one in rest:
            self.queues.add(broker_id, one)
        values = {"transactions": [_values(one.op) for one in first.values()]}
        told: dict[str, Codes] = {}
        try:
            reply = await self.queues.ask(broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, values)
        except (PeerLost, MalformedMessage):
            pass
        else:
            for result in reply.results_by_transaction:
                told[str(result.transactional_id)] = _codes(result)
        for name, one in first.items():
            if not one.answer.done():
                one.answer.set_result(told.get(name, {}))


def _values(op: VerifyPartitions) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for one in op.partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return {
        "transactional_id": op.transactional_id,
        "producer_id": op.producer.producer_id,
        "producer_epoch": op.producer.epoch,
        "verify_only": True,
        "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
    }


def _codes(result: Any) -> Codes:
    return {
        TopicPartition(topic.name, one.partition_index): Code(int(one.partition_error_code))
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


def verified(op: VerifyPartitions, answer: object) -> Codes:
    """Return the coordinator's answer to a verification as one code for each partition."""
    if isinstance(answer, RefusedAsWhole):
        return dict.fromkeys(op.partitions, answer.code)
    assert isinstance(answer, PartitionsVerified), answer
    return {
        one: Code.NONE if one in answer.partitions else Code.INVALID_TXN_STATE
        for one in op.partitions
    }


def _for_producer(code: Code) -> Code:
    """Return the code for a produce, from the answer to its verification."""
    if code in _LATER:
        return Code.NOT_ENOUGH_REPLICAS
    return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED else code


class ServedTransactions(NamedTuple):
    """A broker's part in transactions: the coordinators of those that are here; for the partitions
    that it leads, the verifier, and the search for transactions without a marker."""

    coordinators: TransactionCoordinators
    verifier: Verifier
    hanging: HangingTransactions

    @staticmethod
    def of(coordinators: TransactionCoordinators) -> ServedTransactions:
        hanging = HangingTransactions(coordinators)
        return ServedTransactions(coordinators, Verifier(coordinators), hanging)

    @property
    def now(self) -> bool:
        """True if the cluster has transactions by now (its metadata version)."""
        return self.coordinators.are_served

    def used_bytes(self) -> int:
        """Return the bytes that the transactional ids here are charged."""
        return self.coordinators.memory.pool.used

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task."""
        yield from self.coordinators.tasks()
        yield "verifications", self.verifier.queues.run()
        yield "hanging transactions", self.hanging.run()

    def close(self) -> None:
        self.coordinators.close()
        self.verifier.queues.close()
        self.hanging.close()
