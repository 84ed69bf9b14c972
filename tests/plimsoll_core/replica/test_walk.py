"""Random walks over the whole data path: real replicas, the real controller, everything else late.

Brokers hear of metadata whenever the walk lets them, so that they act on old terms; replies,
proposals and answers are delayed, lost or sent twice; processes are killed with and without their
page cache, fenced while they still serve, and come back.  After every step the protocol's safety
predicates hold: LeaderCompleteness (I1), LeaderCandidate (I2), LogMatching (I3, I4), HWBound (I5),
QuorumSuperset (I8), AckedNotLost (I16) and NoCommitBeforeQuorum (I17).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.replica.copies import LAG_MS, Batch, MemoryLog, a_batch

from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import (
    AlterPartition,
    BrokerProvenDead,
    IsrProposal,
    PartitionAnswer,
)
from plimsoll_core.replica import follower
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.follower import FetchPosition
from plimsoll_core.replica.replica import Replica
from plimsoll_core.replica.replica_context import ReplicaContext
from plimsoll_core.replica.replica_values import Append, EndOffset, FollowerFetch

BROKERS = (0, 1, 2)
FOREVER_MS = 10**12


class Reply(NamedTuple):
    """A leader's answer on its way to a follower."""

    leader: int
    asked: FetchPosition
    answer: Code | EndOffset
    batches: list[Batch]
    high_watermark: int


class Node:
    """One broker: its disk, and its process while it runs."""

    def __init__(self, walk: Walk, broker: int) -> None:
        self.walk = walk
        self.id = BrokerId(broker)
        self.log = MemoryLog()
        self.replica: Replica | None = None
        self.around = ReplicaContext(self.id, LAG_MS)
        self.epoch = -1
        self.reply: Reply | None = None
        self.proposals: list[IsrProposal] = []
        self.answers: list[tuple[IsrProposal, PartitionAnswer | None]] = []

    def boot(self) -> None:
        image = self.walk.world.image
        self.epoch = image.brokers[self.id].broker_epoch
        self.around = ReplicaContext(self.id, LAG_MS)
        self.log.epochs.truncate_from_end(self.log.log_end_offset)
        self.replica = Replica(self.walk.world.p(), self.log, None, self.around)
        self.hear()

    def stop(self) -> None:
        self.replica = None
        self.reply = None
        self.proposals.clear()
        self.answers.clear()

    def lose_tail(self, records: int) -> None:
        """The page cache is gone: so many records with it."""
        self.log.truncate_to(max(self.log.log_end_offset - records, 0))

    def hear(self) -> None:
        """All metadata there is, merged."""
        if self.replica is not None:
            self.around.brokers = self.walk.world.image.brokers
            self.replica.apply(self.walk.world.p(), self.walk.now_ms)
            self.step()

    def step(self) -> None:
        assert self.replica is not None
        ready = self.replica.take_ready()
        self.walk.committed_by(self)
        for token, code in ready.answers:
            self.walk.answered(token, code)
        if ready.proposal is not None:
            self.proposals.append(ready.proposal)

    def produce(self, number: int) -> None:
        if self.replica is None:
            return
        batch = a_batch(1, producer_id=number)
        verdict = self.replica.produce(batch, -1)
        if isinstance(verdict, Append):
            written = batch._replace(base_offset=verdict[0], leader_epoch=verdict.leader_epoch)
            self.log.append(written)
            self.replica.wrote()
            token = (number, verdict.base_offset)
            waiter = AckWaiter(verdict.base_offset + 1, FOREVER_MS, token)
            self.replica.wait_for_commit(waiter)
            self.step()

    # --- fetching

    def ask(self, at_most: int) -> None:
        """Send a fetch; the leader handles it now, its reply is under way."""
        if self.replica is None or self.replica.fetches_from is None:
            return
        leader = self.walk.nodes[self.replica.fetches_from]
        if leader.replica is None:
            return
        position = self.replica.position()
        fetch = FollowerFetch(
            self.id,
            self.epoch,
            position.leader_epoch,
            position.fetch_offset,
            position.last_fetched_epoch,
            0,
        )
        answer = leader.replica.follower_fetch(fetch, self.walk.now_ms)
        batches = leader.log.batches[position.fetch_offset :][:at_most]
        watermark = leader.replica.high_watermark
        leader.step()
        self.reply = Reply(leader.id, position, answer, batches, watermark)

    def receive(self) -> None:
        """The reply arrives, if it is still what was asked for."""
        reply, self.reply = self.reply, None
        replica, log = self.replica, self.log
        if reply is None or replica is None or not replica.expects(reply.leader, reply.asked):
            return
        if isinstance(reply.answer, EndOffset):
            offset = follower.truncation_offset(log, reply.answer)
            assert offset is not None, "every log starts at 0 here"
            log.truncate_to(offset)
            replica.cut()
        elif reply.answer is Code.NONE:
            count = follower.appendable(reply.batches, replica.partition.leader_epoch, log)
            assert count is not None, "a leader's batches always fit"
            for batch in reply.batches[:count]:
                log.append(batch)
            replica.replicated(reply.high_watermark)
        elif reply.answer is Code.FENCED_LEADER_EPOCH:
            replica.halt()
        self.step()


