"""Clients make no more partitions than the brokers can hold, and none takes others' share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_core.cluster.model import ReassignmentObject, Topic
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.topics import client_topics
from plimsoll_core.errors import Code
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_core.messages.moves import RunReassignment, TopicMove
from plimsoll_core.messages.requests import CreateTopics, DeleteTopics, NewTopic, TopicAnswer
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.messages.topics import AddPartitions, TopicGrowth
from plimsoll_core.security.acl import ANONYMOUS

MOST = 300
MALLORY, VICTIM = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def bounded(world: Any) -> Any:
    """Three brokers, each of which has told that it can hold 300 replicas."""
    world.commit(MetadataVersionFinalized(cause="t", metadata_version=4))
    tell(world, MOST)
    return world


def tell(world: Any, most: int) -> None:
    for broker in (0, 1, 2):
        world.beat(broker, figures=BrokerFigures(partitions_max=most))


def create(world: Any, host: str, partitions: int, name: str = "") -> TopicAnswer:
    wish = NewTopic(name=name or f"t{len(world.image.topics)}", partitions=partitions)
    behalf = OnBehalf(principal=ANONYMOUS, host=host)
    return world.ask(CreateTopics(topics=(wish,), behalf=behalf)).topics[0]


def topic(world: Any, name: str) -> Topic:
    found: Topic = world.image.topics[world.image.topic_ids[name]]
    return found


def hosted(world: Any) -> int:
    return max(len(keys) for keys in world.image.hosted.values())


def test_no_client_makes_more_than_the_brokers_hold(bounded: Any) -> None:
    """10,000 partitions took all descriptors of a broker in 2.5 s."""
    answer = create(bounded, MALLORY, 10_000)
    assert (answer.code, answer.reason) == (Code.POLICY_VIOLATION, "PolicyViolation")
    assert "memory and file descriptors for at most 300" in answer.message
    for number in range(10_000):
        if create(bounded, f"10.1.{number // 250}.{number % 250}", 20).code:
            break
    assert hosted(bounded) <= MOST


def test_one_client_leaves_room_for_a_newcomer(bounded: Any) -> None:
    for _ in range(100):
        if create(bounded, MALLORY, 10).code:
            break
    refused = create(bounded, MALLORY, 10)
    assert refused.code == Code.POLICY_VIOLATION
    assert "would exceed its share" in refused.message
    assert create(bounded, VICTIM, 40).code == 0


def test_share_holds_for_topics_of_one_request(bounded: Any) -> None:
    wishes = tuple(NewTopic(name=f"many{n}", partitions=10) for n in range(30))
    behalf = OnBehalf(principal=ANONYMOUS, host=MALLORY)
    answers = bounded.ask(CreateTopics(topics=wishes, behalf=behalf)).topics
    made = sum(not one.code for one in answers)
    assert 0 < made < 30
    assert create(bounded, VICTIM, 40).code == 0


def test_share_holds_after_another_controller_leads(bounded: Any) -> None:
    while not create(bounded, MALLORY, 10).code:
        pass
    bounded.take_over()
    tell(bounded, MOST)
    assert create(bounded, MALLORY, 10).code == Code.POLICY_VIOLATION
    assert create(bounded, VICTIM, 10).code == 0


def test_growth_by_a_client_keeps_to_the_bounds(bounded: Any) -> None:
    assert create(bounded, MALLORY, 10, "grown").code == 0
    behalf = OnBehalf(principal=ANONYMOUS, host=MALLORY)
    growth = TopicGrowth(topic="grown", partitions=280)
    answer = bounded.ask(AddPartitions(topics=(growth,), behalf=behalf)).topics[0]
    assert answer.code == Code.POLICY_VIOLATION
    assert topic(bounded, "grown").partitions == 10


def test_deletion_frees_the_share(bounded: Any) -> None:
    while not create(bounded, MALLORY, 10).code:
        pass
    names = tuple(topic.name for topic in bounded.image.topics.values() if topic.owner == MALLORY)
    behalf = OnBehalf(principal=ANONYMOUS, host=MALLORY)
    bounded.ask(DeleteTopics(names=names, behalf=behalf))
    assert create(bounded, MALLORY, 10).code == 0


def test_topic_object_is_refused_with_a_reason(bounded: Any) -> None:
    answer = bounded.declare("declared", partitions=400)
    assert answer.reason == "PolicyViolation"
    assert "give the brokers more memory" in answer.message


def test_brokers_that_told_nothing_bound_nothing(world: Any) -> None:
    """They run an earlier release."""
    assert create(world, MALLORY, 1_000).code == 0


def test_owner_is_not_committed_below_its_metadata_version(world: Any) -> None:
    tell(world, MOST)
    assert create(world, MALLORY, 10, "early").code == 0
    assert topic(world, "early").owner == ""


@pytest.mark.parametrize("partitions", [10_000, 60])
def test_number_without_room_is_not_placed(
    bounded: Any, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placing 10,000 partitions takes long, and a client may ask for it as often as it likes."""
    create(bounded, VICTIM, 10, "there")
    create(bounded, MALLORY, 100)

    def placed(*_: Any) -> Any:
        raise AssertionError("it was placed")

    monkeypatch.setattr(client_topics, "place_new", placed)
    monkeypatch.setattr(client_topics, "place_more", placed)
    assert create(bounded, MALLORY, partitions).code == Code.POLICY_VIOLATION
    growth = AddPartitions(
        topics=(TopicGrowth(topic="there", partitions=min(10 + partitions, 10_000)),),
        behalf=OnBehalf(principal=ANONYMOUS, host=MALLORY),
    )
    assert bounded.ask(growth).topics[0].code == Code.POLICY_VIOLATION


