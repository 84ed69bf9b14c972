"""A Topic object's wishes are asked for as often as it is looked at; a refusal is shown there."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import TOPIC_ID, an_image, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionsAnswer,
    NamedLeader,
    NameLeaders,
)
from plimsoll_core.messages.requests import Answer, DeclareTopic, Request, TopicAnswer, TopicsAnswer
from plimsoll_operator.kube.resources import NAMESPACES
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import About, Occurrence

KEY = ("kafka", "orders")
SENTENCE = "Broker 2 cannot lead partition orders-7, because it is not active now."


def a_scene(elect: list[dict[str, int]] | None = None) -> Scene:
    scene = Scene(with_topic(an_image(), ((0, 1, 2),) * 8))
    spec: dict[str, Any] = {"clusterRef": {"name": "main"}}
    if elect is not None:
        spec["uncleanRecovery"] = {"elect": elect}
    metadata = {"name": "orders", "namespace": "kafka", "uid": "u1", "generation": 3}
    scene.objects.topics.put({"metadata": metadata, "spec": spec})
    return scene


def answering(*elections: ElectionAnswer) -> Any:
    def reply(request: Request) -> Answer:
        if isinstance(request, DeclareTopic):
            return TopicsAnswer(topics=(TopicAnswer(name="orders", topic_id=TOPIC_ID),))
        return ElectionsAnswer(partitions=elections)

    return reply


async def test_leaders_are_named_after_the_declaration():
    scene = a_scene([{"partition": 7, "leader": 2, "atLeaderEpoch": 41}])
    scene.controller.reply = answering()
    await scene.run(topic.reconcile, KEY)
    declared, named = scene.controller.asked
    assert isinstance(declared, DeclareTopic)
    assert isinstance(named, NameLeaders)
    assert named.object == declared.object
    assert named.leaders == (NamedLeader(partition=7, leader=2, at_leader_epoch=41),)
    assert KEY not in topics_of(scene.term).refusals


async def test_topic_without_named_leaders_requests_no_election():
    for scene in (a_scene(), a_scene([])):
        scene.controller.reply = answering()
        await scene.run(topic.reconcile, KEY)
        assert [type(request) for request in scene.controller.asked] == [DeclareTopic]


async def test_refusal_is_shown_and_asked_again():
    scene = a_scene([{"partition": 7, "leader": 2, "atLeaderEpoch": 41}])
    refused = ElectionAnswer(
        topic="orders", index=7, code=83, reason="LeaderNotEligible", message=SENTENCE
    )
    scene.controller.reply = answering(ElectionAnswer(topic="orders", index=6), refused, refused)
    with pytest.raises(Retry, match="cannot lead partition"):
        await scene.run(topic.reconcile, KEY)
    shown = topics_of(scene.term).refusals[KEY]
    assert (shown.type, shown.status, shown.reason) == ("Ready", "False", "LeaderNotEligible")
    assert shown.message == f"{SENTENCE} And 1 more."
    assert topics_of(scene.term).observed[KEY] == 3
    scene.controller.reply = answering(ElectionAnswer(topic="orders", index=7, leader=2))
    await scene.run(topic.reconcile, KEY)
    assert KEY not in topics_of(scene.term).refusals


async def test_topic_of_disallowed_namespace_is_detached():
    holder = TopicObject(namespace="team", name="orders", uid="u1")
    image = with_topic(an_image(), ((0, 1, 2),), holder)
    deciding = Deciding(image)
    allowed = {"from": "Selector", "selector": {"matchLabels": {"team": "yes"}}}
    scene = Scene(image, deciding, topics={"allowedNamespaces": allowed})
    events: list[Occurrence] = []
    scene.effects.tell = events.append
    scene.kube.put(NAMESPACES, {"metadata": {"name": "team", "labels": {}}})
    spec = {"clusterRef": {"name": "main", "namespace": "kafka"}}
    metadata = {"name": "orders", "namespace": "team", "uid": "u1", "generation": 3}
    scene.objects.topics.put({"metadata": metadata, "spec": spec})
    for _ in range(2):
        await scene.run(topic.reconcile, ("team", "orders"))
    event, refused = events
    assert (refused.reason, refused.about) == ("TopicRefused", event.about)
    assert event.about == About("Topic", "team", "orders", "u1")
    assert (event.reason, event.warning) == ("TopicDetached", True)
    assert "the object team/orders" in event.message
    assert deciding.image.topics[TOPIC_ID].object is None
