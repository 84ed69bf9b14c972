"""A broker that a move adds goes away: it is named, and replaced where that is wished."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_core.controller.test_reassignment_object import (
    OTHER,
    client_topic,
    dies,
    five,
    run,
    to,
)

from plimsoll_core.cluster.records import RestartEnded, RestartGranted
from plimsoll_core.controller.moves import target_choice
from plimsoll_core.messages.moves import TopicMove
from plimsoll_core.messages.requests import Tick

__all__ = ["five"]


class TestTargetLost:
    def test_target_that_dies_is_named(self, five: Any) -> None:
        run(five, to(0, 3, 4))
        dies(five, 3)
        state = run(five, to(0, 3, 4))
        assert (state.phase, state.reason) == ("Running", "TargetDown")
        assert "Broker 3 is down" in state.message
        assert "orders-0" in state.message
        five.start(3)
        assert run(five, to(0, 3, 4)).reason == ""

    def test_lost_target_is_replaced_with_replan(self, five: Any) -> None:
        moves = (to(0, 1, 3, replan=True),)
        run(five, *moves)
        dies(five, 3)
        run(five, *moves)
        assert five.p().adding == (3,)
        five.now_ms += five.settings.target_lost_ms
        for broker in (0, 1, 2, 4):
            five.beat(broker)
        assert run(five, *moves).reason == ""
        assert (five.p().target, five.p().adding) == ((0, 1, 4), (4,))

    def test_lost_target_is_waited_for_without_replan(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        dies(five, 3)
        five.now_ms += five.settings.target_lost_ms
        for broker in (0, 1, 2, 4):
            five.beat(broker)
        assert run(five, to(0, 1, 3)).reason == "TargetDown"
        assert five.p().adding == (3,)

    def test_lost_target_is_replaced_by_former_replica(self, new_world: Callable[..., Any]) -> None:
        world = new_world(4)
        client_topic(world)
        moves = (to(0, 1, 3, replan=True),)
        run(world, *moves)
        dies(world, 3)
        world.now_ms += world.settings.target_lost_ms
        for broker in (0, 1, 2):
            world.beat(broker)
        state = run(world, *moves)
        assert world.p().target == (0, 1, 2), "a former replica may be had for nothing"
        assert (state.phase, state.reason) == ("Running", "")

    def test_too_few_left_for_the_factor(self, new_world: Callable[..., Any]) -> None:
        """It says so and waits; the move itself stays as it is."""
        world = new_world(4)
        client_topic(world)
        moves = (TopicMove(topic="orders", replication_factor=4, replan=True),)
        run(world, *moves)
        dies(world, 3)
        world.now_ms += world.settings.target_lost_ms
        for broker in (0, 1, 2):
            world.beat(broker)
        state = run(world, *moves)
        assert (state.phase, state.reason) == ("Running", "NotEnoughBrokers")
        assert "without broker 3 only 3 brokers" in state.message
        assert world.p().adding == (3,)

    def test_lost_target_message_names_other_absent_brokers(self, five: Any) -> None:
        run(five, to(0, 3, 4))
        dies(five, 4)
        dies(five, 3)
        state = run(five, to(0, 3, 4))
        assert state.reason == "TargetDown"
        assert "Broker 3 is down (so is broker 4)" in state.message

    def test_partition_without_a_leader_is_named(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        for broker in (0, 1, 2):
            dies(five, broker)
        state = run(five, to(0, 1, 3))
        assert state.reason == "NoLeader"
        assert "orders-0" in state.message


class TestLargeClusters:
    """A turn must be short, so that loads are evened over the topics in question alone."""

    def test_move_off_compares_brokers_by_that_topic(
        self, five: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Broker 3 holds most, but nothing of `orders`; so it is as good as 4, and comes first."""
        client_topic(five, "others", ((3, 0, 1), (3, 1, 2), (3, 2, 0)))
        move = TopicMove(topic="orders", partitions=(0,), away_from=(2,))
        run(five, move)
        assert five.p().adding == (4,)
        run(five, move, cancelled=True)
        assert not five.p().moving
        monkeypatch.setattr(target_choice, "COMPARED_MAX", 3)
        run(five, move, object=OTHER)
        assert five.p().adding == (3,)


class TestDeadReplicaThatStays:
    """Brokers 0, 1, 2 have the partitions; 2 is dead, and no target of anything."""

    @pytest.mark.parametrize(
        "move",
        [
            to(0, 1, 2, 3),
            to(1, 2, 3),
            TopicMove(topic="orders", partitions=(0,), away_from=(0,)),
        ],
    )
    def test_move_between_healthy_brokers_ends(self, five: Any, move: TopicMove) -> None:
        dies(five, 2)
        assert run(five, move).reason == ""
        (new,) = five.p().adding
        five.propose([0, 1, new])
        assert run(five, move).phase == "Completed"
        assert 2 in five.p().replicas

    def test_dead_replica_that_blocks_the_margin_is_named(self, five: Any) -> None:
        dies(five, 2)
        state = run(five, to(1, 2))
        assert (state.phase, state.reason) == ("Running", "TargetDown")
        assert "Broker 2 is down" in state.message

    def test_dead_replica_is_replaced_when_asked(self, five: Any) -> None:
        dies(five, 2)
        moves = (to(1, 2, replan=True),)
        run(five, *moves)
        five.now_ms += five.settings.target_lost_ms
        for broker in (0, 1, 3, 4):
            five.beat(broker)
        assert run(five, *moves).reason == ""
        (new,) = set(five.p().target) - {1}
        five.propose([0, 1, new])
        assert run(five, *moves).phase == "Completed"
        assert set(five.p().replicas) == {1, new}

    def test_move_delayed_by_restart_ends_with_the_grant(self, five: Any) -> None:
        """No ISR changes when a broker keeps running: the tick looks."""
        dies(five, 2)
        run(five, to(1, 2, 3))
        epoch = five.image.brokers[1].broker_epoch
        five.commit(RestartGranted(cause="x", broker_id=1, broker_epoch=epoch, revision="R1"))
        five.propose([0, 1, 3])
        assert five.p().moving, "without 1 there would be one"
        five.commit(RestartEnded(cause="x", broker_id=1))
        five.ask(Tick())
        assert not five.p().moving