class Walk:
    """The cluster, what has been committed, and what has been promised."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.now_ms = 1_000_000
        self.truth: list[Batch] = []
        self.acked: dict[int, int] = {}
        self.number = 0
        self.lossy: set[int] = set()
        self.nodes = {broker: Node(self, broker) for broker in BROKERS}
        for node in self.nodes.values():
            node.boot()

    # --- what happens

    def produce(self, node: Node, _: int) -> None:
        self.number += 1
        node.produce(self.number)

    def ask(self, node: Node, amount: int) -> None:
        node.ask(amount)

    def receive(self, node: Node, _: int) -> None:
        node.receive()

    def replicate(self, node: Node, amount: int) -> None:
        """A fetch and its reply without anything between: most of what happens."""
        node.ask(amount)
        node.receive()
        node.ask(amount)

    def hear(self, node: Node, _: int) -> None:
        node.hear()

    def everybody_hears(self, _: Node, __: int) -> None:
        for node in self.nodes.values():
            node.hear()

    def send_proposal(self, node: Node, fate: int) -> None:
        """The controller gets it; the answer is under way, or lost, or the proposal is repeated."""
        if node.replica is None or not node.proposals:
            return
        proposal = node.proposals.pop(0)
        request = AlterPartition(broker_id=node.id, broker_epoch=node.epoch, proposals=(proposal,))
        answer = self.world.ask(request)
        if fate == 1:
            node.answers.append((proposal, None))
        else:
            partitions = getattr(answer, "partitions", (None,))
            node.answers.append((proposal, partitions[0]))
        if fate == 2:
            self.world.ask(request)

    def answer_proposal(self, node: Node, _: int) -> None:
        if node.replica is None or not node.answers:
            return
        proposal, answer = node.answers.pop(0)
        if node.replica.altered(proposal, answer, self.now_ms):
            node.proposals.append(proposal)
        node.step()

    def lag(self, node: Node, _: int) -> None:
        """Time passes, and the leader looks at who is behind."""
        self.now_ms += LAG_MS + 1
        if node.replica is not None:
            node.replica.check_lag(self.now_ms)
            node.step()

    def kill(self, node: Node, _: int) -> None:
        node.stop()

    def kill_lossy(self, node: Node, amount: int) -> None:
        """At most m - 1 = 1 broker is short of data at any time: that is what is promised."""
        if not self.lossy and node.replica is not None:
            self.lossy.add(node.id)
            node.stop()
            node.lose_tail(amount)

    def proven_dead(self, node: Node, _: int) -> None:
        if node.replica is None:
            broker = self.world.image.brokers[node.id]
            self.world.ask(
                BrokerProvenDead(
                    broker_id=node.id, broker_epoch=broker.broker_epoch, evidence="walk"
                )
            )

    def restart(self, node: Node, _: int) -> None:
        if node.replica is None:
            self.world.start(node.id)
            node.boot()

    def fence(self, node: Node, _: int) -> None:
        """The controller gives it up; it may not know for a while."""
        self.world.beat(node.id, want_fence=True)

    def unfence(self, node: Node, _: int) -> None:
        if (
            node.replica is not None
            and node.epoch == self.world.image.brokers[node.id].broker_epoch
        ):
            self.world.now_ms += self.world.settings.flap_wait_ms_max
            self.world.beat(node.id)

    # --- what must hold

    def committed_by(self, node: Node) -> None:
        """A leader raised its high watermark: that is what committing means."""
        replica = node.replica
        assert replica is not None
        watermark = replica.high_watermark
        if replica.leader is not None and watermark > len(self.truth):
            assert len(replica.leader.isr.committed) >= 2, "I7 CommitQuorum"
            self.truth += node.log.batches[len(self.truth) : watermark]
        assert node.log.batches[:watermark] == self.truth[:watermark], "I3 LogMatchingUnderHW"

    def answered(self, token: Any, code: Code) -> None:
        number, offset = token
        if code is Code.NONE:
            assert offset < len(self.truth), "I17 NoCommitBeforeQuorum"
            assert self.truth[offset].producer_id == number, "I16: at its offset"
            self.acked[number] = offset

    def check(self) -> None:
        p = self.world.p()
        self.lossy -= {b for b in self.lossy if b in p.isr and self.nodes[b].replica is not None}
        for node in self.nodes.values():
            if node.replica is not None:
                self.check_node(node, p)
        for number, offset in self.acked.items():
            assert self.truth[offset].producer_id == number, "I16 AckedNotLost"

    def check_node(self, node: Node, p: Any) -> None:
        log, replica = node.log, node.replica
        assert replica is not None
        assert 0 <= replica.high_watermark <= min(log.log_end_offset, len(self.truth)), "I5 HWBound"
        current = node.epoch == self.world.image.brokers[node.id].broker_epoch
        if current and node.id in (*p.isr, *p.elr):
            whole = log.batches[: len(self.truth)] == self.truth
            assert whole, f"I2 LeaderCandidate: {node.id} of {p.isr} {p.elr}"
        leader = replica.leader
        if leader is None:
            return
        assert set(leader.isr.committed) <= set(leader.isr.maximal), "I8 QuorumSuperset"
        if p.leader == node.id and p.leader_epoch == leader.epoch and len(p.isr) >= 2:
            assert set(p.isr) <= set(leader.isr.maximal) or not self.knows(node, p), "I8"
            assert log.batches[: len(self.truth)] == self.truth, "I1 LeaderCompleteness"

    @staticmethod
    def knows(node: Node, p: Any) -> bool:
        assert node.replica is not None
        return bool(node.replica.partition.partition_epoch == p.partition_epoch)


WEIGHTS = {
    "produce": 12,
    "replicate": 18,
    "ask": 4,
    "receive": 4,
    "hear": 8,
    "everybody_hears": 4,
    "send_proposal": 10,
    "answer_proposal": 8,
    "lag": 1,
    "kill": 1,
    "kill_lossy": 1,
    "proven_dead": 3,
    "restart": 5,
    "fence": 2,
    "unfence": 6,
}
STEPS = 200


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_committed_records_are_never_lost(new_world: Callable[..., Any], seed: int) -> None:
    """A seed is the bug report: shrinking a walk would only lead somewhere else."""
    world = new_world(3)
    world.declare()
    walk = Walk(world)
    chance = Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    for kind in chance.choices(kinds, weights, k=STEPS):
        getattr(walk, kind)(walk.nodes[chance.choice(BROKERS)], chance.randrange(4))
        walk.check()
