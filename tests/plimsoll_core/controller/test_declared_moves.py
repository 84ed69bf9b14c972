"""A Topic object with another replication factor or other explicit rows moves its partitions."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.messages.moves import (
    CopySize,
    LimitMovement,
    ReportCopies,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import BrokerProvenDead, Refused, Tick


@pytest.fixture
def five(new_world: Callable[..., Any]) -> Any:
    world = new_world(5)
    world.declare(partitions=5)
    return world


def factor(world: Any) -> int:
    return world.image.topics[world.image.topic_ids["orders"]].replication_factor


def finish(world: Any) -> None:
    """All replicas catch up."""
    for index in range(world.image.topics[world.image.topic_ids["orders"]].partitions):
        world.propose(sorted(world.p(index).replicas), index)


class TestFactor:
    def test_up_and_down_again(self, five: Any) -> None:
        five.declare(partitions=5, replication_factor=5)
        assert factor(five) == 5
        assert [len(five.p(n).adding) for n in range(5)] == [2] * 5
        finish(five)
        assert [sorted(five.p(n).isr) for n in range(5)] == [[0, 1, 2, 3, 4]] * 5
        five.declare(partitions=5, replication_factor=3)
        assert [len(five.p(n).replicas) for n in range(5)] == [3] * 5
        held = [len(five.image.hosted.get(b, ())) for b in range(5)]
        assert max(held) - min(held) <= 2

    def test_preferred_leaders_stay(self, five: Any) -> None:
        before = [five.p(n).replicas[0] for n in range(5)]
        five.declare(partitions=5, replication_factor=5)
        finish(five)
        five.declare(partitions=5, replication_factor=2)
        assert [five.p(n).replicas[0] for n in range(5)] == before

    def test_new_replicas_spread_over_brokers(self, new_world: Callable[..., Any]) -> None:
        world = new_world(6)
        world.declare(partitions=6, replication_factor=2)
        world.declare(partitions=6, replication_factor=3)
        assert [len(world.image.hosted[b]) for b in range(6)] == [3] * 6

    def test_new_replicas_prefer_unused_racks(self, new_world: Callable[..., Any]) -> None:
        world = new_world(0)
        racks = dict(enumerate("aabbcc"))
        for broker, rack in racks.items():
            world.start(broker, rack=rack)
        world.declare(partitions=12, replication_factor=2)
        world.declare(partitions=12, replication_factor=3)
        for index in range(12):
            assert {racks[b] for b in world.p(index).target} == {"a", "b", "c"}
        finish(world)
        world.declare(partitions=12, replication_factor=2)
        for index in range(12):
            assert len({racks[b] for b in world.p(index).replicas}) == 2

    def test_replication_factor_decrease_drops_offline_replica_first(self, five: Any) -> None:
        away = five.p(0).replicas[1]
        five.kill(away)
        five.declare(partitions=5, replication_factor=2)
        assert all(away not in five.p(n).replicas for n in range(5))

    def test_reverted_move_drops_the_adding_replicas(self, five: Any) -> None:
        before = [five.p(n).replicas for n in range(5)]
        five.declare(partitions=5, replication_factor=5)
        five.declare(partitions=5, replication_factor=3)
        assert [five.p(n).replicas for n in range(5)] == before
        assert not any(five.p(n).moving for n in range(5))

    def test_too_few_brokers_change_nothing(self, five: Any) -> None:
        end = len(five.log)
        answer = five.declare(partitions=5, replication_factor=6)
        assert isinstance(answer, Refused)
        assert answer.reason == "NotEnoughBrokers"
        assert "needs 6 brokers, but only 5" in answer.message
        assert len(five.log) == end

    def test_partitions_added_during_move_have_new_factor(self, five: Any) -> None:
        five.declare(partitions=7, replication_factor=4)
        assert [len(five.p(n).target) for n in range(7)] == [4] * 7
        assert not five.p(6).moving

    def test_asked_again_nothing_is_added(self, five: Any) -> None:
        five.declare(partitions=5, replication_factor=5)
        end = len(five.log)
        five.declare(partitions=5, replication_factor=5)
        assert len(five.log) == end

    def test_slices(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=2)
        world.declare(partitions=9)
        decision = world.decide(world.declaration(partitions=9, replication_factor=4))
        changed = [p for p in decision.image.partitions.values() if p.moving]
        assert len(changed) == 2
        world.declare(partitions=9, replication_factor=4)
        assert [len(world.p(n).target) for n in range(9)] == [4] * 9

    def test_partition_that_an_object_moves_is_waited_for(self, five: Any) -> None:
        holder = ReassignmentObject(namespace="kafka", name="mine", uid="u1")
        off = five.p(0).replicas[2]
        move = TopicMove(topic="orders", partitions=(0,), away_from=(off,))
        five.ask(RunReassignment(object=holder, moves=(move,)))
        answer = five.declare(partitions=5, replication_factor=4)
        assert (answer.reason, answer.code) == ("ReassignmentInProgress", 60)
        assert "Reassignment kafka/mine" in answer.message

    def test_target_that_stays_away_is_replaced(self, five: Any) -> None:
        five.declare(partitions=5, replication_factor=4)
        gone = five.p(0).adding[0]
        epoch = five.image.brokers[gone].broker_epoch
        five.ask(BrokerProvenDead(broker_id=gone, broker_epoch=epoch, evidence="e"))
        five.ask(Tick())
        five.declare(partitions=5, replication_factor=4)
        assert five.p(0).adding == (gone,)
        five.now_ms += five.settings.target_lost_ms
        for broker in set(range(5)) - {gone}:
            five.beat(broker)
        five.declare(partitions=5, replication_factor=4)
        assert all(gone not in five.p(n).adding for n in range(5))
        assert [len(five.p(n).target) for n in range(5)] == [4] * 5


class TestExplicit:
    def explicit(self, world: Any, *rows: tuple[int, ...]) -> Any:
        return world.declare(
            partitions=len(rows),
            replication_factor=len(rows[0]),
            strategy="Explicit",
            assignment=rows,
            min_isr=1,
        )

    def test_other_rows_are_moved_to(self, five: Any) -> None:
        rows = [five.p(n).replicas for n in range(5)]
        rows[3] = (4, 0, 2)
        self.explicit(five, *rows)
        assert [five.p(n).target for n in range(5)] == rows
        assert sum(five.p(n).moving for n in range(5)) <= 1

    def test_rows_of_another_length(self, five: Any) -> None:
        rows = [(*five.p(n).replicas, *(set(range(5)) - set(five.p(n).replicas))) for n in range(5)]
        self.explicit(five, *rows)
        assert factor(five) == 5
        assert [five.p(n).target for n in range(5)] == rows

    def test_rows_that_cannot_be(self, five: Any) -> None:
        answer = self.explicit(five, *[(0, 1, 7)] * 5)
        assert answer.reason == "PlacementInvalid"
        assert "not registered: 7" in answer.message

    def test_assignment_that_drops_only_synced_replica_is_refused(self, five: Any) -> None:
        """ "a partition never loses its last ISR member to a reassignment"."""
        rows = [five.p(n).replicas for n in range(5)]
        old = rows[0]
        new = tuple(set(range(5)) - set(old))
        self.explicit(five, (old[0], *new), *rows[1:])
        five.propose([old[0], new[0]])
        five.beat(old[0], want_fence=True)
        assert five.p(0).isr == (new[0],)
        before = five.p(0)
        answer = self.explicit(five, *rows)
        assert answer.reason == "InvalidReplicaAssignment"
        assert "no other replica is in sync" in answer.message
        assert five.p(0) == before

    def test_formula_moves_nothing(self, five: Any) -> None:
        """The placement formula applies at creation and growth; later it is only reported."""
        five.declare(partitions=5, strategy="Blocked")
        assert not any(five.p(n).moving for n in range(5))
        assert five.image.topics[five.image.topic_ids["orders"]].strategy == "Blocked"


class TestMovement:
    def test_limit_is_a_record(self, five: Any) -> None:
        assert five.image.movement_bytes_per_second == 50 * 2**20
        end = len(five.log)
        five.ask(LimitMovement(bytes_per_second=9))
        five.ask(LimitMovement(bytes_per_second=9))
        assert (len(five.log), five.image.movement_bytes_per_second) == (end + 1, 9)
        assert five.ask(LimitMovement(bytes_per_second=0)).reason == "InvalidRequest"

    def test_sizes_are_noted_while_a_partition_moves(self, five: Any) -> None:
        def report(broker: int, size: int) -> None:
            epoch = five.image.brokers[broker].broker_epoch
            copy = CopySize(topic_id=five.p(0).topic_id, index=0, size=size)
            five.ask(ReportCopies(broker_id=broker, broker_epoch=epoch, copies=(copy,)))

        leader, follower = five.p(0).leader, five.p(0).replicas[1]
        report(leader, 7)
        assert not five.soft.copies
        five.declare(partitions=5, replication_factor=4)
        new = five.p(0).adding[0]
        report(leader, 7)
        report(new, 3)
        report(follower, 5)
        assert five.soft.copies == {five.p(0).key: {leader: 7, new: 3}}
        five.propose(sorted(five.p(0).replicas))
        assert not five.soft.copies

    def test_partitions_size_is_what_its_leader_says(self, five: Any) -> None:
        """Whether it moves or not: plans are made from it."""

        def report(broker: int, index: int, size: int) -> None:
            epoch = five.image.brokers[broker].broker_epoch
            one = CopySize(topic_id=five.p(0).topic_id, index=index, size=size)
            five.ask(
                ReportCopies(broker_id=broker, broker_epoch=epoch, copies=(), sizes=(one,)),
            )

        leader, follower = five.p(0).leader, five.p(0).replicas[1]
        report(leader, 0, 7)
        report(follower, 0, 5)
        report(leader, 9, 3)
        assert five.soft.sizes == {five.p(0).key: 7}, "there is no partition 9"
        report(leader, 0, 8)
        assert five.soft.sizes == {five.p(0).key: 8}

    def test_partition_traffic_is_measured_between_reports(self, five: Any) -> None:
        leader, key = five.p(0).leader, five.p(0).key

        def report(bytes_in: int, bytes_out: int) -> tuple[float, float] | None:
            epoch = five.image.brokers[leader].broker_epoch
            one = CopySize(
                topic_id=key.topic_id, index=0, size=1, bytes_in=bytes_in, bytes_out=bytes_out
            )
            five.ask(
                ReportCopies(broker_id=leader, broker_epoch=epoch, copies=(), sizes=(one,)),
            )
            return five.soft.traffic[key].rates

        assert report(1_000, 0) is None, "one report tells no rate"
        five.now_ms += 10_000
        assert report(11_000, 50_000) == (1_000, 5_000)
        five.now_ms += 60_000
        assert report(11_000, 50_000) == (900, 4_500), "a tenth of the smoothing has passed"
        five.now_ms += 60_000
        assert report(0, 0) == (900, 4_500), "counters that began anew tell no rate"

    def test_sizes_from_an_earlier_lifetime_are_not_believed(self, five: Any) -> None:
        """Every request of a broker names its lifetime: 77."""
        five.declare(partitions=5, replication_factor=4)
        leader = five.p(0).leader
        epoch = five.image.brokers[leader].broker_epoch
        copy = CopySize(topic_id=five.p(0).topic_id, index=0, size=7)
        answer = five.ask(ReportCopies(broker_id=leader, broker_epoch=epoch - 1, copies=(copy,)))
        assert answer.code == 77
        assert not five.soft.copies
