"""Builders for the controller's tests: a partition, and a small world that decides and applies."""

from collections.abc import Callable
from uuid import UUID

import pytest

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.invariants import (
    EVERY_DECISION,
    EVERY_RECORD,
    Full,
    epochs_monotone,
    full_after,
    reassigned_in_sync,
    recovery_quorum,
    violations,
)
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Recovery, TopicObject
from plimsoll_core.cluster.records import ControllerChanged, Record
from plimsoll_core.controller.decide import Decision, Settings, VolatileState, decide
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionsAnswer,
    NamedLeader,
    NameLeaders,
)
from plimsoll_core.messages.requests import (
    Activated,
    AlterPartition,
    Answer,
    BrokerProvenDead,
    DeclareTopic,
    Heartbeat,
    IsrMember,
    IsrProposal,
    LogPosition,
    PartitionAnswer,
    RegisterBroker,
    ReplicaLog,
    ReportReplicaLogs,
    Request,
)

CLUSTER = UUID(int=0xC1)
TOPIC = UUID(int=0x70)


class World:
    """A controller with nothing around it: every decision is committed at once, and checked."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.empty = ClusterImage(cluster_id=CLUSTER)
        self.image = self.empty
        self.log: list[Record] = []
        self.full: Full = frozenset()
        self.now_ms = 1_000_000
        self.soft = VolatileState()
        self.incarnations = 0
        self.predicates = EVERY_DECISION

    # --- the log

    def commit(self, record: Record) -> None:
        before = self.image
        self.image = apply(before, record)
        self.log.append(record)
        self.full = full_after(self.full, before, self.image)
        broken = violations(self.image, EVERY_RECORD)
        broken += epochs_monotone(before, self.image)
        broken += reassigned_in_sync(before, self.image)
        broken += recovery_quorum(self.image, self.full)
        assert not broken, f"after {record}: {broken}"

    def decide(self, request: Request) -> Decision:
        return decide(self.image, self.soft, request, self.now_ms, self.settings)

    def ask(self, request: Request, *, crash_after: int | None = None) -> Answer:
        """Decide and commit, slice after slice; a crash leaves a prefix and a new controller."""
        for _ in range(1_000):
            decision = self.decide(request)
            for record in decision.records[:crash_after]:
                self.commit(record)
            assert crash_after is not None or decision.image == self.image
            if crash_after is not None:
                self.take_over()
                return decision.answer
            if decision.again is None:
                self.check()
                return decision.answer
            request = decision.again
        raise AssertionError("a sliced decision never ended")

    def check(self) -> None:
        broken = violations(self.image, self.predicates)
        assert not broken, broken

    def take_over(self, **activated: object) -> None:
        """A new term: soft state is gone, and what was half done is finished."""
        self.soft = VolatileState()
        epoch = self.image.controller_epoch + 1
        self.commit(ControllerChanged(cause="took over", controller_epoch=epoch, identity="me"))
        self.ask(Activated(cluster_name="main", **activated))

    # --- brokers

    def register(self, broker: int, *, clean: bool = False, **fields: object) -> Answer:
        """A new process of a broker, on its own volume unless `fields` say otherwise."""
        return self.ask(self.registration(broker, clean=clean, **fields))

    def registration(self, broker: int, *, clean: bool = False, **fields: object) -> RegisterBroker:
        known = self.image.brokers.get(broker)
        self.incarnations += 1
        values = {
            "cluster_id": CLUSTER,
            "broker_id": broker,
            "incarnation_id": UUID(int=0x1000 + self.incarnations),
            "previous_broker_epoch": known.broker_epoch if known and clean else None,
            "directory_ids": (UUID(int=0xD0 + broker),),
            "endpoints": (),
            "metadata_versions": (1, 1),
            "release": "0.2.0",
        }
        return RegisterBroker(**{**values, **fields})

    def beat(self, broker: int, *, applied: int | None = None, **wants: bool) -> Answer:
        return self.ask(self.heartbeat(broker, applied=applied, **wants))

    def heartbeat(self, broker: int, *, applied: int | None = None, **wants: bool) -> Heartbeat:
        position = LogPosition(
            applied_offset=self.image.next_offset if applied is None else applied,
            nonce=None,
            controller_epoch=self.image.controller_epoch,
        )
        epoch = self.image.brokers[broker].broker_epoch
        told = {"metadata_versions": (1, 1), "release": "0.2.0", **wants}
        return Heartbeat(broker_id=broker, broker_epoch=epoch, position=position, **told)

    def start(self, *brokers: int, clean: bool = False, rack: str | None = None) -> None:
        """Register and unfence, waiting out any back-off."""
        for broker in brokers:
            self.register(broker, clean=clean, rack=rack)
            if self.beat(broker).is_fenced:
                self.now_ms += self.settings.flap_wait_ms_max
                self.beat(broker)
            assert self.image.brokers[broker].active

    def kill(self, *brokers: int) -> None:
        """Proven dead, one after the other."""
        for broker in brokers:
            epoch = self.image.brokers[broker].broker_epoch
            self.ask(BrokerProvenDead(broker_id=broker, broker_epoch=epoch, evidence="gone"))

    # --- topics

    def declare(self, name: str = "orders", **fields: object) -> Answer:
        return self.ask(self.declaration(name, **fields))

    def declaration(self, name: str = "orders", **fields: object) -> DeclareTopic:
        values = {
            "object": TopicObject(namespace="shop", name=name, uid=f"uid-of-{name}"),
            "topic_name": name,
            "partitions": 1,
            "replication_factor": 3,
            "min_isr": 2,
        }
        return DeclareTopic(**{**values, **fields})

    def p(self, index: int = 0, name: str = "orders") -> Partition:
        return self.image.partitions[PartitionKey(self.image.topic_ids[name], index)]

    def propose(self, isr: list[int], index: int = 0, **fields: object) -> PartitionAnswer:
        """The leader's own proposal, everything as the leader should know it."""
        request = self.proposal(isr, index, **fields)
        return self.ask(request).partitions[0]

    def proposal(
        self, isr: list[int], index: int = 0, *, name: str = "orders", **fields: object
    ) -> AlterPartition:
        p = self.p(index, name)
        sender = fields.pop("sender", p.leader)
        epochs = {b: self.image.brokers[b].broker_epoch for b in self.image.brokers}
        values = {
            "topic_id": p.topic_id,
            "index": p.index,
            "leader_epoch": p.leader_epoch,
            "partition_epoch": p.partition_epoch,
            "new_isr": tuple(IsrMember(broker_id=b, broker_epoch=epochs.get(b)) for b in isr),
            "recovery": Recovery.RECOVERED,
            "cause": "lag",
        }
        proposal = IsrProposal(**{**values, **fields})
        return AlterPartition(
            broker_id=sender, broker_epoch=epochs.get(sender, 0), proposals=(proposal,)
        )

    def tell(
        self, broker: int, log: tuple[int | None, int], index: int = 0, **fields: object
    ) -> Answer:
        """A broker's log ends with a record of epoch log[0] at offset log[1]."""
        return self.ask(self.report(broker, log, index, **fields))

    def name_leader(
        self, leader: int, index: int = 0, *, epoch: int | None = None
    ) -> tuple[ElectionAnswer, ...]:
        """The object of `orders` names a leader in the present leader epoch, or in another."""
        at = self.p(index).leader_epoch if epoch is None else epoch
        named = NamedLeader(partition=index, leader=leader, at_leader_epoch=at)
        return self.name_leaders(named)

    def name_leaders(self, *leaders: NamedLeader) -> tuple[ElectionAnswer, ...]:
        holder = self.declaration().object
        answer: ElectionsAnswer = self.ask(NameLeaders(object=holder, leaders=leaders))
        return answer.partitions

    def report(
        self,
        broker: int,
        log: tuple[int | None, int],
        index: int = 0,
        *,
        name: str = "orders",
        stale: int = 0,
    ) -> ReportReplicaLogs:
        p = self.p(index, name)
        told = ReplicaLog(
            topic_id=p.topic_id,
            index=index,
            leader_epoch=p.leader_epoch - stale,
            last_written_epoch=log[0],
            log_end_offset=log[1],
        )
        epoch = self.image.brokers[broker].broker_epoch
        return ReportReplicaLogs(broker_id=broker, broker_epoch=epoch, logs=(told,))


@pytest.fixture(scope="session")
def new_world() -> Callable[..., World]:
    def make(brokers: int = 3, **settings: int) -> World:
        world = World(Settings(**settings))
        world.take_over()
        world.start(*range(brokers))
        return world

    return make


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Brokers 0, 1 and 2 run; topic `orders` has one partition on them in this order, min ISR 2."""
    world = new_world(3)
    world.declare(strategy="Explicit", assignment=((0, 1, 2),))
    return world


@pytest.fixture(scope="session")
def a_partition() -> Callable[..., Partition]:
    """A partition on brokers 1, 2, 3, led by the first of its ISR; give what matters."""

    def make(**fields: object) -> Partition:
        isr = tuple(fields.get("isr", (1, 2, 3)))
        values = {
            "topic_id": TOPIC,
            "index": 0,
            "replicas": (1, 2, 3),
            "leader": isr[0] if isr else None,
            "leader_epoch": 5,
            "partition_epoch": 9,
            "min_isr": 2,
            **fields,
            "isr": isr,
        }
        return Partition(**values)

    return make
