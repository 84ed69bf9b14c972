"""Fencing: by silence after the session timeout, by proof at once, never by our own lateness."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.controller.decide import VolatileState
from plimsoll_core.messages.requests import BrokerProvenDead, Done, Refused, Tick

TIMEOUT = 6_000


def tick(world: Any, after_ms: int, late_ms: int = 0) -> Any:
    """One scan; whoever it fences, the decision is checked."""
    world.now_ms += after_ms
    decision = world.decide(Tick(late_ms=late_ms))
    for record in decision.records:
        world.commit(record)
    if decision.again is None and not decision.hand_over:
        world.check()
    return decision


def fenced(world: Any) -> list[int]:
    return [b for b, broker in sorted(world.image.brokers.items()) if broker.fenced]


def proof(world: Any, broker: int, epoch: int | None = None) -> Any:
    known = world.image.brokers[broker].broker_epoch
    return world.ask(
        BrokerProvenDead(
            broker_id=broker,
            broker_epoch=known if epoch is None else epoch,
            evidence="its listener refuses connections",
        )
    )


def beat_all(world: Any, *brokers: int) -> None:
    for broker in brokers:
        world.beat(broker)


class TestSilence:
    def test_fences_after_the_session_timeout_and_not_before(self, new_world: Any) -> None:
        world = new_world(3)
        world.declare()
        beat_all(world, 0, 1, 2)
        world.now_ms += TIMEOUT - 1
        beat_all(world, 0, 1)
        tick(world, 0)
        assert fenced(world) == []
        tick(world, 1)
        assert fenced(world) == [2]
        assert world.p().isr == (0, 1)

    def test_cutting_every_link_for_three_seconds_changes_nothing(self, world: Any) -> None:
        beat_all(world, 0, 1, 2)
        end = len(world.log)
        for _ in range(6):
            assert not tick(world, 500).hand_over
        beat_all(world, 0, 1, 2)
        tick(world, 500)
        assert len(world.log) == end

    def test_fencing_is_not_a_restart(self, world: Any) -> None:
        """BE survives; the ISR is not joined by unfencing."""
        epoch = world.image.brokers[2].broker_epoch
        world.now_ms += TIMEOUT
        beat_all(world, 0, 1)
        tick(world, 0)
        world.now_ms += world.settings.flap_wait_ms_max
        assert not world.beat(2).is_fenced
        assert world.image.brokers[2].broker_epoch == epoch
        assert world.p().isr == (0, 1)

    def test_late_scan_moves_every_deadline(self, world: Any) -> None:
        """R16: a paused controller must not fence all brokers when it wakes."""
        beat_all(world, 0, 1, 2)
        tick(world, 8_000, late_ms=7_500)
        assert fenced(world) == []
        beat_all(world, 0, 1)
        tick(world, TIMEOUT - 600)
        beat_all(world, 0, 1)
        assert fenced(world) == []
        tick(world, 200)
        assert fenced(world) == [2]

    def test_new_term_gives_every_broker_a_full_session(self, world: Any) -> None:
        """S29 (b): no broker is fenced for one session timeout."""
        world.now_ms += TIMEOUT
        world.take_over()
        tick(world, TIMEOUT - 1)
        assert fenced(world) == []

    def test_broker_without_contact_is_fenced_after_session_timeout(self, world: Any) -> None:
        """Contacts are not part of the log: without one a broker is not silent, but unknown."""
        world.soft = VolatileState()
        tick(world, 60_000)
        assert fenced(world) == []
        world.now_ms += TIMEOUT
        beat_all(world, 0, 1)
        tick(world, 0)
        assert fenced(world) == [2]

    def test_cause_says_for_how_long(self, world: Any) -> None:
        world.now_ms += TIMEOUT
        beat_all(world, 0, 1)
        tick(world, 5)
        assert world.log[-1].cause == f"fenced after {TIMEOUT + 5} ms of silence"


class TestMassLoss:
    """Two or more and at least half silent at once: we may be cut off, rather than they dead."""

    def test_commits_nothing_and_hands_over(self, world: Any) -> None:
        beat_all(world, 0, 1, 2)
        world.now_ms += TIMEOUT
        world.beat(0)
        decision = tick(world, 0)
        assert decision.hand_over
        assert decision.records == ()
        assert fenced(world) == []

    def test_staggered_silence_is_the_same_event(self, world: Any) -> None:
        """The second one is not fenced because the first already was."""
        beat_all(world, 0, 1, 2)
        world.now_ms += 3_500
        beat_all(world, 0, 1)
        tick(world, 2_500)
        assert fenced(world) == [2]
        world.now_ms += 3_500
        world.beat(0)
        assert tick(world, 0).hand_over
        assert fenced(world) == [2]

    def test_second_controller_that_sees_the_same_may_fence(self, world: Any) -> None:
        world.take_over(second_opinion=True)
        world.now_ms += TIMEOUT
        world.beat(0)
        decision = tick(world, 0)
        assert not decision.hand_over
        assert isinstance(decision.again, Tick)
        tick(world, 0)
        assert fenced(world) == [1, 2]

    def test_controller_without_a_successor_fences_one_timeout_later(self, world: Any) -> None:
        world.now_ms += TIMEOUT
        for _ in range(12):
            world.beat(0)
            assert tick(world, 0).hand_over
            world.now_ms += TIMEOUT // 12
        world.beat(0)
        assert not tick(world, 0).hand_over
        tick(world, 0)
        assert fenced(world) == [1, 2]

    def test_mass_silence_is_forgotten_when_brokers_return(self, world: Any) -> None:
        world.now_ms += TIMEOUT
        world.beat(0)
        assert tick(world, 0).hand_over
        beat_all(world, 0, 1, 2)
        tick(world, 0)
        world.now_ms += TIMEOUT
        world.beat(0)
        assert tick(world, 0).hand_over, "the second time is judged anew"

    def test_two_silent_brokers_of_five_are_fenced(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5)
        world.now_ms += TIMEOUT
        beat_all(world, 0, 1, 2)
        tick(world, 0)
        tick(world, 0)
        assert fenced(world) == [3, 4]

    def test_proof_needs_no_second_opinion(self, world: Any) -> None:
        for broker in (1, 2):
            proof(world, broker)
        assert fenced(world) == [1, 2]


class TestProof:
    def test_fences_at_once(self, world: Any) -> None:
        assert proof(world, 0) == Done()
        assert world.image.brokers[0].fenced
        assert (world.p().leader, world.p().isr) == (1, (1, 2))
        assert world.log[-1].cause == "fenced on proof: its listener refuses connections"

    def test_late_news_never_hits_the_successor(self, world: Any) -> None:
        """Signals name (pod uid, broker epoch)."""
        old = world.image.brokers[0].broker_epoch
        world.start(0)
        answer = proof(world, 0, old)
        assert isinstance(answer, Refused)
        assert world.image.brokers[0].active

    def test_proof_of_death_of_fenced_broker_changes_nothing(self, world: Any) -> None:
        proof(world, 0)
        end = len(world.log)
        assert proof(world, 0) == Done()
        assert len(world.log) == end


class TestFlapping:
    """A broker fenced k times in 10 min is unfenced only after min(2^k, 60) s."""

    @pytest.mark.parametrize(("times", "wait_ms"), [(1, 2_000), (3, 8_000), (6, 60_000)])
    def test_waits_longer_each_time(self, world: Any, times: int, wait_ms: int) -> None:
        for n in range(times):
            if n:
                world.now_ms += world.settings.flap_wait_ms_max
                assert not world.beat(2).is_fenced
            proof(world, 2)
        world.now_ms += wait_ms - 1
        assert world.beat(2).is_fenced
        world.now_ms += 1
        assert not world.beat(2).is_fenced

    def test_sole_possible_leader_is_not_held_back(self, world: Any) -> None:
        world.kill(2, 1, 0)
        assert world.p().leader is None
        world.register(1, clean=True)
        assert not world.beat(1).is_fenced
        assert world.p().leader == 1

    def test_broker_is_held_back_above_min_isr(self, world: Any) -> None:
        world.kill(2, 1)
        assert (world.p().isr, world.p().effective_min_isr) == ((0,), 2)
        for broker in (1, 2):
            world.register(broker)
        assert not world.beat(1).is_fenced, "broker 0 alone acknowledges nothing"
        assert not world.beat(2).is_fenced, "broker 1 has not joined yet"
        world.kill(2)
        world.propose([0, 1])
        world.register(2)
        assert world.beat(2).is_fenced

    def test_broker_without_use_for_isr_is_held_back(self, new_world: Any) -> None:
        world = new_world(4)
        world.declare(strategy="Explicit", assignment=((0, 1, 2),), min_isr=3)
        world.kill(1)
        world.now_ms += world.settings.session_timeout_ms
        world.kill(2)
        world.register(2)
        assert world.beat(2).is_fenced, "broker 1 is dead for good"
        world.register(1)
        assert not world.beat(1).is_fenced, "both together are enough"
        assert not world.beat(2).is_fenced

    def test_broker_unable_to_lead_partition_is_held_back(self, world: Any) -> None:
        world.kill(2, 1, 0)
        assert world.p().elr == (0, 1)
        world.register(2)
        assert world.beat(2).is_fenced
        world.register(1, clean=True)
        assert not world.beat(1).is_fenced

    def test_broker_with_failed_log_is_held_back(self, world: Any) -> None:
        world.kill(2, 1, 0)
        world.register(1, clean=True)
        world.soft.failed[world.p().key] = {1: world.image.brokers[1].broker_epoch}
        assert world.beat(1).is_fenced

    @pytest.mark.parametrize(
        ("strategy", "fenced"), [("Balanced", True), ("Manual", False), ("Proactive", False)]
    )
    def test_last_known_member_returns_if_strategy_elects_it(
        self, new_world: Any, strategy: str, fenced: bool
    ) -> None:
        """Balanced waits for broker 0's report, and broker 0 is dead for good."""
        world = new_world(2)
        configs = {"unclean.recovery.strategy": strategy}
        world.declare(replication_factor=2, configs=configs)
        world.register(0)
        world.now_ms += world.settings.session_timeout_ms
        world.register(1)
        assert world.p().needs_recovery
        assert world.p().last_known_elr == (0, 1)
        assert world.beat(1).is_fenced is fenced

    def test_new_partition_begins_without_held_back_member(self, world: Any) -> None:
        world.declare(
            "single",
            strategy="Explicit",
            assignment=((2,),),
            replication_factor=1,
            min_isr=1,
        )
        world.kill(2)
        world.register(2, clean=True)
        assert not world.beat(2).is_fenced, "it alone may lead single-0"
        world.declare("late", strategy="Explicit", assignment=((2, 0, 1), (2, 1, 0)), partitions=2)
        assert [world.p(index, "late").isr for index in (0, 1)] == [(0, 1), (1, 0)]
        world.declare("all", strategy="Explicit", assignment=((2, 0, 1),), min_isr=3)
        assert world.p(name="all").isr == (2, 0, 1), "its min ISR needs all"

    def test_planned_shutdowns_do_not_count(self, world: Any) -> None:
        assert world.beat(2, want_shutdown=True).should_shut_down
        world.register(2, clean=True)
        assert not world.beat(2).is_fenced

    def test_dying_in_a_planned_shutdown_does_not_count(self, world: Any) -> None:
        world.beat(0, want_shutdown=True)
        assert world.image.brokers[0].shutting_down
        proof(world, 0)
        assert world.image.brokers[0].fenced
        assert 0 not in world.soft.flaps

    def test_crash_that_nobody_noticed_counts(self, world: Any) -> None:
        world.register(2)
        assert world.beat(2).is_fenced

    @pytest.mark.parametrize("slice_partitions_max", [3, 1_000])
    @pytest.mark.parametrize(
        "noticed",
        ["proof", "silence", "registration", "proof, registration", "registration, proof"],
    )
    def test_kill_counts_once_however_it_is_noticed(
        self, new_world: Callable[..., Any], noticed: str, slice_partitions_max: int
    ) -> None:
        """Killed and started again: no more than 2 s after the kill the broker takes part."""
        world = new_world(3, slice_partitions_max=slice_partitions_max)
        world.declare(partitions=8)
        epoch = world.image.brokers[2].broker_epoch
        killed_ms = world.now_ms
        for how in noticed.split(", "):
            if how == "proof":
                proof(world, 2, epoch)
            elif how == "registration":
                world.register(2)
            else:
                world.now_ms = killed_ms = killed_ms + world.settings.session_timeout_ms
                world.soft.contacts[0].last_ms = world.soft.contacts[1].last_ms = world.now_ms
                world.ask(Tick())
                assert world.image.brokers[2].fenced
        if world.image.brokers[2].broker_epoch == epoch:
            world.register(2)
        assert len(world.soft.flaps[2]) == 1
        world.now_ms = killed_ms + 2_000
        assert not world.beat(2).is_fenced

    def test_proof_between_registration_slices_counts_once(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(3, slice_partitions_max=3)
        world.declare(partitions=8)
        epoch = world.image.brokers[2].broker_epoch
        registration = world.registration(2)
        decision = world.decide(registration)
        assert decision.again is registration
        for record in decision.records:
            world.commit(record)
        proof(world, 2, epoch)
        world.ask(registration)
        assert len(world.soft.flaps[2]) == 1

    def test_flap_count_is_forgotten_after_its_window(self, world: Any) -> None:
        proof(world, 2)
        world.now_ms += world.settings.flap_window_ms
        assert not world.beat(2).is_fenced


class TestElections:
    def test_last_known_leader_is_elected_on_return(self, world: Any) -> None:
        """S10 without loss: ISR ∅, ELR {0,1}; unfencing elects whoever is complete."""
        for broker in (2, 1, 0):
            proof(world, broker)
        assert (world.p().isr, world.p().elr, world.p().leader) == ((), (0, 1), None)
        world.now_ms += world.settings.flap_wait_ms_max
        world.beat(2)
        assert world.p().leader is None, "2 left while the quorum was full"
        world.beat(1)
        assert (world.p().leader, world.p().isr, world.p().elr) == (1, (1,), (0,))

    def test_power_outage_waits_for_whoever_may_be_complete(self, world: Any) -> None:
        """S11: never 2 (it left while the quorum was full), and no blind choice of 0 or 1."""
        for broker in (2, 1, 0):
            proof(world, broker)
        world.start(2, 1, 0)
        assert (world.p().leader, world.p().elr, world.p().last_known_elr) == (None, (), (0, 1))

    def test_long_fences_come_in_slices(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3, slice_partitions_max=3)
        world.declare(partitions=7)
        decision = world.decide(
            BrokerProvenDead(
                broker_id=0, broker_epoch=world.image.brokers[0].broker_epoch, evidence="e"
            )
        )
        assert decision.again is not None
        changed = sum(last - first + 1 for r in decision.records for first, last in r.ranges)
        assert changed == 3

    def test_fence_once_begun_is_finished_despite_contact(
        self, new_world: Callable[..., Any]
    ) -> None:
        """Given up half-way it would leave a broker that is neither fenced nor electable."""
        world = new_world(3, slice_partitions_max=3)
        world.declare(partitions=8)
        beat_all(world, 0, 1, 2)
        world.now_ms += TIMEOUT
        beat_all(world, 0, 1)
        assert tick(world, 0).again == Tick()
        world.beat(2)
        while tick(world, 0).again is not None:
            pass
        assert fenced(world) == [2]
        world.now_ms += TIMEOUT
        world.beat(2)
        assert fenced(world) == []
        assert world.soft.leaving == set()
