"""The rule for reassignments: start, progress, replacement, cancel with its guard."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.model import Partition
from plimsoll_core.cluster.records import PartitionsChanged
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, change
from plimsoll_core.controller.moves.partition_move import begun, rolled_back
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.moves import AlterReassignments, PartitionTarget, TargetAnswer
from plimsoll_core.messages.requests import BrokerProvenDead, CreateTopics, NewTopic

Build = Callable[..., Partition]


def every_broker(broker: int) -> bool:
    return True


def moved(p: Partition, *target: int) -> Partition:
    wish = begun(p, "orders-0", target)
    assert isinstance(wish, PartitionUpdate), wish
    return change(p, wish, every_broker)


def cancelled(p: Partition, *, forced: bool = False) -> Partition:
    wish = rolled_back(p, "orders-0", forced=forced)
    assert isinstance(wish, PartitionUpdate), wish
    return change(p, wish, every_broker)


def reason(found: PartitionUpdate | Refusal) -> Reason:
    assert isinstance(found, Refusal)
    return found.reason


class TestStart:
    def test_worked_example(self, a_partition: Build) -> None:
        """replicas 1,2,3 isr 1,2 leader 1, target 1,2,4 → grow: 1,2,4,3 adding 4 removing 3, LE
        same, PE+1."""
        p = moved(a_partition(isr=(1, 2)), 1, 2, 4)
        assert (p.replicas, p.adding, p.removing) == ((1, 2, 4, 3), (4,), (3,))
        assert (p.leader, p.leader_epoch, p.partition_epoch) == (1, 5, 10)

    def test_reorder_completes_in_the_same_record(self, a_partition: Build) -> None:
        """A reorder, or a removal whose survivors are all in ISR, completes in this same record."""
        p = moved(a_partition(), 3, 1, 2)
        assert (p.replicas, p.adding, p.removing) == ((3, 1, 2), (), ())
        assert (p.leader, p.leader_epoch, p.partition_epoch) == (1, 5, 10)

    def test_follower_removal_completes_in_the_same_record(self, a_partition: Build) -> None:
        p = moved(a_partition(), 1, 2)
        assert (p.replicas, p.isr, p.removing) == ((1, 2), (1, 2), ())
        assert (p.leader, p.leader_epoch) == (1, 6)

    def test_leader_removal_hands_over_in_the_same_record(self, a_partition: Build) -> None:
        p = moved(a_partition(leader=3), 1, 2)
        assert (p.leader, p.isr, p.leader_epoch) == (1, (1, 2), 6)

    def test_removal_waits_for_survivor_in_sync(self, a_partition: Build) -> None:
        p = moved(a_partition(isr=(1, 3)), 1, 2)
        assert (p.replicas, p.removing, p.isr) == ((1, 2, 3), (3,), (1, 3))

    def test_reassignment_to_the_current_replicas_changes_nothing(self, a_partition: Build) -> None:
        p = a_partition()
        assert moved(p, 1, 2, 3) is p

    def test_move_start_keeps_effective_min_isr(self, a_partition: Build) -> None:
        """m(p) = max(1, min(p.min_isr, |p.replicas − p.adding|))."""
        p = a_partition(replicas=(1,), isr=(1,), min_isr=2)
        assert moved(p, 2, 3).effective_min_isr == p.effective_min_isr == 1


class TestReplacement:
    """A new request replaces a running one."""

    def running(self, a_partition: Build, **fields: Any) -> Partition:
        values = {"replicas": (4, 1, 2, 3), "adding": (4,), "removing": (2, 3), "leader": 1}
        return a_partition(**{**values, **fields})

    def test_replaced_reassignment_drops_adding_replica_outside_new_target(
        self, a_partition: Build
    ) -> None:
        p = moved(self.running(a_partition), 1, 2, 5)
        assert (p.replicas, p.adding, p.removing) == ((1, 2, 5, 3), (5,), (3,))
        assert p.leader_epoch == 6

    def test_replaced_reassignment_keeps_adding_replica_of_new_target(
        self, a_partition: Build
    ) -> None:
        p = moved(self.running(a_partition), 4, 5)
        assert (p.replicas, p.adding, p.removing) == ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3))
        assert p.leader_epoch == 5

    def test_cancel_afterwards_still_knows_the_way_back(self, a_partition: Build) -> None:
        """Against the grown list alone, 4 would have become a settled replica by the second
        request, and the cancel would leave the partition with one replica more than before."""
        p = moved(self.running(a_partition), 4, 5)
        assert set(cancelled(p).replicas) == {1, 2, 3}

    def test_min_isr_counts_as_before(self, a_partition: Build) -> None:
        p = moved(a_partition(replicas=(1,), isr=(1,), min_isr=2), 2)
        assert moved(p, 2, 3).effective_min_isr == 1

    def test_back_to_where_it_came_from_ends_it(self, a_partition: Build) -> None:
        p = moved(self.running(a_partition), 1, 2, 3)
        assert (p.replicas, p.adding, p.removing) == ((1, 2, 3), (), ())

    def test_way_back_waits_for_who_fell_out_meanwhile(self, a_partition: Build) -> None:
        p = self.running(a_partition, isr=(1, 2), elr=())
        p = moved(p, 1, 2, 3)
        assert (p.replicas, p.adding, p.removing) == ((1, 2, 3), (), ())
        assert p.isr == (1, 2)

    def test_replacement_never_drops_who_may_be_needed(self, a_partition: Build) -> None:
        p = self.running(a_partition, isr=(1,), elr=(4,))
        assert reason(begun(p, "orders-0", (1, 2, 5))) is Reason.InvalidReplicaAssignment
        assert reason(begun(p, "orders-0", (1, 2, 3))) is Reason.InvalidReplicaAssignment
        assert moved(p, 4, 1, 5).adding == (4, 5)


class TestCancel:
    def test_partition_is_as_before(self, a_partition: Build) -> None:
        """THEN change(p, isr', replicas − adding, ∅, ∅)."""
        p = moved(a_partition(), 1, 2, 4)
        p = change(p, PartitionUpdate(isr=(1, 2)), every_broker)
        back = cancelled(p)
        assert (back.replicas, back.adding, back.removing) == ((1, 2, 3), (), ())
        assert (back.leader, back.isr, back.leader_epoch) == (1, (1, 2), 6)

    def test_cancel_without_a_move_is_refused(self, a_partition: Build) -> None:
        """REQUIRE running (NO_REASSIGNMENT_IN_PROGRESS 85)."""
        assert reason(rolled_back(a_partition(), "orders-0")) is Reason.NoReassignmentInProgress
        assert Reason.NoReassignmentInProgress.code == 85

    def test_leader_that_was_being_added_hands_over(self, a_partition: Build) -> None:
        p = a_partition(replicas=(4, 5, 1, 2), adding=(4, 5), isr=(4, 1, 2), leader=4)
        p = cancelled(p)
        assert (p.leader, p.isr, p.replicas, p.leader_epoch) == (1, (1, 2), (1, 2), 6)

    def test_cancel_is_rejected_when_only_adding_replicas_synced(self, a_partition: Build) -> None:
        """if ∅ REQUIRE unclean allowed, else 39."""
        p = a_partition(replicas=(4, 5, 1, 2), adding=(4, 5), isr=(4, 5), leader=4)
        for forced in (False, True):
            refusal = rolled_back(p, "orders-0", forced=forced)
            assert reason(refusal) is Reason.InvalidReplicaAssignment
            assert isinstance(refusal, Refusal)
            assert "partition orders-0 on" in refusal.message
            assert "no other replica is in sync" in refusal.message

    def test_cancel_never_eats_the_quorum(self, a_partition: Build) -> None:
        """S34: 4 fenced: ISR {1}, ELR {4}.  Cancel would leave {1} as sole holder. => refused
        until abs(isr − adding) ≥ m or forced."""
        values = {"replicas": (4, 5, 1, 2), "adding": (4, 5), "min_isr": 2, "leader": 1}
        for fields in ({"elr": (4,)}, {"last_known_elr": (4,)}, {"isr": (4, 1)}):
            p = a_partition(**{**values, "isr": (1,), **fields})
            refusal = rolled_back(p, "orders-0")
            assert reason(refusal) is Reason.InvalidReplicaAssignment
            assert isinstance(refusal, Refusal)
            assert "broker 4" in refusal.message
            assert "below min ISR 2" in refusal.message
            assert cancelled(p, forced=True).replicas == (1, 2)
        enough = a_partition(**{**values, "isr": (4, 1, 2)})
        assert cancelled(enough).isr == (1, 2)

    def test_leaderless_cancel_drops_replica_outside_isr_and_elr(self, a_partition: Build) -> None:
        p = a_partition(replicas=(4, 1, 2), adding=(4,), isr=(), elr=(1, 2), leader=None)
        p = change(p, PartitionUpdate(), lambda _: False)
        wish = rolled_back(p, "orders-0")
        assert isinstance(wish, PartitionUpdate)
        back = change(p, wish, lambda _: False)
        assert (back.replicas, back.elr, back.leader) == ((1, 2), (1, 2), None)


class TestCompletion:
    """Step 1 of the rule for changes, wherever the ISR comes from."""

    def test_leader_from_elr_may_be_the_whole_target(self, a_partition: Build) -> None:
        p = a_partition(isr=(), elr=(1, 2), leader=None, min_isr=2)
        p = change(p, begun(p, "orders-0", (2,)), lambda _: False)
        assert (p.removing, p.leader) == ((1, 3), None)
        p = change(p, PartitionUpdate(), lambda b: b == 2)
        assert (p.replicas, p.removing, p.leader, p.elr) == ((2,), (), 2, ())

    def test_fence_of_removed_replica_has_no_effect(self, a_partition: Build) -> None:
        """S33, KAFKA-9672: completing a move while the removed broker is dead and in ISR."""
        p = moved(a_partition(), 1, 2, 4)
        p = change(p, PartitionUpdate(isr=(1, 2)), lambda b: b != 3)
        p = change(p, PartitionUpdate(isr=(1, 2, 4)), lambda b: b != 3)
        assert (p.replicas, p.isr) == ((1, 2, 4), (1, 2, 4))


def alter(world: Any, *targets: tuple[int, ...] | None, topic: str = "orders", **how: Any) -> Any:
    """Targets for partitions 0, 1, …; the answers."""
    wanted = tuple(
        PartitionTarget(topic=topic, index=index, replicas=target)
        for index, target in enumerate(targets)
    )
    return world.ask(AlterReassignments(targets=wanted, **how)).partitions


@pytest.fixture
def five(new_world: Callable[..., Any]) -> Any:
    """Brokers 0 to 4; `orders` has one partition on 0, 1, 2, and belongs to a client."""
    world = new_world(5)
    topic = NewTopic(name="orders", assignment=((0, 1, 2),), configs={"min.insync.replicas": "2"})
    world.ask(CreateTopics(topics=(topic,)))
    return world


class TestRequest:
    def test_move_runs_from_request_to_last_isr(self, five: Any) -> None:
        (answer,) = alter(five, (0, 1, 3))
        assert answer == TargetAnswer(topic="orders", index=0, partition_epoch=1)
        assert (five.p().replicas, five.p().adding) == ((0, 1, 3, 2), (3,))
        five.propose([0, 1, 2, 3])
        assert (five.p().replicas, five.p().isr) == ((0, 1, 3), (0, 1, 3))

    def test_new_leader_elected(self, five: Any) -> None:
        """S32: Leader 3 proposes the ISR that completes 1,2,3→1,2,4. => 108 but committed; 1 leads
        LE+1."""
        alter(five, (1, 2, 3))
        answer = five.propose([0, 1, 2, 3])
        assert answer.code == Reason.NewLeaderElected.code == 108
        assert (five.p().leader, five.p().leader_epoch) == (1, 1)

    def test_never_an_empty_isr(self, five: Any) -> None:
        """S31: RF 5→3 with ISR {4,5}, target 1,2,3. => grow record only; 4/5 keep leading until
        1,2,3 ⊆ ISR, then one completing record."""
        alter(five, (0, 1, 2, 3, 4))
        five.propose([0, 1, 2, 3, 4])
        for broker in (0, 1, 2):
            epoch = five.image.brokers[broker].broker_epoch
            five.ask(BrokerProvenDead(broker_id=broker, broker_epoch=epoch, evidence="e"))
        alter(five, (0, 1, 2))
        assert (five.p().leader, five.p().isr, five.p().removing) == (3, (3, 4), (3, 4))
        five.start(0, 1, 2)
        five.propose([3, 4, 0])
        five.propose([3, 4, 0, 1])
        assert five.p().leader == 3
        end = len(five.log)
        five.propose([3, 4, 0, 1, 2])
        assert len(five.log) == end + 1
        assert (five.p().leader, five.p().isr, five.p().replicas) == (0, (0, 1, 2), (0, 1, 2))

    @pytest.mark.parametrize(
        ("target", "reason", "words"),
        [
            ((), "InvalidReplicaAssignment", "names no broker"),
            ((0, 1, 1), "InvalidReplicaAssignment", "names a broker twice"),
            ((0, 1, 9), "InvalidReplicaAssignment", "not registered: 9"),
            (None, "NoReassignmentInProgress", "not being moved"),
        ],
    )
    def test_refusals(self, five: Any, target: Any, reason: str, words: str) -> None:
        """REQUIRE non-empty, distinct, registered (39)."""
        end = len(five.log)
        (answer,) = alter(five, target)
        assert (answer.reason, answer.code) == (reason, Reason[reason].code)
        assert words in answer.message
        assert len(five.log) == end

    def test_another_factor_needs_permission(self, five: Any) -> None:
        """if ¬allow_rf_change size = size of (replicas − adding) (38)."""
        (answer,) = alter(five, (0, 1), allow_factor_change=False)
        assert (answer.code, five.p().replicas) == (38, (0, 1, 2))
        alter(five, (0, 1, 3))
        (answer,) = alter(five, (0, 1, 3, 4), allow_factor_change=False)
        assert answer.code == 38
        (answer,) = alter(five, (0, 3, 4), allow_factor_change=False)
        assert answer.code == 0

    def test_unknown_partitions_and_repeated_ones(self, five: Any) -> None:
        (answer,) = alter(five, (0, 1, 3), topic="nothing")
        assert answer.reason == "UnknownTopicOrPartition"
        first, second = alter(five, (0, 1, 3), (0, 1, 3))
        assert (first.code, second.reason) == (0, "UnknownTopicOrPartition")
        twice = PartitionTarget(topic="orders", index=0, replicas=(0, 1, 4))
        answers = five.ask(AlterReassignments(targets=(twice, twice))).partitions
        assert [answer.reason for answer in answers] == ["InvalidRequest", "InvalidRequest"]

    def test_factor_of_a_clients_topic_follows_its_partitions(self, five: Any) -> None:
        def factor() -> int:
            return five.image.topics[five.image.topic_ids["orders"]].replication_factor

        alter(five, (0, 1, 2, 3))
        assert factor() == 4
        alter(five, None)
        assert factor() == 3

    def test_target_in_one_rack_is_refused_when_required(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(0, rack_policy="Required")
        for broker, rack in enumerate("aab"):
            world.start(broker, rack=rack)
        topic = NewTopic(name="orders", assignment=((0, 2),))
        world.ask(CreateTopics(topics=(topic,)))
        (answer,) = alter(world, (0, 1))
        assert answer.code == 38
        assert "two racks" in answer.message

    def test_long_request_goes_through_in_slices(self, new_world: Callable[..., Any]) -> None:
        world = new_world(4, slice_partitions_max=2)
        topic = NewTopic(name="orders", assignment=((0, 1, 2),) * 5)
        world.ask(CreateTopics(topics=(topic,)))
        first = world.decide(
            AlterReassignments(
                targets=tuple(
                    PartitionTarget(topic="orders", index=i, replicas=(0, 1, 3)) for i in range(5)
                )
            )
        )
        changed = [r for r in first.records if isinstance(r, PartitionsChanged)]
        assert [r.ranges for r in changed] == [((0, 1),)]
        answers = alter(world, *[(0, 1, 3)] * 5)
        assert [(answer.index, answer.code) for answer in answers] == [(n, 0) for n in range(5)]
        assert {world.p(n).adding for n in range(5)} == {(3,)}


class TestDeclaredTopics:
    """What a Topic object states is changed there alone."""

    def test_another_factor_is_refused_naming_the_object(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(5)
        world.declare(partitions=1)
        (answer,) = alter(world, (0, 1, 2, 3))
        assert (answer.code, answer.reason) == (44, "PolicyViolation")
        assert "Topic shop/orders" in answer.message
        assert "replication factor 3" in answer.message

    def test_other_replicas_of_same_count_may_be_chosen(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(5)
        world.declare(partitions=1)
        (answer,) = alter(world, (2, 3, 4))
        assert answer.code == 0

    def test_explicit_assignment_is_the_objects(self, world: Any) -> None:
        world.start(3)
        (answer,) = alter(world, (0, 1, 3))
        assert answer.code == 44
        assert "states the replicas of each partition" in answer.message
        (answer,) = alter(world, (0, 1, 2))
        assert answer.code == 0

    def test_factor_change_is_not_cancelled_by_clients(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5)
        world.declare(partitions=1)
        world.declare(partitions=1, replication_factor=5)
        (answer,) = alter(world, None)
        assert answer.code == 44
        assert len(world.p().adding) == 2