@pytest.fixture
def small(new_world: Any) -> Any:
    """Three brokers, and room for 100 partitions in the cluster."""
    return new_world(3, partitions_per_cluster_max=100)


def test_clients_and_objects_keep_to_limit_of_cluster(small: Any) -> None:
    assert create(small, MALLORY, 60, "first").code == 0
    refused = create(small, VICTIM, 41)
    assert (refused.code, refused.reason) == (Code.POLICY_VIOLATION, "PolicyViolation")
    assert "has 60 partitions and may have 100, so 41 more are not created" in refused.message
    assert "topics.limits.partitionsPerCluster" in refused.message
    declared = small.declare("declared", partitions=41)
    assert (declared.reason, declared.message) == (refused.reason, refused.message)
    growth = TopicGrowth(topic="first", partitions=101)
    assert small.ask(AddPartitions(topics=(growth,))).topics[0].code == Code.POLICY_VIOLATION
    assert create(small, VICTIM, 40).code == 0
    assert len(small.image.partitions) == 100


def test_cluster_above_its_limit_keeps_its_topics(small: Any) -> None:
    small.declare("declared", partitions=100)
    small.settings = replace(small.settings, partitions_per_cluster_max=50)
    small.declare("declared", partitions=100, min_isr=1)
    assert topic(small, "declared").min_isr == 1
    assert small.declare("declared", partitions=101).reason == "PolicyViolation"


def test_reassignment_beyond_memory_of_a_broker_waits(new_world: Any) -> None:
    world = new_world(4)
    world.ask(CreateTopics(topics=(NewTopic(name="t", assignment=((0, 1), (1, 2), (2, 0))),)))
    world.beat(3, figures=BrokerFigures(partitions_max=2))
    moves = (TopicMove(topic="t", partitions=(0, 1, 2), replicas=(3, 0)),)
    request = RunReassignment(
        object=ReassignmentObject(namespace="kafka", name="to-3", uid="u1"), moves=moves
    )
    refused = world.ask(request)
    assert refused.reason == "ReplicaCapacity"
    assert "broker 3 would have 3 replicas" in refused.message
    world.beat(3, figures=BrokerFigures(partitions_max=3))
    assert world.ask(request).phase == "Running"
