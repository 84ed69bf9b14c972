"""What waits for maintenance windows and pauses, and what never does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_core import rebalances
from tests.plimsoll_core.controller.test_metadata_finalization import BOTH, upgraded

from plimsoll_core.cluster.model import ReassignmentObject, TopicObject
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.controller.kernel.voluntary_work import Hours, VoluntaryWork, hour_hold
from plimsoll_core.messages.brokers import RequestRestart
from plimsoll_core.messages.moves import (
    AlterReassignments,
    PartitionTarget,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import Refused, Tick, TopicObjectGone

World = Any
CLOSED = Hours(window_open=False, opens="the maintenance window opens at T")
PAUSED = Hours(paused=True)
HIBERNATED = Hours(hibernated=True)
OPEN = Hours()


def at(world: World, hours: Hours) -> None:
    world.settings = replace(world.settings, hours=hours)


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    made = new_world(4)
    rebalances.topic(made, ((0, 1, 2), (1, 2, 0)))
    return made


def restart(world: World, broker: int) -> Any:
    return world.ask(RequestRestart(broker_id=broker, pod_uid=f"pod-{broker}", revision="R1"))


def reassign(world: World) -> Any:
    move = TopicMove(topic="orders", partitions=(0,), replicas=(0, 1, 3))
    declared = ReassignmentObject(namespace="kafka", name="m", uid="m")
    return world.ask(RunReassignment(object=declared, moves=(move,)))


def test_every_kind_waits_while_paused_or_hibernated():
    for work in VoluntaryWork:
        for hours, reason in ((PAUSED, "ClusterPaused"), (HIBERNATED, "ClusterHibernates")):
            hold = hour_hold(hours, work, urgent=True)
            assert hold is not None
            assert hold.reason.name == reason
        assert hour_hold(OPEN, work) is None
        assert (hour_hold(CLOSED, work) is not None) == work.waits_for_window
        assert hour_hold(CLOSED, work, urgent=True) is None


@pytest.mark.parametrize(
    ("hours", "reason", "until"),
    [
        (CLOSED, "OutsideMaintenanceWindow", "the maintenance window opens at T"),
        (PAUSED, "ClusterPaused", "spec.paused is false"),
        (HIBERNATED, "ClusterHibernates", "spec.hibernated is false"),
    ],
)
def test_restart_waits_and_says_until_when(world, hours, reason, until):
    at(world, hours)
    answer = restart(world, 0)
    assert (answer.granted, answer.waits[0].reason, answer.waits[0].until) == (False, reason, until)
    at(world, OPEN)
    assert restart(world, 0).granted


def test_granted_restart_continues_after_the_window(world):
    assert restart(world, 0).granted
    at(world, CLOSED)
    assert restart(world, 0).granted, "the same grant"
    again = RequestRestart(broker_id=0, pod_uid="pod-0", revision="R2")
    assert world.ask(again).granted, "a corrected revision helps a broker that is stuck"
    assert not restart(world, 3).granted


def test_restart_of_dead_broker_needs_no_window(world):
    world.kill(3)
    at(world, CLOSED)
    assert restart(world, 3).granted
    at(world, PAUSED)
    world.kill(2)
    assert not restart(world, 2).granted


def test_persons_moves_wait_for_pause_only(world):
    at(world, PAUSED)
    refused = reassign(world)
    assert isinstance(refused, Refused)
    assert refused.reason == "ClusterPaused"
    assert (
        refused.message == "The LogCluster holds back moves and rebalances that a person asked for "
        "until spec.paused is false."
    )
    asked = AlterReassignments(
        targets=(PartitionTarget(topic="orders", index=1, replicas=(1, 2, 3)),)
    )
    assert world.ask(asked).partitions[0].reason == "ClusterPaused"
    at(world, CLOSED)
    assert reassign(world).phase == "Running"
    assert world.ask(asked).partitions[0].code == 0


def test_declared_replication_factor_waits_for_pause(world):
    world.declare("left", replication_factor=2)
    at(world, PAUSED)
    assert world.declare("left", replication_factor=3).reason == "ClusterPaused"
    assert not world.p(0, "left").moving
    assert not isinstance(world.declare("left", replication_factor=2), Refused)
    at(world, CLOSED)
    world.declare("left", replication_factor=3)
    assert world.p(0, "left").moving


def test_moves_can_be_cancelled_while_paused(world):
    assert reassign(world).phase == "Running"
    at(world, PAUSED)
    asked = AlterReassignments(targets=(PartitionTarget(topic="orders", index=1, replicas=None),))
    assert world.ask(asked).partitions[0].reason == "NoReassignmentInProgress"
    move = TopicMove(topic="orders", partitions=(0,), replicas=(0, 1, 3))
    declared = ReassignmentObject(namespace="kafka", name="m", uid="m")
    state = world.ask(RunReassignment(object=declared, moves=(move,), cancelled=True))
    assert state.phase == "Cancelled"


def test_own_fill_waits_for_window_unless_approved(world):
    at(world, CLOSED)
    refused = rebalances.begin(world, "AddBrokers", 3, by_itself=True)
    assert isinstance(refused, Refused)
    assert refused.reason == "OutsideMaintenanceWindow"
    assert rebalances.begin(world, "AddBrokers", 3).phase == "Running"


def test_window_that_closes_ends_moves_and_begins_none(new_world):
    world = new_world(4)
    rebalances.topic(world, ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1)))
    one = rebalances.ONE
    assert rebalances.begin(world, "AddBrokers", 3, by_itself=True).phase == "Running"
    rebalances.look(world, limits=one, by_itself=True)
    begun = [p.key for p in rebalances.moving(world)]
    assert len(begun) == 1
    at(world, CLOSED)
    rebalances.copied(world)
    state = rebalances.look(world, limits=one, by_itself=True)
    assert rebalances.moving(world) == []
    assert (state.phase, state.reason) == ("Running", "OutsideMaintenanceWindow")
    assert (
        state.message
        == "The LogCluster holds back rebalances that the operator begins by itself until the "
        "maintenance window opens at T."
    )
    at(world, OPEN)
    assert rebalances.finish(world, limits=one, by_itself=True).phase == "Completed"


def test_drain_of_dead_broker_needs_no_window(world):
    at(world, CLOSED)
    refused = rebalances.begin(world, "RemoveBrokers", 0, by_itself=True)
    assert refused.reason == "OutsideMaintenanceWindow"
    rebalances.dies(world, 0)
    assert rebalances.begin(world, "RemoveBrokers", 0, by_itself=True).phase == "Running"


def test_finalisation_waits_for_window_after_the_first(new_world):
    world = new_world(3)
    at(world, CLOSED)
    upgraded(world, 0, 1, 2)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST, "a new cluster needs it"
    world = new_world(3)
    world.settings = replace(world.settings, metadata_version=NEWEST - 1)
    upgraded(world, 0, 1, 2)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST - 1
    world.settings = replace(world.settings, metadata_version=None, hours=PAUSED)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST - 1
    at(world, OPEN)
    for broker in range(3):
        world.beat(broker, **BOTH)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST


def test_topic_data_is_kept_while_paused(world):
    holder = TopicObject(namespace="shop", name="left", uid="uid-of-left")
    world.declare("left")
    gone = TopicObjectGone(object=holder, server_now_ms=10, grace_ms=0, removals_per_hour_max=20)
    at(world, PAUSED)
    assert world.ask(gone).reason == "ClusterPaused"
    assert "left" in world.image.topic_ids
    at(world, CLOSED)
    world.ask(gone)
    assert "left" not in world.image.topic_ids, "expiry waits for no window"


def test_fencing_and_elections_go_on_while_paused(world):
    at(world, Hours(paused=True, window_open=False))
    world.kill(0)
    assert world.image.brokers[0].fenced
    assert world.p(0).leader == 1
    assert 0 not in world.p(1).isr
