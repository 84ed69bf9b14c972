"""An object that cannot be read says so itself; its cluster is led on."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import CLUSTER_UID, a_cluster_body, an_image, with_topic
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.messages.requests import DeclareTopic, TopicAnswer, TopicsAnswer
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.crds import LOG_CLUSTER, TOPIC, Kind, spec_schema
from plimsoll_operator.api.load import readable_part
from plimsoll_operator.api.topic import Topic, TopicStatus
from plimsoll_operator.kube.resources import SERVICES, TOPICS
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.registry import unread_as_such
from plimsoll_operator.reconcile.restarts import reconcile as restarts
from plimsoll_operator.reconcile.topic import deletion_proof
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.status.status_writer import StatusDraft, Target

NESTED = {"log.retention": {"hours": 1}}
KEY = ("kafka", "orders")


def a_topic_body(uid: str = "u1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "orders", "namespace": "kafka", "uid": uid, "generation": 3},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }


@pytest.mark.parametrize("kind", [LOG_CLUSTER, TOPIC], ids=lambda kind: kind.name)
def test_schema_refuses_structured_config_values(kind: Kind):
    values = spec_schema(kind)["properties"]["config"]["additionalProperties"]
    assert values["maxLength"] == 4096
    assert values["minProperties"] > values["maxProperties"]
    assert values["minItems"] > values["maxItems"]


def test_unreadable_cluster_stays_as_last_read():
    objects = Objects()
    objects.clusters.put(a_cluster_body(brokers={"count": 5}))
    edited = a_cluster_body(brokers={"count": 1}, config=NESTED)
    edited["metadata"] |= {"generation": 2, "deletionTimestamp": "2026-11-22T00:00:00Z"}
    kept = objects.clusters.put(edited)
    assert kept is not None
    assert kept.count == 5
    assert kept.metadata.deletion_timestamp is not None
    unread = objects.clusters.unread(kept.key)
    assert unread is not None
    assert unread.metadata.generation == 2
    assert "got `object`" in unread.sentence
    objects.clusters.put(a_cluster_body())
    assert objects.clusters.unread(kept.key) is None


def test_never_read_cluster_uses_readable_part():
    objects = Objects()
    body = a_cluster_body(brokers={"count": 5}, config=NESTED, racks={"policy": "New"})
    found = objects.clusters.put(body)
    assert found is not None
    assert (found.count, found.spec.config, found.rack_policy) == (5, None, "Preferred")
    assert objects.clusters.missing(found.key) == {"config", "racks"}


@pytest.mark.parametrize("spec", [{"clusterId": 7}, {"clusterId": "?", "config": NESTED}])
def test_cluster_with_unreadable_id_is_not_loaded(spec: dict[str, Any]):
    objects = Objects()
    assert objects.clusters.put(a_cluster_body(**spec)) is None
    assert [unread.key for unread in objects.clusters.lost()] == [("kafka", "main")]


def test_namesake_is_not_gone_by_predecessor():
    objects = Objects()
    objects.topics.put(a_topic_body(partitions=9))
    other = objects.topics.put(a_topic_body("u2", config={"retention": {"ms": 1}}))
    assert other is not None
    assert (other.metadata.uid, other.spec.partitions) == ("u2", None)


def test_readable_part_drops_unreadable_fields_whole():
    expressions = [{"key": "team", "operator": "Like"}]
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": expressions}
    allowed = {"from": "Selector", "selector": selector}
    objects = Objects()
    found = objects.clusters.put(a_cluster_body(topics={"allowedNamespaces": allowed}))
    assert found is not None
    assert objects.clusters.missing(found.key) == {"topics"}
    assert readable_part(a_topic_body(clusterRef={}), Topic) is None


async def test_unreadable_cluster_says_so_unchanged():
    scene = Scene(an_image(), config=NESTED)
    scene.kube.calls.clear()
    await scene.run(cluster.reconcile)
    await scene.run(restarts.reconcile)
    stalled = scene.term.shown.notes["Stalled"]
    assert (stalled.status, stalled.reason) == ("True", "InvalidSpec")
    assert "$.spec.config" in stalled.message
    assert (scene.kube.calls, scene.controller.asked) == ([], [])
    scene.declare()
    await scene.run(cluster.reconcile)
    assert "Stalled" not in scene.term.shown.notes


async def test_previously_read_cluster_is_maintained():
    scene = Scene(an_image())
    await scene.run(cluster.reconcile)
    scene.kube.drop(SERVICES, "kafka", "main-bootstrap")
    scene.declare(config=NESTED)
    await scene.run(cluster.reconcile)
    assert "main-bootstrap" in scene.made("services")
    assert scene.term.shown.notes["Stalled"].reason == "InvalidSpec"


async def test_unreadable_new_topic_is_not_declared():
    scene = Scene(an_image())
    scene.objects.topics.put(a_topic_body(config={"retention": {"ms": 1}}))
    await scene.run(topic.reconcile, KEY)
    shown = topics_of(scene.term).refusals[KEY]
    assert (shown.status, shown.reason) == ("False", "InvalidSpec")
    assert topics_of(scene.term).observed[KEY] == 3
    assert scene.controller.asked == []


async def test_topics_continue_under_unreadable_cluster_config():
    scene = Scene(an_image(), config=NESTED)
    scene.objects.topics.put(a_topic_body())
    scene.controller.reply = lambda _: TopicsAnswer(
        topics=(TopicAnswer(name="orders", topic_id=None),)
    )
    await scene.run(topic.reconcile, KEY)
    assert [type(one) for one in scene.controller.asked] == [DeclareTopic]


async def test_topics_are_left_under_unreadable_topic_fields():
    image = with_topic(an_image(), ((0, 1, 2),))
    scene = Scene(image, topics={"deletion": {"graceSeconds": 0.5}})
    await scene.run(deletion_proof.reconcile)
    scene.objects.topics.put(a_topic_body("new"))
    await scene.run(topic.reconcile, KEY)
    assert scene.controller.asked == []
    assert topics_of(scene.term).refusals[KEY].reason == "InvalidSpec"


def test_unreadable_object_is_not_ready():
    scene = Scene(an_image())
    scene.objects.topics.put(a_topic_body())
    edited = a_topic_body(config={"retention": {"ms": 1}})
    edited["metadata"]["generation"] = 4
    scene.objects.topics.put(edited)
    serving = TopicStatus(conditions=(condition("Ready", True, "Serving", "x"),))
    draft = StatusDraft(uid="u1", status=serving, generation=3, shown=(), version="1")
    shown = unread_as_such(scene.term, Target(TOPICS, *KEY), draft)
    assert shown is not None
    (ready,) = shown.status.conditions
    assert (shown.generation, ready.status, ready.reason) == (4, "False", "InvalidSpec")
    other = StatusDraft(uid=CLUSTER_UID, status=serving, generation=3, shown=(), version="1")
    assert unread_as_such(scene.term, Target(TOPICS, *KEY), other) is other
