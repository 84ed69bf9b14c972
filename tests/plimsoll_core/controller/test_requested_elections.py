"""Elections on request: by clients, by objects, and by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.model import Recovery, TopicObject
from plimsoll_core.cluster.records import PartitionsChanged
from plimsoll_core.controller.kernel.volatile_state import unsee
from plimsoll_core.controller.partitions.unclean_recovery import UNCLEAN_CAUSES
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectLeaders,
    NamedLeader,
    PartitionName,
)
from plimsoll_core.messages.requests import (
    CreateTopics,
    DeleteTopics,
    DetachTopic,
    NewTopic,
    Tick,
)

ROW = (0, 1, 2)
ORDERS = TopicObject(namespace="shop", name="orders", uid="uid-of-orders")
INTERVAL_MS = 30_000
FLAP_MS = 60_000


def everybody_lost(world: Any) -> None:
    """Everything was killed at once and runs again; topics wait for a leader."""
    for broker in ROW:
        world.register(broker)
    world.now_ms += 5_000
    for broker in ROW:
        world.beat(broker)


def elect(world: Any, kind: str, *names: tuple[str, int]) -> tuple[ElectionAnswer, ...]:
    partitions = tuple(PartitionName(topic=topic, index=index) for topic, index in names) or None
    answer: tuple[ElectionAnswer, ...] = world.ask(
        ElectLeaders(kind=kind, partitions=partitions)
    ).partitions
    return answer


def clients_topic(world: Any, name: str = "mine", partitions: int = 1, **configs: str) -> None:
    topic = NewTopic(name=name, assignment=(ROW,) * partitions, configs=configs)
    (answer,) = world.ask(CreateTopics(topics=(topic,))).topics
    assert answer.code == 0


def displaced(world: Any, *, flapped: bool = False) -> None:
    """Broker 0, the preferred leader, was away and is in the ISR again; 1 leads."""
    if flapped:
        world.kill(0)
    else:
        world.beat(0, want_fence=True)
    world.register(0, clean=True)
    world.now_ms += 2_000
    for broker in ROW:
        world.beat(broker)
    assert world.propose([0, 1, 2]).code == 0
    assert world.p().leader == 1


class TestPreferred:
    def test_leadership_goes_to_the_first_replica(self, world: Any) -> None:
        displaced(world)
        before = world.p()
        (answer,) = elect(world, "Preferred", ("orders", 0))
        after = world.p()
        assert (answer.code, answer.leader) == (0, 0)
        assert answer.leader_epoch == after.leader_epoch == before.leader_epoch + 1
        assert (after.leader, after.isr, after.recovery) == (0, ROW, Recovery.RECOVERED)

    def test_already_preferred(self, world: Any) -> None:
        """ "already preferred → ELECTION_NOT_NEEDED 84"."""
        (answer,) = elect(world, "Preferred", ("orders", 0))
        assert (answer.code, answer.reason) == (84, "ElectionNotNeeded")

    @pytest.mark.parametrize(
        ("comes_back", "why"), [(False, "is not active"), (True, "not in the")]
    )
    def test_preferred_election_without_effect_is_refused(
        self, world: Any, comes_back: bool, why: str
    ) -> None:
        """ "change(mode=PREFERRED) without effect → PREFERRED_LEADER_NOT_AVAILABLE 80"."""
        world.beat(0, want_fence=True)
        if comes_back:
            world.start(0, clean=True)
        before = world.p()
        (answer,) = elect(world, "Preferred", ("orders", 0))
        assert (answer.code, answer.reason) == (80, "PreferredLeaderNotAvailable")
        assert why in answer.message
        assert world.p() == before

    @pytest.mark.parametrize("name", [("orders", 1), ("absent", 0)])
    def test_unknown_partition(self, world: Any, name: tuple[str, int]) -> None:
        (answer,) = elect(world, "Preferred", name)
        assert (answer.topic, answer.index, answer.code) == (*name, 3)

    def test_preferred_election_of_all_omits_settled_partitions(self, world: Any) -> None:
        """ "topics=null = all (then omit 84s)"."""
        displaced(world)
        clients_topic(world)
        assert [(each.topic, each.code) for each in elect(world, "Preferred")] == [("orders", 0)]
        assert elect(world, "Preferred") == ()

    def test_preferred_leaders_are_elected_slice_by_slice(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(3, slice_partitions_max=2)
        clients_topic(world, partitions=5)
        world.beat(0, want_fence=True)
        world.start(0, clean=True)
        for index in range(5):
            proposal = world.proposal([0, 1, 2], index, name="mine")
            assert world.ask(proposal).partitions[0].code == 0
        answers = elect(world, "Preferred")
        assert [(each.index, each.code, each.leader) for each in answers] == [
            (index, 0, 0) for index in range(5)
        ]


class TestUnclean:
    def test_most_complete_of_those_that_told_leads(self, world: Any) -> None:
        clients_topic(world, **{"unclean.recovery.strategy": "Manual"})
        everybody_lost(world)
        world.tell(0, (0, 7), name="mine")
        world.tell(2, (0, 9), name="mine")
        (answer,) = elect(world, "Unclean", ("mine", 0))
        p = world.p(0, "mine")
        assert (answer.code, answer.leader, p.leader) == (0, 2, 2)
        assert p.recovery is Recovery.RECOVERING
        assert world.log[-1].cause in UNCLEAN_CAUSES

    def test_unclean_election_is_refused_with_a_leader(self, world: Any) -> None:
        """ "UNCLEAN: has a leader → 84"."""
        clients_topic(world)
        (answer,) = elect(world, "Unclean", ("mine", 0))
        assert answer.code == 84

    def test_unclean_election_is_refused_when_no_replica_reported(self, world: Any) -> None:
        """ "no candidate → ELIGIBLE_LEADERS_NOT_AVAILABLE 83"."""
        clients_topic(world)
        everybody_lost(world)
        (answer,) = elect(world, "Unclean", ("mine", 0))
        assert (answer.code, answer.reason) == (83, "EligibleLeadersNotAvailable")
        assert world.p(0, "mine").leader is None

    def test_unclean_election_is_rejected_when_reporter_is_fenced(self, world: Any) -> None:
        clients_topic(world)
        for broker in ROW:
            world.register(broker)
        world.tell(0, (0, 9), name="mine")
        (answer,) = elect(world, "Unclean", ("mine", 0))
        assert answer.code == 83

    def test_election_in_declared_topic_is_refused(self, world: Any) -> None:
        """ "refuses UNCLEAN with POLICY_VIOLATION naming the object"."""
        everybody_lost(world)
        world.tell(0, (0, 9))
        for answers in (elect(world, "Unclean", ("orders", 0)), elect(world, "Unclean")):
            (answer,) = answers
            assert (answer.code, answer.reason) == (44, "PolicyViolation")
            assert "Topic shop/orders" in answer.message
            assert "spec.uncleanRecovery.elect" in answer.message
        assert world.p().leader is None

    def test_unclean_election_of_all_omits_led_partitions(self, world: Any) -> None:
        clients_topic(world)
        world.beat(0, want_fence=True)
        assert elect(world, "Unclean") == ()


class TestNamed:
    def test_named_replica_leads(self, world: Any) -> None:
        everybody_lost(world)
        world.tell(0, (0, 5))
        (answer,) = world.name_leader(0)
        p = world.p()
        assert (answer.code, answer.leader_epoch) == (0, p.leader_epoch)
        assert (p.leader, p.isr, p.last_known_elr) == (0, (0,), (1, 2))
        assert world.log[-1].cause in UNCLEAN_CAUSES

    def test_named_leader_is_elected_once_per_leader_epoch(self, world: Any) -> None:
        """ "refused unless the epoch still matches": it fires once, not again next year."""
        everybody_lost(world)
        epoch = world.p().leader_epoch
        world.tell(0, (0, 5))
        world.name_leader(0, epoch=epoch)
        for broker in ROW:
            world.register(broker)
        world.now_ms += 60_000
        world.beat(0)
        world.tell(0, (0, 5))
        before = world.p()
        assert before.leader is None
        assert world.name_leader(0, epoch=epoch) == ()
        assert world.p() == before

    def test_partition_with_a_leader_needs_nobody(self, world: Any) -> None:
        before = world.p()
        assert world.name_leader(1) == ()
        assert world.p() == before

    def test_replica_lost_for_good_is_given_up(self, world: Any) -> None:
        """Naming works whatever the strategy: balanced would wait for broker 2 for ever."""
        for broker in ROW:
            world.register(broker)
        world.now_ms += 5_000
        world.beat(1)
        world.tell(1, (0, 9))
        assert world.p().leader is None
        world.name_leader(1)
        assert (world.p().leader, world.p().last_known_elr) == (1, (2,))

    def test_elr_that_stays_away_is_given_up(self, world: Any) -> None:
        world.propose([0, 1])
        world.kill(1, 0)
        assert world.p().elr == (0, 1)
        world.tell(2, (0, 4))
        world.name_leader(2)
        assert (world.p().leader, world.p().elr, world.p().last_known_elr) == (2, (), (0, 1))

    @pytest.mark.parametrize(
        ("leader", "why"),
        [
            (7, "Name one of the brokers that have: 0, 1, 2."),
            (2, "is not active now"),
            (1, "has not reported where its log of the partition ends"),
        ],
    )
    def test_refusals_are_sentences(self, world: Any, leader: int, why: str) -> None:
        for broker in ROW:
            world.register(broker)
        world.now_ms += 5_000
        world.beat(1)
        before = world.p()
        (answer,) = world.name_leader(leader)
        assert (answer.code, answer.reason) == (83, "LeaderNotEligible")
        assert why in answer.message
        assert "partition orders-0" in answer.message
        assert answer.message.endswith(".")
        assert world.p() == before

    def test_partition_that_is_not_there(self, world: Any) -> None:
        named = NamedLeader(partition=9, leader=0, at_leader_epoch=0)
        (answer,) = world.name_leaders(named)
        assert answer.code == 3

    def test_object_that_holds_no_topic_names_nobody(self, world: Any) -> None:
        everybody_lost(world)
        world.tell(0, (0, 5))
        world.ask(DetachTopic(object=ORDERS))
        assert world.name_leader(0) == ()
        assert world.p().leader is None

    def test_named_leaders_are_elected_slice_by_slice(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3, slice_partitions_max=2)
        world.declare(strategy="Explicit", assignment=(ROW,) * 5, partitions=5)
        everybody_lost(world)
        for index in range(5):
            world.tell(0, (0, 5), index)
        epoch = world.p().leader_epoch
        leaders = tuple(
            NamedLeader(partition=index, leader=0, at_leader_epoch=epoch) for index in range(5)
        )
        answers = world.name_leaders(*leaders)
        assert [(each.index, each.code) for each in answers] == [(index, 0) for index in range(5)]


class TestByThemselves:
    def test_leaderships_return_after_the_interval(self, world: Any) -> None:
        """ "Automatic: bounded batch, where the preferred replica is in ISR and active"."""
        displaced(world)
        world.ask(Tick())
        self.wait(world, INTERVAL_MS - 1)
        assert world.p().leader == 1
        self.wait(world, 1)
        assert world.p().leader == 0
        assert world.p().recovery is Recovery.RECOVERED

    def test_automatic_preferred_election_skips_replica_outside_the_isr(self, world: Any) -> None:
        world.beat(0, want_fence=True)
        world.start(0, clean=True)
        world.ask(Tick())
        self.wait(world, INTERVAL_MS)
        assert world.p().leader == 1

    def test_automatic_preferred_election_waits_longer_when_flapping(self, world: Any) -> None:
        """Leaderships of a broker that keeps falling out must not follow it each time."""
        displaced(world, flapped=True)
        fell_out = world.soft.flaps[0][-1]
        world.ask(Tick())
        while world.now_ms < fell_out + FLAP_MS - 1_000:
            self.wait(world, 1_000)
            assert world.p().leader == 1
        self.wait(world, INTERVAL_MS + 1_000)
        assert world.p().leader == 0

    def test_batch_a_tick(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3, slice_partitions_max=2)
        world.declare(strategy="Explicit", assignment=(ROW,) * 5, partitions=5)
        world.beat(0, want_fence=True)
        world.start(0, clean=True)
        for index in range(5):
            world.propose([0, 1, 2], index)
        world.ask(Tick())
        seen = []
        self.wait(world, INTERVAL_MS)
        for _ in range(3):
            seen.append(sum(world.p(index).leader == 0 for index in range(5)))
            self.wait(world, 500)
        assert seen == [2, 4, 5]

    def test_tick_looks_at_one_slice(self, new_world: Callable[..., Any]) -> None:
        """None may return yet, and each tick looked at all of them."""
        world = new_world(3, slice_partitions_max=2)
        world.declare(strategy="Explicit", assignment=(ROW,) * 5, partitions=5)
        world.beat(0, want_fence=True)
        world.ask(Tick())
        self.wait(world, INTERVAL_MS)
        left = []
        for _ in range(3):
            left.append(len(world.soft.displaced_left))
            world.ask(Tick())
        assert left == [3, 1, 0]

    def test_leadership_whose_return_was_dropped_returns_later(self, world: Any) -> None:
        """The log was full for a moment: what was decided never happened, and the term goes on."""
        displaced(world)
        world.ask(Tick())
        world.now_ms += INTERVAL_MS
        for broker in ROW:
            world.beat(broker)
        decision = world.decide(Tick())
        assert decision.image.partitions[world.p().key].leader == 0
        unsee(world.soft, world.image, decision.records, world.now_ms)
        self.wait(world, INTERVAL_MS)
        assert world.p().leader == 0

    def test_election_of_unknown_partition_is_refused(self, world: Any) -> None:
        """The log was full for a moment; a topic and what became of it were dropped."""
        committed, end = world.image, len(world.log)
        world.ask(CreateTopics(topics=(NewTopic(name="new", assignment=((0, 1, 2),)),)))
        world.beat(0, want_fence=True)
        key = world.p(0, "new").key
        assert key in world.soft.displaced
        world.image = committed
        unsee(world.soft, committed, world.log[end:], world.now_ms)
        assert not world.soft.displaced
        world.ask(Tick())
        self.wait(world, INTERVAL_MS)

    def test_topic_with_dropped_deletion_is_still_elected(self, world: Any) -> None:
        clients_topic(world)
        world.beat(0, want_fence=True)
        key = world.p(0, "mine").key
        decision = world.decide(DeleteTopics(names=("mine",)))
        assert key not in world.soft.displaced
        unsee(world.soft, world.image, decision.records, world.now_ms)
        assert key in world.soft.displaced

    def test_new_term_waits_the_interval_too(self, world: Any) -> None:
        displaced(world)
        world.ask(Tick())
        world.now_ms += INTERVAL_MS
        world.take_over()
        world.ask(Tick())
        assert world.p().leader == 1

    @staticmethod
    def wait(world: Any, ms: int) -> None:
        world.now_ms += ms
        for broker in ROW:
            world.beat(broker)
        world.ask(Tick())


def test_unclean_elections_on_request_all_record_their_cause(world: Any) -> None:
    """ "Report it as possible data loss": every unclean leader came with such a record."""
    everybody_lost(world)
    world.tell(0, (0, 5))
    world.name_leader(0)
    unclean = [
        record
        for record in world.log
        if isinstance(record, PartitionsChanged) and record.recovery is Recovery.RECOVERING
    ]
    assert [record.cause in UNCLEAN_CAUSES for record in unclean] == [True]
