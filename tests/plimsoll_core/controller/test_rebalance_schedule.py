"""A running Rebalance moves within its limits, and gives another target to what waits too long."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_core.rebalances import (
    OBJECT,
    ONE,
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

from plimsoll_core.cluster.model import (
    ReassignmentObject,
    RebalanceMove,
)
from plimsoll_core.cluster.records import RebalanceAdvanced, RebalanceMovesAdded
from plimsoll_core.messages.brokers import SetLeaving
from plimsoll_core.messages.moves import (
    AlterReassignments,
    MoveLimits,
    PartitionTarget,
    RunReassignment,
    RunRebalance,
    TopicMove,
)
from plimsoll_core.messages.requests import DeleteTopics, SetMembers


@pytest.fixture
def five(new_world: Callable[..., Any]) -> Any:
    """Brokers 0 to 4; `orders` has six partitions on 0, 1, 2."""
    world = new_world(5)
    topic(world, ((0, 1, 2), (1, 2, 0), (2, 0, 1)) * 2)
    return world


class TestWaves:
    def test_wave_respects_move_limit_at_each_broker(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        most = 0
        limits = MoveLimits(concurrent_moves_per_broker=2)
        while look(five, limits=limits).phase == "Running":
            busy: dict[int, int] = {}
            for p in moving(five):
                for broker in (*p.adding, *p.removing):
                    busy[broker] = busy.get(broker, 0) + 1
            assert all(count <= 2 for count in busy.values())
            most = max(most, len(moving(five)))
            copied(five, moving(five)[0])
        assert most >= 2, "disjoint moves go together"
        assert row(five).phase == "Completed"

    def test_wave_has_no_more_bytes_than_the_limit(self, five: Any) -> None:
        found = planned(five, "AddBrokers", 3, 4, sizes={p.key: 10 for p in all_of(five)})
        begin(five, "AddBrokers", 3, 4, moves=found.moves)
        limits = MoveLimits(concurrent_moves_per_broker=100, max_bytes=25)
        while look(five, limits=limits).phase == "Running":
            assert 10 <= sum(10 * len(p.adding) for p in moving(five)) <= 25
            copied(five)

    def test_move_larger_than_max_bytes_waits(self, five: Any) -> None:
        found = planned(five, "AddBrokers", 3, 4, sizes={p.key: 10 for p in all_of(five)})
        begin(five, "AddBrokers", 3, 4, moves=found.moves)
        state = look(five, limits=MoveLimits(max_bytes=9))
        assert (state.phase, state.reason) == ("Running", "TooLarge")
        assert "raise limits.maxBytes to at least 20" in state.message
        assert not moving(five)

    def test_partition_below_min_isr_waits_without_others(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        poor = sorted(rest(five).moves.items())[0][1].index
        five.propose([five.p(poor).leader], poor)
        look(five, limits=MoveLimits(concurrent_moves_per_broker=100))
        assert poor not in {p.index for p in moving(five)}
        assert moving(five)
        copied(five)
        state = look(five)
        assert state.reason == "UnderMinISR"
        assert f"orders-{poor} has 1 replicas in sync" in state.message
        five.propose([0, 1, 2], poor)
        assert finish(five).phase == "Completed"

    def test_leaderless_partition_waits_as_no_leader(self, new_world: Callable[..., Any]) -> None:
        """There would be no replica to copy from."""
        world = new_world(2)
        topic(world, ((0,),) * 4, min_isr=1)
        begin(world, "AddBrokers", 1)
        look(world, limits=ONE)
        (first,) = moving(world)
        dies(world, 0)
        state = look(world, limits=ONE)
        assert (state.phase, state.reason) == ("Running", "NoLeader")
        assert (
            f"orders-{first.index} has no leader, so its new replicas cannot be copied yet"
            in state.message
        )
        world.start(0, clean=True)
        world.beat(1)
        copied(world)
        dies(world, 0)
        state = look(world, limits=ONE)
        assert not moving(world), "what has no leader does not begin to move"
        assert (state.phase, state.reason) == ("Running", "NoLeader")
        assert row(world).moved == 1
        world.start(0, clean=True)
        assert finish(world, limits=ONE).phase == "Completed"

    def test_reorders_come_when_no_move_waits_for_room(self, five: Any) -> None:
        found = planned(five, "AddBrokers", 3, 4)
        names = {p.key for p in all_of(five)} - {move.key for move in found.moves}
        extra = []
        if names:
            p = five.image.partitions[sorted(names)[0]]
            extra = [
                RebalanceMove(
                    number=len(found.moves),
                    topic_id=p.topic_id,
                    index=p.index,
                    before=p.replicas,
                    after=p.replicas[::-1],
                )
            ]
        topic(five, ((0, 1, 2),), "calm")
        p = five.p(0, "calm")
        last = RebalanceMove(
            number=len(found.moves) + len(extra),
            topic_id=p.topic_id,
            index=0,
            before=(0, 1, 2),
            after=(2, 1, 0),
        )
        begin(five, "AddBrokers", 3, 4, moves=(*found.moves, *extra, last))
        look(five, limits=ONE)
        assert five.p(0, "calm").replicas == (0, 1, 2)
        look(five, limits=MoveLimits(concurrent_moves_per_broker=100))
        assert five.p(0, "calm").replicas == (2, 1, 0)

    def test_rebalance_drops_move_of_reassigned_partition(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        index = sorted(rest(five).moves.items())[0][1].index
        before = five.p(index).replicas
        target = tuple(sorted({0, 1, 2, 3, 4} - {before[0]})[-3:])
        answer = five.ask(
            AlterReassignments(
                targets=(PartitionTarget(topic="orders", index=index, replicas=target),)
            )
        )
        assert answer.partitions[0].code == 0, "a move that has not begun has no owner"
        assert look(five).phase == "Running"
        five.propose([0, 1, 2, 3, 4], index)
        assert finish(five).phase == "Completed"
        assert row(five).dropped == 1
        assert five.p(index).replicas == target

    def test_partition_moved_by_rebalance_rejects_other_reassignments(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five)
        index = moving(five)[0].index
        for replicas in (None, (0, 1, 4)):
            target = PartitionTarget(topic="orders", index=index, replicas=replicas)
            (answer,) = five.ask(AlterReassignments(targets=(target,))).partitions
            assert answer.reason == "PolicyViolation"
            assert "Rebalance kafka/fill" in answer.message
        holder = ReassignmentObject(namespace="kafka", name="mine", uid="r1")
        move = TopicMove(topic="orders", partitions=(index,), replicas=(0, 1, 4))
        answer = five.ask(RunReassignment(object=holder, moves=(move,)))
        assert answer.reason == "ReassignmentInProgress"
        assert "Rebalance kafka/fill" in answer.message

    def test_topic_may_go_on_the_way(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five, limits=ONE)
        five.ask(DeleteTopics(names=("orders",)))
        assert look(five).phase == "Failed"
        assert row(five).dropped == row(five).total

    def test_slices(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=2)
        topic(world, ((0, 1, 2),) * 12)
        begin(world, "AddBrokers", 3, 4)
        request = RunRebalance(object=OBJECT, limits=MoveLimits(concurrent_moves_per_broker=100))
        first = world.decide(request)
        assert first.again is not None
        assert sum(p.moving for p in first.image.partitions.values()) == 2
        world.ask(request)
        assert len(moving(world)) + row(world).moved == row(world).total, "reorders are done"

    def test_crash_between_claim_and_change_is_repaired(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        request = RunRebalance(object=OBJECT, limits=ONE)
        decision = five.decide(request)
        assert isinstance(decision.records[0], RebalanceAdvanced)
        five.ask(request, crash_after=1)
        assert rest(five).active
        assert not moving(five)
        look(five, limits=ONE)
        assert {p.key for p in moving(five)} == set(rest(five).active)
        assert finish(five, limits=ONE).phase == "Completed"

    def test_crash_between_new_target_and_change_is_repaired(self, five: Any) -> None:
        """The row names another target, the partition moves to the old one and arrives there: it
        is left where it is."""
        begin(five, "Full")
        look(five, limits=ONE)
        index, target = next((p.index, p.target) for p in moving(five) if 3 in p.adding)
        dies(five, 3, away_ms=five.settings.target_lost_ms)
        request = RunRebalance(object=OBJECT, limits=ONE)
        records = five.decide(request).records
        at = next(n for n, r in enumerate(records) if isinstance(r, RebalanceMovesAdded))
        five.ask(request, crash_after=at + 1)
        number = rest(five).active[five.p(index).key]
        assert 3 not in rest(five).moves[number].after
        assert five.p(index).target == target
        five.start(3)
        five.propose(list(five.p(index).replicas), index)
        assert five.p(index).replicas == target
        look(five, limits=ONE)
        assert row(five).dropped == 1
        assert finish(five, limits=ONE).phase == "Completed"
        assert five.p(index).replicas == target

    def test_lowest_margin_is_remembered(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five, limits=ONE)
        assert row(five).lowest_isr_margin == 1
        p = moving(five)[0]
        five.propose([p.leader], p.index)
        look(five, limits=ONE)
        assert row(five).lowest_isr_margin == -1


class TestPause:
    def test_paused_one_begins_nothing_more(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five, limits=ONE)
        before = len(moving(five))
        assert look(five, paused=True, bytes_per_second=9).phase == "Running"
        assert (row(five).paused, row(five).bytes_per_second) == (True, 9)
        copied(five)
        assert look(five, paused=True, bytes_per_second=9).phase == "Running"
        assert row(five).moved == before
        assert not moving(five)
        assert finish(five).phase == "Completed"
        assert not row(five).paused


class TestDeadTargets:
    def test_absent_broker_to_be_filled_is_named(self, five: Any) -> None:
        begin(five, "AddBrokers", 3, 4)
        look(five)
        dies(five, 3, away_ms=five.settings.target_lost_ms)
        state = look(five)
        assert (state.phase, state.reason) == ("Running", "TargetDown")
        assert "Broker 3 is down" in state.message
        for _ in range(3):
            copied(five)
            look(five)
        assert len(five.image.hosted[4]) >= 3, "the other one is filled meanwhile"
        five.start(3)
        assert finish(five).phase == "Completed"

    def test_another_target_when_brokers_are_emptied(self, five: Any) -> None:
        begin(five, "RemoveBrokers", 1)
        look(five, limits=ONE)
        dies(five, 3)
        assert look(five, limits=ONE).reason in ("", "TargetDown")
        dies(five, 4, away_ms=five.settings.target_lost_ms)
        five.start(4)
        assert finish(five).phase == "Completed"
        assert 1 not in five.image.hosted
        assert all(3 not in p.replicas for p in all_of(five))

    def test_full_rebalance_excludes_absent_broker(self, five: Any) -> None:
        begin(five, "Full")
        look(five, limits=ONE)
        dies(five, 3, away_ms=five.settings.target_lost_ms)
        assert finish(five).phase == "Completed"
        assert 3 not in five.image.hosted
        assert five.image.hosted[4], "the others are placed as planned"

    def test_broker_that_leaves_meanwhile_is_given_nothing(self, five: Any) -> None:
        begin(five, "RemoveBrokers", 1)
        look(five, limits=ONE)
        under_way = {p.key for p in moving(five)}
        five.ask(SetMembers(broker_ids=(0, 1, 2, 3, 4)))
        five.ask(SetLeaving(broker_ids=(1, 3)))
        assert finish(five, limits=ONE).phase == "Completed"
        assert 1 not in five.image.hosted
        assert set(five.image.hosted.get(3) or {}) <= under_way

    def test_leaving_absent_target_is_not_awaited(self, five: Any) -> None:
        begin(five, "RemoveBrokers", 1)
        look(five)
        lost = [p.index for p in moving(five) if 3 in p.adding]
        assert lost
        dies(five, 3)
        look(five)
        assert [p.index for p in moving(five) if 3 in p.adding] == lost, "it may be back soon"
        five.ask(SetMembers(broker_ids=(0, 1, 2, 3, 4)))
        five.ask(SetLeaving(broker_ids=(1, 3)))
        look(five)
        assert [five.p(n).adding for n in lost] == [(4,)] * len(lost)
        assert finish(five).phase == "Completed"
        assert 3 not in five.image.hosted

    def test_lost_target_in_elr_is_kept_until_recovery(self, five: Any) -> None:
        """It was in sync when it was lost: it alone may have acknowledged records."""
        begin(five, "RemoveBrokers", 1)
        look(five)
        p = next(p for p in moving(five) if p.leader == 1)
        (new,) = p.adding
        five.propose([p.leader, new], p.index)
        dies(five, new, away_ms=five.settings.target_lost_ms)
        assert five.p(p.index).elr == (new,)
        state = look(five, limits=ONE)
        assert state.reason == "TargetDown"
        assert five.p(p.index).adding == (new,)
        others = [b for b in p.settled if five.image.brokers[b].active]
        five.propose(others, p.index)
        look(five, limits=ONE)
        assert five.p(p.index).adding == (7 - new,), "of 3 and 4 the other one"
        assert finish(five).phase == "Completed"
        assert 1 not in five.image.hosted

    def test_rebalance_without_other_target_waits_as_target_down(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(4)
        topic(world, ((0, 1, 2), (1, 2, 0)))
        begin(world, "RemoveBrokers", 1)
        look(world, limits=ONE)
        dies(world, 3, away_ms=world.settings.target_lost_ms)
        state = look(world, limits=ONE)
        assert (state.phase, state.reason) == ("Running", "TargetDown")
        assert "Broker 3 is down" in state.message
        assert look(world, cancelled=True).phase == "Cancelled"
        assert not moving(world)

    def test_remove_brokers_moves_topic_created_meanwhile(self, five: Any) -> None:
        begin(five, "RemoveBrokers", 1)
        assert look(five).phase == "Running"
        copied(five)
        look(five)
        topic(five, ((1, 2, 3),), "late")
        while (state := look(five)).phase == "Running":
            late = five.p(0, "late")
            for p in moving(five):
                if p.key != late.key:
                    copied(five, p)
            if late.moving:
                five.ask(five.proposal(list(late.replicas), 0, name="late"))
        assert state.phase == "Completed"
        assert 1 not in five.image.hosted
        assert row(five).moved == row(five).total
