"""What committed records become for users: Events and metrics, with causes of few words."""

import pytest
from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic

from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause
from plimsoll_core.cluster.model import Recovery
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokersLeaving,
    MembersChanged,
    RestartGranted,
)
from plimsoll_core.controller.partitions.unclean_recovery import POSSIBLE_CAUSES, UNCLEAN_CAUSES
from plimsoll_core.ids import BrokerId
from plimsoll_operator.status.commit_counters import (
    LeaderChange,
    isr_changes,
    leader_changes,
    unclean_elections,
)
from plimsoll_operator.status.record_events import occurrences


def test_isr_changes_count_departures_and_joins():
    image = with_topic(an_image(), ((0, 1, 2), (0, 2, 1)))
    records = (isr_changed(0, (0, 1)), isr_changed(0, (0, 1, 2), cause="IsrExpand"))
    changes = isr_changes(image, image, records)
    assert changes.shrinks == {left(2, ShrinkCause.LAG): 1}
    assert changes.joined == 1


def left(broker: int, cause: ShrinkCause) -> Left:
    return Left(broker_id=BrokerId(broker), cause=cause)


def granted(broker: int) -> RestartGranted:
    return RestartGranted(
        cause="asked for", broker_id=broker, broker_epoch=broker, pod_uid="p", revision="r"
    )


@pytest.mark.parametrize(
    ("committed", "cause"),
    [
        pytest.param((), ShrinkCause.RESTART, id="evicted, preempted, or its pod deleted by hand"),
        pytest.param((granted(1),), ShrinkCause.RESTART, id="another broker is restarted by grant"),
        pytest.param((granted(2),), ShrinkCause.ROLL, id="restarted by grant"),
        pytest.param(
            (BrokersLeaving(cause="x", broker_ids=(2,)),), ShrinkCause.REASSIGN, id="drained"
        ),
        pytest.param(
            (MembersChanged(cause="x", broker_ids=(0, 1)),), ShrinkCause.REASSIGN, id="removed"
        ),
    ],
)
def test_shrink_is_planned_only_by_committed_facts(committed, cause):
    """A SIGTERM says nothing of who wanted it."""
    image = replay(with_topic(an_image(), ((0, 1, 2),)), *committed)
    changes = isr_changes(image, image, (isr_changed(0, (0, 1), cause="shutdown"),))
    assert changes.shrinks == {left(2, cause): 1}


def test_moved_off_partitions_shrink_is_planned():
    image = with_topic(an_image((0, 1, 2, 3)), ((0, 1, 2), (0, 1, 2)))
    move = {"replicas": (0, 1, 2, 3), "adding": (3,), "removing": (2,)}
    image = replay(image, isr_changed(0, (0, 1, 2), cause="reassignment", **move))
    cancel = {"replicas": (0, 1, 2), "adding": (), "removing": (), "cause": "reassignment"}
    joined = replay(image, isr_changed(0, (0, 1, 2, 3), cause="IsrExpand"))
    changes = isr_changes(joined, joined, (isr_changed(0, (0, 1, 2), **cancel),))
    assert changes.shrinks == {}, "broker 3 has no replica any more"
    changes = isr_changes(image, image, (isr_changed(0, (0, 1)), isr_changed(1, (0, 1))))
    assert changes.shrinks == {
        left(2, ShrinkCause.REASSIGN): 1,
        left(2, ShrinkCause.LAG): 1,
    }


@pytest.mark.parametrize(
    ("cause", "change"),
    [
        ("fenced on proof: its pod is gone", LeaderChange.FENCED),
        ("shutdown", LeaderChange.RESTART),
        ("registration after an unclean stop", LeaderChange.RESTART),
        ("leadership goes back to the preferred replica", LeaderChange.PREFERRED),
        ("elected after broker 1 came back", LeaderChange.RETURNED),
        ("storage: broker 0 has no disk that takes this log", LeaderChange.DISK),
        ("reassignment by a rebalance", LeaderChange.REASSIGN),
        (UNCLEAN_CAUSES[0], LeaderChange.UNCLEAN),
        ("something new", LeaderChange.UNKNOWN),
    ],
)
def test_leader_change_is_counted_by_cause(cause, change):
    image = with_topic(an_image(), ((0, 1, 2),))
    record = isr_changed(0, (1, 2), leader=BrokerId(1), leader_epoch_step=1, cause=cause)
    assert leader_changes(image, (record,)) == {change: 1}
    rolled = replay(image, granted(0))
    if change is LeaderChange.RESTART:
        assert leader_changes(rolled, (record,)) == {LeaderChange.ROLL: 1}


def test_partition_that_loses_its_leader_has_no_election():
    image = with_topic(an_image(), ((0, 1, 2),))
    assert leader_changes(image, (isr_changed(0, (), leader=None, leader_epoch_step=1),)) == {}


def test_dead_broker_is_one_event():
    old = with_topic(an_image(), ((0, 1, 2),) * 5)
    records = (
        isr_changed(0, (1, 2), leader=BrokerId(1), leader_epoch_step=1, cause="fenced on proof"),
        BrokerFenced(
            cause="fenced on proof: gone",
            broker_id=BrokerId(0),
            broker_epoch=old.brokers[BrokerId(0)].broker_epoch,
        ),
    )
    (event,) = occurrences(old, replay(old, *records), records)
    assert (event.reason, event.warning) == ("BrokerFenced", True)
    assert "1 leaderships moved, 0 partitions offline" in event.message


@pytest.mark.parametrize("cause", UNCLEAN_CAUSES)
def test_unclean_election_warns_of_possible_loss(cause):
    old = with_topic(an_image(), ((0, 1, 2),) * 3)
    records = (
        isr_changed(1, (), leader=None, leader_epoch_step=1, cause="registration"),
        isr_changed(
            1,
            (2,),
            leader=BrokerId(2),
            leader_epoch_step=1,
            recovery=Recovery.RECOVERING,
            cause=cause,
        ),
    )
    (event,) = occurrences(old, replay(old, *records), records)
    assert (event.reason, event.warning) == ("UncleanElection", True)
    assert "Topic orders: broker 2 became the leader" in event.message
    certain = cause not in POSSIBLE_CAUSES
    assert ("may lack acknowledged records" in event.message) != certain
    assert ("certain data loss" if certain else "possible data loss") in event.message
    assert event.message.endswith("Partitions: 1.")
    assert unclean_elections(records) == 1


def test_clean_election_is_not_called_unclean():
    records = (isr_changed(0, (1, 2), leader=BrokerId(1), leader_epoch_step=1, cause="shutdown"),)
    assert unclean_elections(records) == 0
