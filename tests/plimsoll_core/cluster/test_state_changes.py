"""What metadata ask of replicas, in the words of the design document V2."""

import pytest
from tests.plimsoll_operator.builders import TOPIC_ID, an_image, isr_changed, replay, with_topic

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.records import PartitionsChanged, TopicRemoved
from plimsoll_core.cluster.state_changes import (
    ReachedStage,
    StateChange,
    fields,
    requested,
    sentence,
)
from plimsoll_core.ids import BrokerId, LeaderEpoch

KEY = PartitionKey(TOPIC_ID, 0)


def asked(image, *records):
    """(broker, kind) of everything that the records ask for."""
    new = replay(image, *records)
    return [(change.broker_id, change.kind) for change in requested(image, new, records)]


def changed(**more):
    return PartitionsChanged(cause="x", topic_id=TOPIC_ID, ranges=((0, 0),), **more)


def test_new_partition_starts_all_replicas_and_one_leader():
    empty = an_image()
    image = with_topic(empty, ((0, 1, 2),))
    records = [isr_changed(0, (0, 1, 2))]
    told = [(c.broker_id, c.kind) for c in requested(empty, image, records)]
    assert told == [
        (0, "start-replica"),
        (0, "become-leader"),
        (1, "start-replica"),
        (2, "start-replica"),
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param({"isr": (0, 1)}, [], id="an ISR alone changes no role"),
        pytest.param(
            {"leader": 1, "leader_epoch_step": 1, "isr": (1, 2)},
            [(0, "become-follower"), (1, "become-leader"), (2, "become-follower")],
            id="another leader",
        ),
        pytest.param(
            {"leader": None, "leader_epoch_step": 1},
            [(0, "become-follower")],
            id="no leader: who led stops, the others go on waiting",
        ),
        pytest.param(
            {"replicas": (0, 1), "isr": (0, 1)}, [(2, "close-replica")], id="a replica goes"
        ),
    ],
)
def test_partition_change_asks_replicas_whose_role_changes(change, told):
    assert asked(with_topic(an_image(), ((0, 1, 2),)), changed(**change)) == told


def test_removed_topic_closes_every_replica():
    image = with_topic(an_image(), ((0, 1, 2),))
    closed = asked(image, TopicRemoved(cause="x", topic_id=TOPIC_ID))
    assert closed == [(broker, "close-replica") for broker in (0, 1, 2)]


def test_partition_changed_twice_is_asked_once_for_result():
    image = with_topic(an_image(), ((0, 1, 2),))
    there = changed(leader=1, leader_epoch_step=1)
    back = changed(leader=2, leader_epoch_step=1)
    assert asked(image, there, back) == [
        (0, "become-follower"),
        (1, "become-follower"),
        (2, "become-leader"),
    ]


def test_state_change_steps_match_the_documented_ones():
    change = StateChange("start-replica", KEY, BrokerId(1), LeaderEpoch(10))
    stages = [
        ReachedStage(stage, change, "foo", 14) for stage in ("requested", "received", "completed")
    ]
    assert [sentence(told, leads=False) for told in stages] == [
        "controller, epoch 14, requested start-replica for topic foo partition 0,"
        " to broker id 1, at epoch 10",
        "follower, broker id 1, received start-replica for topic foo partition 0,"
        " from controller, epoch 14, at epoch 10",
        "follower, broker id 1, completed start-replica for topic foo partition 0,"
        " request from controller, epoch 14, at epoch 10",
    ]
    assert fields(stages[0]) == {
        "stateChange": "start-replica",
        "stage": "requested",
        "topic": "foo",
        "partition": 0,
        "broker": 1,
        "leaderEpoch": 10,
        "controllerEpoch": 14,
    }
