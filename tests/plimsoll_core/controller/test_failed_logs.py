"""Newly offline logs: "change(p, isr−{b}) for the partitions in them"; the broker stays."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_core.cluster.invariants import EVERY_DECISION, always_led
from plimsoll_core.controller.kernel.volatile_state import unsee
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.requests import Done, FailedReplica, Refused, ReportFailedReplicas


def failed(
    world: Any, broker: int, *indexes: int, broker_epoch: int | None = None, lost: bool = False
) -> Any:
    epoch = world.image.brokers[BrokerId(broker)].broker_epoch
    request = ReportFailedReplicas(
        broker_id=BrokerId(broker),
        broker_epoch=BrokerEpoch(epoch if broker_epoch is None else broker_epoch),
        replicas=tuple(
            FailedReplica(topic_id=world.p().topic_id, index=i, lost=lost) for i in indexes
        ),
    )
    return world.ask(request)


@pytest.fixture
def served(world: Any) -> Any:
    world.declare(partitions=3, replication_factor=3, min_isr=2)
    return world


def test_leader_without_disk_loses_only_that_partition(served: Any) -> None:
    before = [served.p(index) for index in range(3)]
    victim = before[0].leader
    assert failed(served, victim, 0) == Done()
    p = served.p(0)
    assert p.leader not in (None, victim)
    assert set(p.isr) == {0, 1, 2} - {victim}
    assert p.leader_epoch == before[0].leader_epoch + 1
    assert [served.p(1), served.p(2)] == before[1:]
    assert served.image.brokers[victim].active


def test_follower_without_disk_leaves_without_new_leader_epoch(served: Any) -> None:
    before = served.p(0)
    victim = before.isr[-1]
    failed(served, victim, 0)
    after = served.p(0)
    assert victim not in after.isr
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)


def test_last_member_goes_offline_and_is_elected_later(served: Any) -> None:
    # The image does not say which disks failed: by it alone a leader could be chosen.
    served.predicates = tuple(one for one in EVERY_DECISION if one is not always_led)
    first, second, third = served.p(0).replicas
    for victim in (first, second, third):
        failed(served, victim, 0)
    p = served.p(0)
    assert (p.leader, p.isr) == (None, ())
    assert third in p.elr, "what was acknowledged is in its log"
    served.beat(second)
    assert served.p(0) == p, "no election among logs that are out of service"
    served.start(third, clean=True)
    assert (served.p(0).leader, served.p(0).isr) == (third, (third,))


def test_report_told_twice_changes_nothing_more(served: Any) -> None:
    victim = served.p(0).leader
    failed(served, victim, 0, 0)
    after = served.image
    failed(served, victim, 0, 7)
    assert served.image == after


def test_report_of_an_earlier_lifetime_is_refused(served: Any) -> None:
    before = served.image
    answer = failed(served, 0, 0, broker_epoch=0)
    assert isinstance(answer, Refused)
    assert answer.reason == "StaleBrokerEpoch"
    assert served.image == before


def test_log_reported_again_may_be_elected(served: Any) -> None:
    """All disks were full at once: whoever has everything leads when there is room again."""
    served.predicates = tuple(one for one in EVERY_DECISION if one is not always_led)
    first, second, third = served.p(0).replicas
    for victim in (first, second, third):
        failed(served, victim, 0)
    served.tell(first, (0, 5))
    assert served.p(0).leader is None, "it left before the others went on: it may lack something"
    served.tell(third, (0, 5))
    assert (served.p(0).leader, served.p(0).isr) == (third, (third,))


def test_election_dropped_by_full_log_is_decided_later(
    served: Any,
) -> None:
    """Seed 1703013: the disk had room again, but the election was never committed; what this term
    remembered of it was only that the log is in service."""
    served.predicates = tuple(one for one in EVERY_DECISION if one is not always_led)
    third = served.p(0).replicas[-1]
    for victim in served.p(0).replicas:
        failed(served, victim, 0)
    dropped = served.decide(served.report(third, (0, 5)))
    assert dropped.image.partitions[served.p(0).key].leader == third
    unsee(served.soft, served.image, dropped.records, served.now_ms)
    assert served.p(0).leader is None
    served.tell(third, (0, 5))
    assert (served.p(0).leader, served.p(0).isr) == (third, (third,))


def test_replica_that_follows_again_may_lead(served: Any) -> None:
    p = served.p(0)
    leader, victim = p.leader, p.isr[-1]
    failed(served, victim, 0)
    served.propose([*served.p(0).isr, victim])
    failed(served, leader, 0)
    others = [member for member in p.replicas if member not in (leader, victim)]
    for other in others:
        failed(served, other, 0)
    assert served.p(0).leader == victim


def test_follower_that_copies_anew_leaves_isr_and_elr(served: Any) -> None:
    leader, second, third = served.p(0).replicas
    failed(served, third, 0, lost=True)
    assert served.p(0).isr == (leader, second)
    failed(served, second, 0)
    assert (served.p(0).isr, served.p(0).elr) == ((leader,), (second,))
    failed(served, second, 0, lost=True)
    p = served.p(0)
    assert (p.leader, p.isr, p.elr) == (leader, (leader,), ())
    assert p.last_known_elr == (second,)
    served.propose([leader, third])
    assert served.p(0).isr == (leader, third), "its log is online"


def test_replica_that_leads_copies_nothing_anew(served: Any) -> None:
    """A report that arrives after the election of its sender, or of nobody."""
    served.predicates = tuple(one for one in EVERY_DECISION if one is not always_led)
    leader, second, third = served.p(0).replicas
    before = served.p(0)
    failed(served, leader, 0, lost=True)
    assert served.p(0) == before
    for victim in (leader, second, third):
        failed(served, victim, 0)
    before = served.p(0)
    assert third in before.elr
    failed(served, third, 0, lost=True)
    assert served.p(0) == before
