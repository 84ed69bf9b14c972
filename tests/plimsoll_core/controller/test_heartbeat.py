"""The heartbeat table: fenced, unfenced, controlled shutdown, and what each hears."""

from typing import Any

import pytest

from plimsoll_core.cluster.records import BrokerFenced, BrokerShutdownStarted
from plimsoll_core.messages.requests import Heartbeat, LogPosition


def flags(answer: Any) -> tuple[bool, bool, bool]:
    return answer.is_caught_up, answer.is_fenced, answer.should_shut_down


def test_stale_epoch_is_refused_also_for_unknown_brokers(world: Any) -> None:
    """REQUIRE BE = registered BE (STALE_BROKER_EPOCH 77, also for unknown b)."""
    position = LogPosition(applied_offset=99, nonce=None, controller_epoch=1)
    for broker, epoch in ((0, 999), (7, 0)):
        request = Heartbeat(
            broker_id=broker,
            broker_epoch=epoch,
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
        answer = world.ask(request)
        assert (answer.reason, answer.code) == ("StaleBrokerEpoch", 77)


class TestFenced:
    def test_caught_up_broker_is_unfenced(self, world: Any) -> None:
        world.register(5)
        assert flags(world.beat(5)) == (True, False, False)

    def test_stays_fenced_while_it_wants_to(self, world: Any) -> None:
        world.register(5)
        assert flags(world.beat(5, want_fence=True)) == (True, True, False)

    def test_broker_stays_fenced_until_its_registration_is_applied(self, world: Any) -> None:
        """metadata_offset ≥ registration_offset."""
        epoch = world.register(5).broker_epoch
        assert flags(world.beat(5, applied=epoch)) == (False, True, False)
        assert flags(world.beat(5, applied=epoch + 1)) == (True, False, False)

    def test_fenced_broker_may_stop_at_once(self, world: Any) -> None:
        """FENCED, want_shutdown → SHUTDOWN_NOW."""
        world.register(5)
        end = len(world.log)
        assert flags(world.beat(5, want_shutdown=True)) == (True, True, True)
        assert len(world.log) == end

    def test_broker_that_was_shutting_down_is_not_unfenced(self, world: Any) -> None:
        """Only a new incarnation clears the flag."""
        world.beat(0, want_shutdown=True)
        for other in (1, 2):
            world.beat(other)
        assert world.beat(0, want_shutdown=True).should_shut_down
        assert flags(world.beat(0)) == (True, True, False)


class TestUnfenced:
    def test_ordinary_heartbeat_writes_nothing(self, world: Any) -> None:
        end = len(world.log)
        assert flags(world.beat(0)) == (True, False, False)
        assert len(world.log) == end

    def test_want_fence_fences(self, world: Any) -> None:
        assert flags(world.beat(1, want_fence=True)) == (True, True, False)
        # The operator counts fences by this beginning (`status.commit_counters`).
        assert world.log[-1].cause == "fenced at the broker's own request"
        assert world.p().isr == (0, 2)

    def test_leading_nothing_it_may_stop_at_once(self, world: Any) -> None:
        """UNFENCED, want_shutdown ∧ leads nothing → SHUTDOWN_NOW."""
        assert flags(world.beat(2, want_shutdown=True)) == (True, True, True)
        assert isinstance(world.log[-1], BrokerFenced)
        assert world.log[-1].cause == "shutdown"
        assert world.p().isr == (0, 1)

    def test_shutdown_hands_over_many_partitions_in_slices(self, new_world: Any) -> None:
        """It may shut down only when every broker has applied the last slice."""
        world = new_world(3, slice_partitions_max=2)
        world.declare(partitions=7)
        assert flags(world.beat(0, want_shutdown=True)) == (True, False, False)
        assert all(0 not in p.isr for p in world.image.partitions.values())
        assert flags(world.beat(0, want_shutdown=True)) == (True, False, False)
        for broker in (1, 2):
            world.beat(broker)
        assert flags(world.beat(0, want_shutdown=True)) == (True, True, True)

    def test_leader_hands_over_first(self, world: Any) -> None:
        answer = world.beat(0, want_shutdown=True)
        assert flags(answer) == (True, False, False)
        assert world.image.brokers[0].shutting_down
        assert (world.p().leader, world.p().isr) == (1, (1, 2))
        assert world.log[-2].__class__ is BrokerShutdownStarted
        assert world.log[-1].cause == "shutdown"


class TestControlledShutdown:
    def test_shutdown_waits_until_brokers_applied_the_hand_over(self, world: Any) -> None:
        """leads nothing ∧ every active broker reported offset ≥ controlled_shutdown_offset."""
        behind = world.image.next_offset
        world.beat(0, want_shutdown=True)
        assert not world.beat(0, want_shutdown=True).should_shut_down
        world.beat(1)
        world.beat(2, applied=behind)
        assert not world.beat(0, want_shutdown=True).should_shut_down
        world.beat(2)
        assert flags(world.beat(0, want_shutdown=True)) == (True, True, True)
        assert world.image.brokers[0].fenced

    def test_shutdown_does_not_wait_for_fenced_brokers(self, world: Any) -> None:
        world.beat(0, want_shutdown=True)
        world.beat(2, want_fence=True)
        world.beat(1)
        assert world.beat(0, want_shutdown=True).should_shut_down

    def test_survives_a_take_over(self, world: Any) -> None:
        """KIP-841: the flag is durable; the offset is bounded by what the successor sees."""
        world.beat(0, want_shutdown=True)
        world.take_over()
        assert not world.beat(0, want_shutdown=True).should_shut_down
        for other in (1, 2):
            world.beat(other)
        assert world.beat(0, want_shutdown=True).should_shut_down

    def test_broker_in_controlled_shutdown_cannot_rejoin_isr(self, world: Any) -> None:
        """S08: a proposal in flight gets 107; same after controller failover."""
        world.beat(0, want_shutdown=True)
        assert world.propose([0, 1, 2]).code == 107
        world.take_over()
        assert world.propose([0, 1, 2]).code == 107

    def test_last_member_becomes_electable_not_forgotten(self, world: Any) -> None:
        world.beat(1, want_shutdown=True)
        world.beat(2, want_shutdown=True)
        world.beat(0, want_shutdown=True)
        assert (world.p().leader, world.p().isr) == (None, ())
        assert 0 in world.p().elr


@pytest.mark.parametrize("crash_after", [0, 1])
def test_crash_during_shutdown_is_finished_by_successor(world: Any, crash_after: int) -> None:
    """R18: crash inside 3.5 (shutting_down first) must not leave partitions unvisited."""
    world.ask(world.heartbeat(0, want_shutdown=True), crash_after=crash_after)
    assert (0 in world.p().isr) == (crash_after == 0)
    assert world.image.brokers[0].shutting_down == (crash_after == 1)


def test_return_elects_one_slice_a_turn(new_world: Any) -> None:
    """A broker that came back was elected for all its leaderless partitions in one turn."""
    world = new_world(3, slice_partitions_max=2)
    world.declare(partitions=5)
    for broker in (2, 1, 0):
        world.beat(broker, want_fence=True)
    request, led = world.heartbeat(0), []
    while request is not None:
        decision = world.decide(request)
        for record in decision.records:
            world.commit(record)
        led.append(sum(p.leader == 0 for p in world.image.partitions.values()))
        request = decision.again
    assert led == [2, 4, 5]
    assert not decision.answer.is_fenced
    assert not world.soft.electing
