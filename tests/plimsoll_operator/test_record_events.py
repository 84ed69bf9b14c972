"""What committed records become for users: Events and metrics, with causes of few words."""

import pytest
from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic

from plimsoll_core.cluster.model import Recovery
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokersLeaving,
    MembersChanged,
    RestartGranted,
)
from plimsoll_core.controller.partitions.unclean_recovery import UNCLEAN_CAUSES
from plimsoll_core.ids import BrokerId
from plimsoll_operator.status.operator_metrics import Metrics
from plimsoll_operator.status.planned_shrinks import word
from plimsoll_operator.status.record_events import (
    IsrChange,
    isr_changes,
    occurrences,
    unclean_elections,
)


def test_causes_have_few_words():
    assert word("fenced after 6012 ms of silence") == "fenced"
    assert word("fenced on proof: connection closed by the peer") == "fenced"
    assert word("IsrShrinkLag") == "lag"
    assert word("anything else") == "other"


def test_isr_changes_count_partitions_by_direction():
    image = with_topic(an_image(), ((0, 1, 2), (0, 2, 1)))
    records = (isr_changed(0, (0, 1)), isr_changed(0, (0, 1, 2), cause="IsrExpand"))
    changes = list(isr_changes(image, records))
    assert [(c.cause, c.shrank, c.grew) for c in changes] == [("lag", 1, 0), ("caught-up", 0, 1)]


def granted(broker: int) -> RestartGranted:
    return RestartGranted(
        cause="asked for", broker_id=broker, broker_epoch=broker, pod_uid="p", revision="r"
    )


@pytest.mark.parametrize(
    ("committed", "planned"),
    [
        pytest.param((), False, id="evicted, preempted, or its pod deleted by hand"),
        pytest.param((granted(1),), False, id="another broker is restarted by grant"),
        pytest.param((granted(2),), True, id="restarted by grant"),
        pytest.param((BrokersLeaving(cause="x", broker_ids=(2,)),), True, id="drained"),
        pytest.param((MembersChanged(cause="x", broker_ids=(0, 1)),), True, id="removed"),
    ],
)
def test_shrink_is_planned_only_by_what_is_committed_about_that_broker(committed, planned):
    """A SIGTERM says nothing of who wanted it."""
    image = replay(with_topic(an_image(), ((0, 1, 2),)), *committed)
    (change,) = isr_changes(image, (isr_changed(0, (0, 1), cause="shutdown"),))
    assert (change.shrank, change.planned) == (1, int(planned))


def test_shrink_of_what_is_moved_off_is_planned_for_that_partition_alone():
    image = with_topic(an_image((0, 1, 2, 3)), ((0, 1, 2), (0, 1, 2)))
    move = {"replicas": (0, 1, 2, 3), "adding": (3,), "removing": (2,)}
    image = replay(image, isr_changed(0, (0, 1, 2), cause="reassignment", **move))
    cancel = {"replicas": (0, 1, 2), "adding": (), "removing": (), "cause": "reassignment"}
    joined = replay(image, isr_changed(0, (0, 1, 2, 3), cause="IsrExpand"))
    (change,) = isr_changes(joined, (isr_changed(0, (0, 1, 2), **cancel),))
    assert (change.shrank, change.planned) == (1, 1)
    records = (isr_changed(0, (0, 1)), isr_changed(1, (0, 1)))
    assert [(c.shrank, c.planned) for c in isr_changes(image, records)] == [(1, 1), (1, 0)]


def test_dead_broker_is_one_event_however_many_partitions_it_led():
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
def test_unclean_election_is_a_warning_that_names_what_may_be_lost_and_is_counted(cause):
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
    assert "Topic orders: broker 2 leads" in event.message
    assert "acknowledged records may be lost" in event.message
    assert "possible data loss" in event.message
    assert event.message.endswith("Partitions 1.")
    assert unclean_elections(records) == 1


class Sees:
    """A process that sees these clusters and leads none."""

    def __init__(self, *keys):
        self.keys = list(keys)

    def known(self):
        return self.keys

    def controllers(self):
        return []

    def blocked(self):
        return []

    def failures(self):
        return {}


def test_process_that_leads_nothing_shows_zeros_of_every_cluster_that_it_sees():
    """So that the first shrink after it takes over is an increase."""
    sees, metrics = Sees(("kafka", "main")), Metrics()
    metrics.watch(sees)
    shrinks = (
        'plimsoll_isr_changes_total{cause="fenced",change="shrink",cluster="main",'
        'namespace="kafka",planned="false"}'
    )
    assert f"{shrinks} 0.0" in metrics.render().decode()
    change = IsrChange(cause="fenced", shrank=3, planned=1, grew=0)
    metrics.isr_changed(("kafka", "main"), change)
    text = metrics.render().decode()
    assert f"{shrinks} 2.0" in text
    assert f"{shrinks.replace('false', 'true')} 1.0" in text
    sees.keys.clear()
    assert 'cluster="main"' not in metrics.render().decode()


def test_count_of_unclean_elections_starts_at_zero_and_grows_by_partitions():
    metrics = Metrics()
    metrics.watch(Sees(("kafka", "main")))
    sample = 'plimsoll_unclean_elections_total{cluster="main",namespace="kafka"}'
    assert f"{sample} 0.0" in metrics.render().decode()
    metrics.elected_uncleanly(("kafka", "main"), 3)
    assert f"{sample} 3.0" in metrics.render().decode()


def test_clean_election_is_not_called_unclean():
    records = (isr_changed(0, (1, 2), leader=BrokerId(1), leader_epoch_step=1, cause="shutdown"),)
    assert unclean_elections(records) == 0
