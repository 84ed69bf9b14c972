"""Three brokers with their transaction coordinators, over sockets: transactions one after another,
without a pause between them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller

from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers.routes import replication_routes
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.cluster.topic_names import TRANSACTION_STATE, TRANSACTIONS_VERSION
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.messages.topics import EnsureInternalTopic
from plimsoll_core.transactions import operations as o
from plimsoll_core.transactions.settings import TransactionSettings

Three = tuple[Broker, Broker, Broker]
HERE = TopicPartition("t", 0)


class Coordinated:
    """The transaction coordinators of three brokers."""

    def __init__(self, three: Three) -> None:
        self.three = three
        self.served: list[ServedTransactions] = []
        self.tasks: list[asyncio.Future[None]] = []
        for broker in three:
            settings = TransactionSettings(commit_timeout_ms=WAIT_S * 1_000)
            topics = InternalTopics(broker.link.command)
            served = ServedTransactions.of(
                TransactionCoordinators(broker.manager, settings, topics)
            )
            self.served.append(served)
            self.tasks += [asyncio.ensure_future(work) for _, work in served.tasks()]
            broker.followers.routes = replication_routes(broker.manager, served)
            for hosted in broker.manager.hosts():
                served.coordinators.stepped(hosted)

    @property
    def leader(self) -> TransactionCoordinators:
        (found,) = [one.coordinators for one in self.served if one.coordinators.shards()]
        return found

    @property
    def active(self) -> bool:
        shards = [s for one in self.served for s in one.coordinators.shards()]
        return bool(shards) and shards[0].phase is ShardPhase.ACTIVE

    async def ask(self, op: o.TransactionOperation) -> object:
        assert not isinstance(op, o.ListTransactions)
        async with asyncio.timeout(WAIT_S):
            answer = await self.leader.ask("x", op).future()
        return answer.code if isinstance(answer, RefusedAsWhole) else answer

    async def stop(self) -> None:
        for one in self.served:
            one.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def coordinated(controller: Controller, three: Three) -> AsyncIterator[Coordinated]:
    record = MetadataVersionFinalized(cause="test", metadata_version=TRANSACTIONS_VERSION)
    controller.image = apply(controller.image, record)
    topic = InternalTopic(partitions=1)
    controller.settings = replace(controller.settings, transactions_topic=topic)
    found = Coordinated(three)
    controller.create("t", (0, 1, 2))
    controller.request(EnsureInternalTopic(name=TRANSACTION_STATE))
    for broker in three:
        hear_controller(broker)
    await until(lambda: found.active)
    yield found
    await found.stop()


async def begun(coordinated: Coordinated) -> ProducerLife:
    op = o.InitProducer(transactional_id="x", timeout_ms=60_000, fresh_id=7)
    answer = await coordinated.ask(op)
    assert answer == o.ProducerInitialized(ProducerLife(7, 0))
    return ProducerLife(7, 0)


async def test_next_transaction_begins_as_markers_are_written(coordinated: Coordinated) -> None:
    life = await begun(coordinated)
    add = o.AddToTransaction(transactional_id="x", producer=life, partitions=(HERE,))
    end = o.EndTransaction(transactional_id="x", producer=life, commits=True)
    for _ in range(20):
        assert await coordinated.ask(add) == o.PartitionsAdded(), "no client has to ask again"
        assert await coordinated.ask(end) == o.TransactionEnded()


async def test_parked_request_hears_of_lost_leadership(coordinated: Coordinated) -> None:
    life = await begun(coordinated)
    coordinated.leader.sender.queues.close()  # no marker leaves any more
    add = o.AddToTransaction(transactional_id="x", producer=life, partitions=(HERE,))
    end = o.EndTransaction(transactional_id="x", producer=life, commits=True)
    await coordinated.ask(add)
    for task in coordinated.tasks:
        task.cancel()
    await coordinated.ask(end)
    waits = coordinated.leader.ask("x", add)
    assert waits.answer_value is None
    coordinated.leader.close()
    told = waits.answer_value
    assert isinstance(told, RefusedAsWhole)
    assert told.code is Code.NOT_COORDINATOR
