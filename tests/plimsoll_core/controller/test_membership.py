"""Growing and shrinking: who is leaving, what a leaving broker is not given, who is forgotten."""

from typing import Any

import pytest
from tests.plimsoll_core.rebalances import ONE, begin, finish, look, row, topic

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.cluster.records import RestartGranted
from plimsoll_core.controller.brokers.membership import IdRange, next_members
from plimsoll_core.messages.brokers import (
    SetLeaving,
    SettleNewcomers,
    UnregisterBroker,
    VolumeGone,
)
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_core.messages.moves import (
    AlterReassignments,
    PartitionTarget,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import (
    Answer,
    CreateTopics,
    Done,
    NewTopic,
    Refused,
    Registered,
    SetMembers,
    Tick,
)


def leave(world: Any, *brokers: int) -> Answer:
    return world.ask(SetLeaving(broker_ids=brokers))


def unregister(world: Any, broker: int, pvc_uid: str | None = None) -> Answer:
    epoch = world.image.brokers[broker].broker_epoch
    return world.ask(UnregisterBroker(broker_id=broker, broker_epoch=epoch, pvc_uid=pvc_uid))


def reassign(world: Any, *replicas: int, index: int = 0) -> Any:
    target = PartitionTarget(topic="orders", index=index, replicas=replicas)
    return world.ask(AlterReassignments(targets=(target,))).partitions[0]


def stop(world: Any, broker: int) -> None:
    """A controlled shutdown of a broker that leads nothing, and then silence."""
    assert world.beat(broker, want_shutdown=True).should_shut_down
    assert unregister(world, broker).reason == "BrokerLives", "its process may still be there"
    world.now_ms += world.settings.session_timeout_ms


@pytest.fixture
def four(new_world: Any) -> Any:
    """Members 0, 1, 2 and 3; `orders` has one partition on 0, 1 and 2, placed by the formula."""
    world = new_world(4)
    world.ask(SetMembers(broker_ids=(0, 1, 2, 3)))
    topic = NewTopic(name="orders", assignment=((0, 1, 2),), configs={"min.insync.replicas": "2"})
    world.ask(CreateTopics(topics=(topic,)))
    return world


def emptied(world: Any, broker: int) -> None:
    """`broker` is leaving, and `orders` goes to the other three."""
    assert leave(world, broker) == Done()
    target = [b for b in (0, 1, 2, 3) if b != broker]
    assert reassign(world, *target).code == 0
    world.propose([*world.p().isr, 3])
    assert world.p().replicas == tuple(target)


class TestLeaving:
    def test_leaving_brokers_are_committed_and_survive_take_over(self, four: Any) -> None:
        assert leave(four, 2) == Done()
        assert four.image.leaving == (2,)
        end = len(four.log)
        assert leave(four, 2) == Done()
        assert len(four.log) == end
        four.take_over()
        assert four.image.leaving == (2,)

    def test_takes_no_replica_of_a_new_topic(self, four: Any) -> None:
        leave(four, 2)
        for name in ("a", "b", "c", "d"):
            four.declare(name, partitions=4)
        rows = [p.replicas for p in four.image.partitions.values() if p.key != four.p().key]
        assert len(rows) == 16
        assert all(set(row) == {0, 1, 3} for row in rows)

    def test_replica_counts_beyond_brokers_are_refused(self, four: Any) -> None:
        leave(four, 2)
        answer = four.declare("wide", replication_factor=4, min_isr=1)
        assert isinstance(answer, Refused)
        assert answer.reason == "NotEnoughBrokers"

    def test_takes_no_replica_of_partitions_that_are_added(self, four: Any) -> None:
        four.declare("grown", partitions=1)
        leave(four, 2)
        four.declare("grown", partitions=9)
        assert all(2 not in four.p(index, "grown").replicas for index in range(1, 9))

    def test_assignment_that_names_it_is_refused(self, four: Any) -> None:
        leave(four, 2)
        topic = NewTopic(name="mine", assignment=((2, 3),))
        (answer,) = four.ask(CreateTopics(topics=(topic,))).topics
        assert answer.reason == "BrokerLeaving"
        assert "Broker 2 is leaving the cluster and takes no new replicas" in answer.message
        stated = four.declare("s", strategy="Explicit", assignment=((1, 2, 3),))
        assert stated.reason == "BrokerLeaving"

    def test_move_onto_leaving_broker_is_refused(self, four: Any) -> None:
        leave(four, 3)
        answer = reassign(four, 0, 1, 3)
        assert (answer.reason, answer.code) == ("BrokerLeaving", 39)
        leave(four, 2)
        assert reassign(four, 2, 1, 3).code == 0

    def test_object_cannot_move_to_it_either(self, four: Any) -> None:
        leave(four, 3)
        move = TopicMove(topic="orders", replicas=(0, 1, 3))
        answer = four.ask(RunReassignment(object=_object(), moves=(move,)))
        assert answer.reason == "BrokerLeaving"
        assert four.p().replicas == (0, 1, 2)

    def test_planner_does_not_choose_it(self, four: Any) -> None:
        """The only other place for the replica is a broker that leaves."""
        leave(four, 3)
        move = TopicMove(topic="orders", away_from=(2,))
        answer = four.ask(RunReassignment(object=_object(), moves=(move,)))
        assert answer.reason == "NotEnoughBrokers"

    def test_leadership_does_not_go_back_to_it(self, four: Any) -> None:
        four.kill(0)
        four.start(0)
        four.propose([1, 2, 0])
        leave(four, 0)
        for _ in range(3):
            for broker in (0, 1, 2, 3):
                four.beat(broker)
            four.now_ms += four.settings.preferred_leader_interval_ms
            four.ask(Tick(late_ms=four.settings.preferred_leader_interval_ms))
        assert four.p().leader == 1
        answers = four.ask(ElectLeaders(kind="Preferred", partitions=None)).partitions
        assert [a.reason for a in answers] == ["PreferredLeaderNotAvailable"]
        leave(four)
        four.ask(ElectLeaders(kind="Preferred", partitions=None))
        assert four.p().leader == 0

    def test_lifting_it_is_always_possible(self, four: Any) -> None:
        leave(four, 3)
        assert leave(four) == Done()
        assert four.image.leaving == ()
        assert reassign(four, 0, 1, 3).code == 0

    def test_unknown_brokers_are_left_out(self, four: Any) -> None:
        assert leave(four, 3, 7) == Done()
        assert four.image.leaving == (3,)


class TestWhatCannotEndIsNotBegun:
    def test_replication_factor_above_the_survivors(self, four: Any) -> None:
        assert leave(four, 3) == Done()
        answer = leave(four, 2, 3)
        assert answer.reason == "NotEnoughBrokers"
        assert answer.message == (
            "Topic orders has replication factor 3 and only 2 brokers would remain: lower the"
            " replication factor, or keep 3 brokers."
        )
        assert four.image.leaving == (3,), "nothing half done"

    def test_several_topics_are_counted(self, four: Any) -> None:
        four.declare("wide", replication_factor=4, min_isr=1)
        answer = leave(four, 2, 3)
        assert "Topic orders has replication factor 3, as 1 more topic has, and" in answer.message
        assert answer.message.endswith("keep 4 brokers.")

    def test_topic_that_states_its_placement(self, four: Any) -> None:
        four.declare("stated", strategy="Explicit", assignment=((1, 2, 3),))
        answer = leave(four, 1)
        assert answer.reason == "ExplicitPlacement"
        assert "Topic stated" in answer.message
        assert "change spec.placement.assignment of Topic" in answer.message
        four.declare("stated", strategy="Explicit", assignment=((0, 2, 3),))
        assert leave(four, 1) == Done(), "it is on its way already"

    def test_everybody(self, four: Any) -> None:
        assert leave(four, 0, 1, 2, 3).reason == "InvalidRequest"

    def test_last_broker_of_required_rack_may_not_leave(self, new_world: Any) -> None:
        world = new_world(0, rack_policy="Required")
        for broker, rack in enumerate("aab"):
            world.start(broker, rack=rack)
        world.declare(replication_factor=2)
        answer = leave(world, 2)
        assert answer.reason == "NotEnoughBrokers"
        assert "rack a. Add a broker in another rack first" in answer.message
        world.start(3, rack="c")
        assert leave(world, 2) == Done()

    def test_dead_broker_may_leave(self, four: Any) -> None:
        four.kill(2)
        assert leave(four, 2) == Done()
        assert reassign(four, 0, 1, 3).code == 0
        four.propose([0, 1, 3])
        assert not four.image.hosted.get(2)


class TestMembers:
    def test_member_that_holds_replicas_is_not_dropped(self, four: Any) -> None:
        answer = four.ask(SetMembers(broker_ids=(0, 1, 3)))
        assert answer.reason == "BrokerHoldsReplicas"
        assert "broker 2 holds 1 replica." in answer.message
        emptied(four, 2)
        assert four.ask(SetMembers(broker_ids=(0, 1, 3))) == Done()

    def test_former_member_takes_no_replicas_although_it_runs(self, four: Any) -> None:
        four.ask(SetMembers(broker_ids=(0, 1, 2)))
        assert four.image.brokers[3].active
        assert reassign(four, 0, 1, 3).reason == "BrokerLeaving"
        four.declare("new", partitions=8)
        assert not four.image.hosted.get(3)

    def test_growing_while_one_leaves_lets_it_stay(self) -> None:
        """`count` is what you end with, at any moment."""
        assert next_members((0, 1, 2), [IdRange(0, None, 2)], ()) == (0, 1)
        assert next_members((0, 1, 2), [IdRange(0, None, 3)], ()) == (0, 1, 2)


class TestUnregister:
    def test_unregister_succeeds_once_broker_is_empty_and_stopped(self, four: Any) -> None:
        assert unregister(four, 2).reason == "InvalidRequest"
        emptied(four, 2)
        four.ask(SetMembers(broker_ids=(0, 1, 3)))
        assert unregister(four, 2).reason == "BrokerLives"
        stop(four, 2)
        assert unregister(four, 2) == Done()
        assert 2 not in four.image.brokers
        assert four.image.leaving == ()
        end = len(four.log)
        assert four.ask(UnregisterBroker(broker_id=2, broker_epoch=1)) == Done()
        assert len(four.log) == end

    def test_unregister_is_refused_while_the_broker_holds_replicas(self, new_world: Any) -> None:
        """Members are not declared yet, so only its replicas keep it."""
        world = new_world(3)
        world.declare()
        world.kill(2)
        world.now_ms += world.settings.session_timeout_ms
        assert unregister(world, 2).reason == "BrokerHoldsReplicas"

    def test_dead_broker_is_unregistered_after_its_session(self, four: Any) -> None:
        four.ask(SetMembers(broker_ids=(0, 1, 2)))
        four.kill(3)
        assert unregister(four, 3).reason == "BrokerLives", "it may be about to come back"
        four.now_ms += four.settings.session_timeout_ms
        assert unregister(four, 3) == Done()

    def test_restart_that_was_granted_ends_with_it(self, four: Any) -> None:
        epoch = four.image.brokers[3].broker_epoch
        four.commit(
            RestartGranted(
                cause="test", broker_id=3, broker_epoch=epoch, pod_uid="pod-3", revision="r2"
            )
        )
        four.ask(SetMembers(broker_ids=(0, 1, 2)))
        stop(four, 3)
        assert unregister(four, 3) == Done()
        assert not four.image.grants, "no grant waits for its return"

    def test_unregister_with_another_lifetimes_epoch_is_refused(self, four: Any) -> None:
        four.ask(SetMembers(broker_ids=(0, 1, 2)))
        old = four.image.brokers[3].broker_epoch
        four.start(3)
        answer = four.ask(UnregisterBroker(broker_id=3, broker_epoch=old))
        assert answer.reason == "StaleBrokerEpoch"

    @pytest.mark.parametrize("wiped", [False, True])
    def test_removed_broker_id_returns_on_any_volume(self, four: Any, wiped: bool) -> None:
        emptied(four, 2)
        four.ask(SetMembers(broker_ids=(0, 1, 3)))
        stop(four, 2)
        unregister(four, 2)
        assert isinstance(four.register(2), Refused), "no member, so no broker"
        four.ask(SetMembers(broker_ids=(0, 1, 2, 3)))
        answer = four.register(2, volume_is_empty=wiped)
        assert isinstance(answer, Registered)
        assert answer.may_format
        assert not four.beat(2).is_fenced
        assert reassign(four, 0, 1, 2).code == 0


class TestVolumes:
    def test_volume_is_released_with_its_broker(self, four: Any) -> None:
        assert unregister(four, 2, pvc_uid="pvc-2").reason == "InvalidRequest"
        emptied(four, 2)
        four.ask(SetMembers(broker_ids=(0, 1, 3)))
        stop(four, 2)
        assert not four.image.released
        assert unregister(four, 2, pvc_uid="pvc-2") == Done()
        assert dict(four.image.released) == {"pvc-2": 2}

    def test_broker_id_waits_until_released_volume_is_gone(self, four: Any) -> None:
        four.ask(SetMembers(broker_ids=(0, 1, 2)))
        stop(four, 3)
        unregister(four, 3, pvc_uid="pvc-3")
        answer = four.ask(SetMembers(broker_ids=(0, 1, 2, 3)))
        assert answer.reason == "VolumeInUse"
        four.take_over()
        assert four.ask(VolumeGone(pvc_uid="pvc-3")) == Done()
        assert four.ask(SetMembers(broker_ids=(0, 1, 2, 3))) == Done()
        assert four.ask(VolumeGone(pvc_uid="pvc-3")) == Done(), "told twice"


class TestNewcomers:
    def test_newcomers_are_members_added_to_existing_ones(self, new_world: Any) -> None:
        world = new_world(3)
        world.ask(SetMembers(broker_ids=(0, 1, 2)))
        assert world.image.newcomers == (), "the first members are no newcomers"
        world.ask(SetMembers(broker_ids=(0, 1, 2, 3, 4)))
        assert world.image.newcomers == (3, 4)
        world.ask(SetMembers(broker_ids=(0, 1, 2, 3)))
        assert world.image.newcomers == (3,)
        world.take_over()
        world.ask(SettleNewcomers(broker_ids=(3,)))
        assert world.image.newcomers == ()
        end = len(world.log)
        world.ask(SettleNewcomers(broker_ids=(3,)))
        assert len(world.log) == end


class TestRebalances:
    def test_fill_goes_on_without_a_broker_that_leaves(self, new_world: Any) -> None:
        """Else it would wait for ever, and the drain for it."""
        world = new_world(5)
        topic(world, [(n % 3, (n + 1) % 3) for n in range(12)], min_isr=1)
        begin(world, "AddBrokers", 3, 4)
        look(world, limits=ONE)
        leave(world, 4)
        assert finish(world, limits=ONE).phase == "Completed"
        assert world.image.hosted.get(3)
        assert row(world).dropped
        assert len(world.image.hosted.get(4, ())) <= 2, "what was on its way arrived"

    def test_drain_ends_when_its_brokers_are_empty(self, new_world: Any) -> None:
        world = new_world(4)
        topic(world, [(n % 4, (n + 1) % 4) for n in range(8)], min_isr=1)
        leave(world, 3)
        begin(world, "RemoveBrokers", 3)
        assert finish(world).phase == "Completed"
        assert not world.image.hosted.get(3)


def _object() -> ReassignmentObject:
    return ReassignmentObject(namespace="kafka", name="move", uid="uid")
