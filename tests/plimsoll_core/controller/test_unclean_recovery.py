"""Balanced recovery: "every member of LKELR answers; then the greatest (epoch, end) leads"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.invariants import EVERY_DECISION, EVERY_RECORD
from plimsoll_core.cluster.model import Partition, Recovery
from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_core.controller.partitions.unclean_recovery import CAUSES, CERTAIN
from plimsoll_core.messages.requests import Done


@pytest.fixture
def lost(world: Any) -> Partition:
    """Everything was killed at once: each broker registers again without a marker."""
    world.declare(partitions=1, replication_factor=3, min_isr=2)
    for broker in (0, 1, 2):
        world.register(broker)
    # They count as flapping, so they are held back for a moment.
    world.now_ms += 5_000
    for broker in (0, 1, 2):
        world.beat(broker)
    p: Partition = world.p()
    assert (p.leader, p.isr, p.elr) == (None, (), ())
    assert p.last_known_elr == (1, 2)
    return p


def test_balanced_recovery_ignores_a_single_report(world: Any, lost: Partition) -> None:
    assert world.tell(1, (0, 100)) == Done()
    assert world.p() == lost


def test_most_complete_log_leads_once_all_have_told(world: Any, lost: Partition) -> None:
    world.tell(1, (0, 100))
    world.tell(2, (0, 101))
    p = world.p()
    assert (p.leader, p.isr) == (2, (2,))
    assert p.last_known_elr == (1,), "kept until enough have followed"
    assert p.recovery is Recovery.RECOVERING
    assert p.leader_epoch == lost.leader_epoch + 1


def test_later_epoch_beats_a_longer_log(world: Any, lost: Partition) -> None:
    world.tell(1, (1, 50))
    world.tell(2, (0, 101))
    assert world.p().leader == 1


def test_tie_goes_to_the_first_replica(world: Any, lost: Partition) -> None:
    world.tell(2, (0, 100))
    world.tell(1, (0, 100))
    assert world.p().leader == 1


def test_empty_log_loses_against_any_record(world: Any, lost: Partition) -> None:
    world.tell(1, (None, 0))
    world.tell(2, (0, 1))
    assert world.p().leader == 2


def test_answer_about_another_term_does_not_count(world: Any, lost: Partition) -> None:
    world.tell(1, (0, 100), stale=1)
    world.tell(2, (0, 101))
    assert world.p().leader is None
    world.tell(1, (0, 100))
    assert world.p().leader == 2


def test_answer_of_an_earlier_lifetime_does_not_count(world: Any, lost: Partition) -> None:
    world.tell(1, (0, 100))
    world.register(1)
    world.beat(1)
    world.tell(2, (0, 50))
    assert world.p().leader is None


def test_partition_with_isr_member_ignores_log_end_reports(world: Any) -> None:
    world.declare(partitions=1, replication_factor=3, min_isr=2)
    world.register(0)
    world.register(1)
    before = world.p()
    assert before.isr == (2,)
    world.tell(1, (9, 1_000))
    world.tell(0, (9, 1_000))
    assert world.p() == before


def test_recovered_leader_takes_the_others_back(world: Any, lost: Partition) -> None:
    world.tell(1, (0, 100))
    world.tell(2, (0, 101))
    answer = world.propose([2, 1])
    assert answer.code == 0
    p = world.p()
    assert set(p.isr) == {1, 2}
    assert p.recovery is Recovery.RECOVERED
    assert p.last_known_elr == ()


def test_report_of_previous_broker_epoch_is_refused(world: Any, lost: Partition) -> None:
    """ "each carrying its currently registered BE": 77."""
    late = world.report(1, (0, 100))
    world.register(1)
    assert world.ask(late).code == 77
    assert not world.soft.reports


def test_proactive_waits_until_the_last_member_is_out(new_world: Callable[..., Any]) -> None:
    """ "Clean first, always": a partition with an ISR is not recovered, though it has no leader.

    Its last member is being fenced in slices, so it may not lead; meanwhile min ISR changes.
    """
    world = new_world(3, slice_partitions_max=1)
    configs = {UNCLEAN_RECOVERY: "Proactive"}
    for name in ("first", "second"):
        world.declare(name, strategy="Explicit", assignment=((0, 1, 2),), configs=configs)
        world.ask(world.proposal([0], name=name))
    begun = world.decide(world.heartbeat(0, want_fence=True))
    assert begun.again is not None
    for record in begun.records:
        world.commit(record)
    world.predicates = EVERY_RECORD  # between two slices, broker 0 still counts as active
    name = next(name for name in ("first", "second") if world.p(name=name).isr)
    fields = {"strategy": "Explicit", "assignment": ((0, 1, 2),), "configs": configs}
    world.declare(name, min_isr=3, **fields)
    waiting = world.p(name=name)
    assert (waiting.leader, waiting.isr) == (None, (0,))
    for broker in (1, 2):
        world.ask(world.report(broker, (0, 9), name=name))
    assert world.p(name=name) == waiting
    world.predicates = EVERY_DECISION
    world.ask(begun.again)
    assert 0 not in world.p(name=name).isr
    for broker in (1, 2):
        world.ask(world.report(broker, (0, 9), name=name))
    world.now_ms += world.settings.unclean_wait_ms
    assert world.p(name=name).leader == 1, world.p(name=name)


def test_log_that_is_no_replica_decides_nothing(world: Any, lost: Partition) -> None:
    """What is left of a replica on a broker that it has moved away from."""
    world.start(3)
    world.tell(3, (9, 1_000))
    assert world.p() == lost
    assert not world.soft.reports


def test_cause_is_certain_loss_when_longer_log_known(world: Any, lost: Partition) -> None:
    world.tell(0, (0, 120))
    world.tell(1, (0, 100))
    world.tell(2, (0, 101))
    assert world.p().leader == 2, "only the last known members are asked for a balanced recovery"
    assert world.log[-1].cause.endswith(CERTAIN)


def test_cause_is_possible_loss_without_longer_log(world: Any, lost: Partition) -> None:
    world.tell(0, (0, 101))
    world.tell(1, (0, 100))
    world.tell(2, (0, 101))
    assert world.log[-1].cause == CAUSES["Balanced"]
