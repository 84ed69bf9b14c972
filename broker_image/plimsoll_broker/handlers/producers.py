"""The APIs of idempotent producers.

`InitProducerId`: gives every idempotent producer a unique id (KIP-98, KIP-360). Ids come from
blocks that the controller commits. If a broker is lost, the rest of its block is never used. With
a transactional id the id's coordinator answers.

`DescribeProducers`: the idempotent producers that a partition knows, with their open transactions,
for finding the writers of the partition. A broker reports the state of its own replica, leading or
following, as in Kafka. Source: KIP-664.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers.long_work import Aside, in_turns, things
from plimsoll_broker.handlers.transactions.transaction_api import code_for
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.reporting.isr_proposals import ProposalTarget
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerLifetime, ProducerLife
from plimsoll_core.messages.requests import AllocateProducerIds, ProducerIdBlock
from plimsoll_core.replica.producer_states import ActiveProducer
from plimsoll_core.transactions.operations import (
    InitProducer,
    ProducerIdWanted,
    ProducerInitialized,
)
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

# Kafka's answer while it waits for a block. COORDINATOR_NOT_AVAILABLE would send a client looking
# for a transaction coordinator, which an idempotent producer does not need.
WAITING = Code.COORDINATOR_LOAD_IN_PROGRESS
NO_PRODUCER = -1
"""The value of producer id and epoch in a request of a producer that has neither yet."""
ALLOCATE_MS_MAX = 10_000
FENCED_VERSION = 4
"""The version of InitProducerId from which on clients know PRODUCER_FENCED."""


class ProducerIds:
    """The block of producer ids that the controller has allocated to this broker. One allocation is
    in flight at a time; other requests wait for it."""

    def __init__(self, controller: ProposalTarget, broker: BrokerLifetime) -> None:
        self._controller = controller
        self._broker = broker
        self._next = self._end = 0
        self._allocating = asyncio.Lock()

    def take(self) -> int | None:
        """Remove the next producer id from the block and return it, or return None if the block is
        used up."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def allocate(self) -> int | None:
        """Remove the next producer id from the block and return it. If the block is used up, first
        have the controller allocate another one. Return None if no controller answers within
        ALLOCATE_MS_MAX, or it refuses."""
        async with self._allocating:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            broker_id, broker_epoch = self._broker
            request = AllocateProducerIds(broker_id=broker_id, broker_epoch=broker_epoch)
            try:
                answer = await self._controller.command(request, ALLOCATE_MS_MAX)
            except NoController:
                return None
            if not isinstance(answer, ProducerIdBlock):
                return None
            self._next, self._end = answer.first, answer.first + answer.length
            return self.take()


class InitProducerIdHandler:
    """The handler of InitProducerId; `__call__` serves a request."""

    def __init__(self, ids: ProducerIds, transactions: ServedTransactions | None = None) -> None:
        self._ids = ids
        self._transactions = transactions

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply | None]:
        request = context.decoded()
        known: int = getattr(request, "producer_id", -1)
        epoch: int = getattr(request, "producer_epoch", -1)
        if (known == NO_PRODUCER) != (epoch == NO_PRODUCER):
            return _id_reply(context, Code.INVALID_REQUEST)
        if request.transactional_id is not None:
            served = self._transactions
            if served is None or not served.now:
                return _id_reply(context, Code.INVALID_REQUEST)
            op = InitProducer(
                transactional_id=request.transactional_id,
                timeout_ms=request.transaction_timeout // timedelta(milliseconds=1),
                expected=None if known == NO_PRODUCER else ProducerLife(known, epoch),
                principal=context.connection.holder,
            )
            # Decided in this turn, before later requests of the connection.
            asker = served.coordinators.ask(op.transactional_id, op)
            return asyncio.ensure_future(self._transactional(context, served, op, asker))
        # The id that the client names is ignored: the broker does not remember which client has
        # which id, so only a new id is certainly its own.
        producer_id = self._ids.take()
        if producer_id is not None:
            return _id_reply(context, 0, producer_id, 0)
        return self._later(context)

    async def _transactional(
        self, context: RequestContext, served: ServedTransactions, op: InitProducer, asker: Asker
    ) -> Reply:
        """Return the reply once the id's coordinator has answered (`asker`); if it needs a new
        producer id, have one allocated and ask again."""
        name = op.transactional_id
        answer = await asker.future()
        if isinstance(answer, ProducerIdWanted):
            fresh_id = await self._ids.allocate()
            if fresh_id is None:
                return _id_reply(context, WAITING)
            op = replace(op, fresh_id=fresh_id)
            answer = await served.coordinators.ask(name, op).future()
        if isinstance(answer, ProducerInitialized):
            return _id_reply(context, Code.NONE, *answer.producer)
        return _id_reply(context, code_for(answer, context.api_version, FENCED_VERSION))

    async def _later(self, context: RequestContext) -> Reply | None:
        producer_id = await self._ids.allocate()
        if producer_id is None:
            return _id_reply(context, WAITING)
        return _id_reply(context, 0, producer_id, 0)


def _id_reply(context: RequestContext, code: int, producer_id: int = -1, epoch: int = -1) -> bytes:
    values = {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}
    return encode_response(context.api_key, context.api_version, values)


PRODUCERS_MAX = 10_000
"""The most producers in one reply, of all partitions together."""


def describe_producers(manager: ReplicaManager, aside: Aside) -> Handler:
    async def handle(context: RequestContext) -> Reply:
        many = things(context)
        request = await aside.decoded(context)
        topics: list[tuple[str, list[_Told]]] = []
        left = PRODUCERS_MAX
        async for topic in in_turns(request.topics):
            partitions: list[_Told] = []
            async for index in in_turns(topic.partition_indexes):
                told = _told(manager, topic.name, index, left)
                left -= len(told[2])
                partitions.append(told)
            topics.append((topic.name, partitions))
        work = partial(_producers_reply, context.api_version, topics)
        return await aside.some(many + PRODUCERS_MAX - left, work)

    return handle


_Told = tuple[int, Code, list[ActiveProducer]]
"""A partition's index, the error code, and its producers."""


def _told(manager: ReplicaManager, topic: str, index: int, most: int) -> _Told:
    hosted = manager.by_name(topic, index)
    if hosted is None:
        if check_form(topic) is not None:
            return index, Code.INVALID_TOPIC_EXCEPTION, []
        return index, manager.missing(manager.topic_id(topic), index), []
    if hosted.replica.failed:
        return index, Code.KAFKA_STORAGE_ERROR, []
    return index, Code.NONE, hosted.log.producers.active(most)


def _producers_reply(version: int, topics: list[tuple[str, list[_Told]]]) -> bytes:
    told = [
        {"name": name, "partitions": [partition_told(*each) for each in partitions]}
        for name, partitions in topics
    ]
    return encode_response(ApiKey.DESCRIBE_PRODUCERS, version, {"topics": told})


def partition_told(
    index: int, code: int, producers: Iterable[ActiveProducer] = ()
) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "error_message": None,
        "active_producers": [each._asdict() for each in sorted(producers)],
    }
