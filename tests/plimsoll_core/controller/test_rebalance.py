"""A Rebalance: its plan is begun as a whole and once, and there is a way back."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_core.rebalances import (
    OBJECT,
    ONE,
    OTHER,
    all_of,
    begin,
    copied,
    dies,
    finish,
    look,
    moving,
    planned,
    rest,
    row,
    topic,
)

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import (
    ReassignmentObject,
    Rebalance,
    RebalanceMove,
    RebalanceObject,
)
from plimsoll_core.cluster.records import RebalanceMovesAdded, RebalanceNoted
from plimsoll_core.controller.moves.rebalance_object import ROWS_MAX
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.moves import (
    AlterReassignments,
    BeginRebalance,
    PartitionTarget,
    RebalanceObjectGone,
    RebalanceState,
    RunReassignment,
    RunRebalance,
    TopicMove,
)
from plimsoll_core.messages.requests import (
    Refused,
)


@pytest.fixture
def five(new_world: Callable[..., Any]) -> Any:
    """Brokers 0 to 4; `orders` has six partitions on 0, 1, 2."""
    world = new_world(5)
    topic(world, ((0, 1, 2), (1, 2, 0), (2, 0, 1)) * 2)
    return world


class TestBegin:
    def test_plan_is_committed_before_anything_moves(self, five: Any) -> None:
        assert begin(five, "AddBrokers", 3, 4, wall_ms=7) == RebalanceState(phase="Running")
        assert not moving(five)
        found = row(five)
        assert (found.phase, found.mode, found.brokers) == ("Running", "AddBrokers", (3, 4))
        assert found.total == len(rest(five).moves) > 0
        assert found.replicas == 6, "18 replicas on five brokers: three or four each"
        assert found.started_ms == 7

    def test_never_begun_twice(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        assert finish(five).phase == "Completed"
        end = len(five.log)
        assert begin(five, "RemoveBrokers", 3).phase == "Completed"
        assert len(five.log) == end

    def test_rebalance_without_moves_has_ended(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        finish(five)
        assert begin(five, "AddBrokers", 3, 4, object=OTHER).phase == "Completed"
        assert (row(five, "u2").total, row(five, "u2").phase) == (0, "Completed")

    def test_cancelled_before_it_began(self, five: Any) -> None:
        assert begin(five, "AddBrokers", 3, moves=(), cancelled=True).phase == "Cancelled"
        assert begin(five, "AddBrokers", 3).phase == "Cancelled", "uncancelling begins nothing"
        assert not moving(five)

    def test_outdated_plan_is_refused_whole(self, five: Any) -> None:
        old = planned(five, "AddBrokers", 3, 4)
        change = old.moves[0]
        five.ask(
            AlterReassignments(
                targets=(PartitionTarget(topic="orders", index=change.index, replicas=(4, 1, 2)),)
            )
        )
        five.propose([0, 1, 2, 4], change.index)
        end = len(five.log)
        answer = begin(five, "AddBrokers", 3, 4, plan_hash=old.hash, moves=old.moves)
        assert isinstance(answer, Refused)
        assert answer.reason == "PlanOutdated"
        assert (
            f"1 partitions have changed since the plan was made, such as orders-{change.index}"
            in (answer.message)
        )
        assert len(five.log) == end

    @pytest.mark.parametrize("after", [(0, 1, 9), (0, 1, 1), (0, 1)])
    def test_target_that_cannot_be_is_refused(self, five: Any, after: Any) -> None:
        p = five.p()
        bad = RebalanceMove(number=0, topic_id=p.topic_id, index=0, before=p.replicas, after=after)
        assert begin(five, "Full", moves=(bad,)).reason == "PlanOutdated"

    def test_rebalance_contradicting_a_topic_objects_assignment_is_rejected(
        self, five: Any
    ) -> None:
        five.declare("stated", strategy="Explicit", assignment=((0, 1, 2),))
        p = five.p(0, "stated")
        bad = RebalanceMove(
            number=0, topic_id=p.topic_id, index=0, before=(0, 1, 2), after=(3, 1, 2)
        )
        answer = begin(five, "Full", moves=(bad,))
        assert answer.reason == "PlanOutdated"
        assert "stated-0" in answer.message

    def test_add_brokers_plan_with_unregistered_broker_is_refused(self, five: Any) -> None:
        refusal = planned(five, "AddBrokers", 3, 9)
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.BrokerIdNotRegistered
        assert "broker 9" in refusal.message

    def test_rebalance_that_has_not_begun_writes_nothing(self, five: Any) -> None:
        end = len(five.log)
        assert look(five) == RebalanceState(phase=None)
        assert len(five.log) == end

    def test_rebalance_waits_for_partition_under_reassignment(self, five: Any) -> None:
        """A move that stands still must not hold up the whole plan."""
        holder = ReassignmentObject(namespace="kafka", name="mine", uid="r1")
        index = planned(five, "RemoveBrokers", 1).moves[0].index
        move = TopicMove(topic="orders", partitions=(index,), replicas=(0, 1, 3))
        five.ask(RunReassignment(object=holder, moves=(move,)))
        assert begin(five, "RemoveBrokers", 1).phase == "Running"
        for _ in range(10):
            state = look(five)
            for p in moving(five):
                if p.index != index:
                    copied(five, p)
        assert (state.phase, state.reason) == ("Running", "ReassignmentInProgress")
        assert (
            f"Reassignment kafka/mine moves partition orders-{index}; the Rebalance waits"
            in state.message
        )
        assert set(five.image.hosted[1]) == {five.p(index).key}
        five.propose([0, 1, 2, 3], index)
        assert five.p(index).replicas == (0, 1, 3)
        five.ask(RunReassignment(object=holder, moves=(move,)))
        assert finish(five).phase == "Completed"
        assert 1 not in five.image.hosted
        assert row(five).dropped == 0

    def test_second_rebalance_is_rejected_until_first_completes(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        answer = begin(five, "RemoveBrokers", 2, object=OTHER)
        assert answer.reason == "ReassignmentInProgress"
        assert "Rebalance kafka/fill is running" in answer.message
        finish(five)
        assert begin(five, "RemoveBrokers", 2, object=OTHER).phase == "Running"

    def test_rows_are_bounded(self, five: Any) -> None:
        for number in range(ROWS_MAX):
            holder = RebalanceObject(namespace="kafka", name=f"r{number}", uid=f"r{number}")
            ended = Rebalance(object=holder, mode="Full", phase="Completed")
            five.commit(RebalanceNoted(cause="test", rebalance=ended))
        assert begin(five, "AddBrokers", 3).reason == "TooManyWaiting"
        five.ask(RebalanceObjectGone(object=holder))
        assert begin(five, "AddBrokers", 3).phase == "Running"

    def test_crash_during_plan_leaves_nothing_moving(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=2)
        topic(world, ((0, 1, 2),) * 7)
        found = planned(world, "AddBrokers", 3, 4)
        request = BeginRebalance(
            object=OBJECT,
            mode="AddBrokers",
            brokers=(3, 4),
            plan_hash=found.hash,
            moves=found.moves,
        )
        world.ask(request, crash_after=2)
        assert row(world).phase == "Beginning"
        assert len(rest(world).moves) == 2
        assert look(world).phase == "Beginning", "its plan has to be given again"
        assert world.ask(request).phase == "Running"
        assert len(rest(world).moves) == len(found.moves)
        parts = [r for r in world.log if isinstance(r, RebalanceMovesAdded)]
        assert max(len(part.moves) for part in parts) == 2
        assert finish(world).phase == "Completed"

    def test_rebalance_cancelled_while_plan_is_half_committed(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(5, slice_partitions_max=1)
        topic(world, ((0, 1, 2),) * 4)
        found = planned(world, "AddBrokers", 3, 4)
        request = BeginRebalance(
            object=OBJECT, mode="AddBrokers", plan_hash=found.hash, moves=found.moves
        )
        world.ask(request, crash_after=2)
        assert look(world, cancelled=True).phase == "Cancelled"
        assert world.ask(request).phase == "Cancelled"
        assert world.ask(RebalanceObjectGone(object=OBJECT)).phase is None
        later = world.decide(request).again
        assert world.ask(later).phase is None, "it was forgotten between two slices"


class TestModes:
    def test_brokers_are_filled(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        assert finish(five).phase == "Completed"
        held = [len(five.image.hosted[b]) for b in range(5)]
        assert max(held) - min(held) <= 1
        found = row(five)
        assert (found.moved, found.replicas_moved) == (found.total, found.replicas)
        assert found.dropped == 0
        assert not five.image.rebalance_rests

    def test_brokers_are_emptied(self, five: Any) -> None:
        begin(five, "RemoveBrokers", 1)
        assert finish(five).phase == "Completed"
        assert 1 not in five.image.hosted
        assert all(len(p.replicas) == 3 for p in five.image.partitions.values())

    def test_full_rebalance_ends_even(self, five: Any) -> None:
        topic(five, ((0, 1, 2),) * 4, "more")
        begin(five, "Full")
        for _ in range(50):
            if look(five).phase == "Completed":
                break
            for p in moving(five):
                name = five.image.topics[p.topic_id].name
                five.ask(five.proposal(list(p.replicas), p.index, name=name))
        held = [len(five.image.hosted[b]) for b in range(5)]
        assert max(held) - min(held) <= 1

    def test_leaders_alone_copy_nothing(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3)
        topic(world, ((0, 1, 2),) * 6)
        assert begin(world, "PreferredLeaders").phase == "Running"
        assert look(world).phase == "Completed"
        firsts = [world.p(n).replicas[0] for n in range(6)]
        assert sorted(firsts) == [0, 0, 1, 1, 2, 2]
        assert (row(world).replicas, row(world).moved) == (0, 4)


class TestLeaders:
    @pytest.mark.parametrize("mode", ["AddBrokers", "Full", "PreferredLeaders"])
    def test_preferred_replicas_lead_after_rebalance(
        self, new_world: Callable[..., Any], mode: str
    ) -> None:
        """No tick has passed: the leaders do not wait for the scan of displaced ones."""
        world = new_world(5)
        topic(world, ((0, 1, 2),) * 6)
        begin(world, mode, *((3, 4) if mode == "AddBrokers" else ()))
        state = finish(world)
        assert (state.phase, state.message) == ("Completed", "")
        assert {p.leader for p in all_of(world)} > {0}
        assert [p.leader for p in all_of(world)] == [p.replicas[0] for p in all_of(world)]

    def test_leader_without_preferred_replica_in_sync_is_named(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(3)
        topic(world, ((0, 1, 2),) * 6)
        dies(world, 2)
        begin(world, "PreferredLeaders")
        state = look(world)
        assert state.phase == "Completed"
        left = [p for p in all_of(world) if p.replicas[0] == 2]
        assert len(left) == 2
        assert {p.leader for p in left} <= {0, 1}
        assert state.message.startswith(
            "At the end of the Rebalance 2 partitions have another leader than"
        )

    def test_crash_before_move_end_leaves_no_stale_leader(
        self, new_world: Callable[..., Any]
    ) -> None:
        for number in range(6):
            world = new_world(3)
            topic(world, ((0, 1, 2),) * 3)
            begin(world, "PreferredLeaders")
            world.ask(RunRebalance(object=OBJECT), crash_after=number)
            finish(world)
            assert [p.leader for p in all_of(world)] == [p.replicas[0] for p in all_of(world)]


class TestBack:
    def test_cancelled_half_way(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five, limits=ONE)
        copied(five)
        look(five, limits=ONE)
        done = row(five).moved
        assert done
        assert look(five, cancelled=True, wall_ms=5).phase == "Cancelled"
        assert not moving(five)
        assert (row(five).moved, row(five).ended_ms) == (done, 5)
        assert not five.image.rebalance_rests
        assert look(five).phase == "Cancelled"

    def test_cancelled_rebalance_keeps_move_that_arrived(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five)
        arrived, other = moving(five)[:2]
        copied(five, arrived)
        done = row(five).moved
        assert look(five, cancelled=True).phase == "Cancelled"
        assert row(five).moved == done + 1
        assert five.p(arrived.index).replicas == arrived.target
        assert five.p(other.index).replicas == other.settled

    def test_guard_delays_one_rebalance_partition_only(self, five: Any) -> None:
        begin(five, "RemoveBrokers", 1)
        look(five)
        held = next(p for p in moving(five) if p.leader == 1)
        new = held.adding[0]
        five.propose([held.leader, new], held.index)
        dies(five, new)
        assert five.p(held.index).elr == (new,)
        state = look(five, cancelled=True)
        assert (state.phase, state.reason) == ("Running", "InvalidReplicaAssignment")
        assert f"orders-{held.index}" in state.message
        assert [p.index for p in moving(five)] == [held.index]
        gone = five.ask(RebalanceObjectGone(object=OBJECT))
        assert (gone.phase, gone.reason) == ("Running", "InvalidReplicaAssignment")
        assert row(five).phase == "Running", "it is not forgotten while it moves something"
        others = [b for b in held.settled if five.image.brokers[b].active]
        five.propose(others, held.index)
        assert look(five, cancelled=True).phase == "Cancelled"

    def test_deletion_rolls_back_and_forgets(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five)
        assert five.ask(RebalanceObjectGone(object=OBJECT)).phase is None
        assert not moving(five)
        assert not five.image.rebalances
        assert not five.image.rebalance_rests
        assert five.ask(RebalanceObjectGone(object=OBJECT)).phase is None

    def test_ended_one_is_just_forgotten(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        finish(five)
        rows = {p.key: p.replicas for p in all_of(five)}
        five.ask(RebalanceObjectGone(object=OBJECT))
        assert not five.image.rebalances
        assert {p.key: p.replicas for p in all_of(five)} == rows

    def test_slices(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=2)
        topic(world, ((0, 1, 2),) * 7)
        begin(world, "AddBrokers", 3, 4)
        look(world)
        assert len(moving(world)) > 2
        assert look(world, cancelled=True).phase == "Cancelled"
        assert not moving(world)


def test_new_controller_goes_on(five: Any) -> None:
    begin(five, "AddBrokers", 3, 4)
    look(five, limits=ONE)
    five.take_over()
    assert finish(five, limits=ONE).phase == "Completed"


def test_rows_survive_a_snapshot(five: Any) -> None:
    begin(five, "AddBrokers", 3, 4, bytes_per_second=9)
    look(five, limits=ONE)
    data = encode_image(five.image)
    assert decode_image(data) == five.image
    assert encode_image(decode_image(data)) == data
