"""What nobody stated is decided when a topic is created: later defaults change nothing of it."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import an_image
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import Topic
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.partitions.unclean_recovery import outlook
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.reconcile.topic.topic_status import Sight, topic_status

KEY = ("kafka", "plain")


class Declared(Scene):
    """A LogCluster of three brokers with a Topic `plain`."""

    def __init__(self, **cluster_spec: Any) -> None:
        self.decided = Deciding(an_image())
        super().__init__(self.decided.image, self.decided, **cluster_spec)

    async def look(self, **spec: Any) -> Topic:
        """The topic as committed after the object's next reconcile."""
        body = {
            "metadata": {"namespace": KEY[0], "name": KEY[1]},
            "spec": {"clusterRef": {"name": "main"}, **spec},
        }
        self.objects.topics.put(self.kube.put(TOPICS, body))
        await self.run(topic.reconcile, KEY)
        assert KEY not in topics_of(self.term).refusals
        (found,) = self.decided.image.topics.values()
        return found

    def shown(self) -> TopicStatus:
        image = self.decided.image
        turn = DecisionContext(image=image, soft=self.decided.soft, now_ms=0, settings=Settings())
        sight = Sight(outlook=lambda p: outlook(turn, p), since_ms=lambda _: 0)
        (found,) = image.topics.values()
        return topic_status(image, found, sight)


LATER = [
    {"topics": {"defaults": {"partitions": 12}}},
    {"topics": {"defaults": {"partitions": 1}}},
    {"topics": {"defaults": {"replicationFactor": 1, "minInSyncReplicas": 1}}},
    {"topics": {"defaults": {"replicationFactor": 3, "minInSyncReplicas": 3}}},
    {"brokers": {"count": 1}},
    {"brokers": {"count": 2}},
    {"brokers": {"count": 5}},
]


@pytest.mark.parametrize("later", LATER, ids=str)
@pytest.mark.parametrize("count", [2, 3])
async def test_later_default_or_broker_count_changes_no_topic(later: dict[str, Any], count: int):
    scene = Declared(brokers={"count": count})
    created = await scene.look()
    assert created.partitions == 6
    assert created.replication_factor == count
    scene.declare(**later)
    asked = len(scene.decided.records)
    assert await scene.look() == created
    assert len(scene.decided.records) == asked, "nothing is committed"


async def test_default_of_another_release_changes_no_topic(monkeypatch: pytest.MonkeyPatch):
    scene = Declared()
    created = await scene.look()
    where = "plimsoll_operator.reconcile.topic.topic_declaration"
    monkeypatch.setattr(f"{where}.PARTITIONS_DEFAULT", 24)
    monkeypatch.setattr(f"{where}.MIN_ISR_DEFAULT", 1)
    assert await scene.look() == created


async def test_value_that_is_not_stated_any_more_stays():
    scene = Declared()
    stated = {"partitions": 8, "replicationFactor": 2, "minInSyncReplicas": 1}
    created = await scene.look(**stated, placement={"strategy": "Blocked"})
    assert await scene.look() == created
    assert created.strategy == "Blocked"


async def test_recreated_topic_gets_the_defaults_of_then():
    scene = Declared(topics={"defaults": {"partitions": 2}})
    assert (await scene.look()).partitions == 2
    other = Declared(topics={"defaults": {"partitions": 4}})
    assert (await other.look()).partitions == 4


async def test_decided_values_are_shown():
    scene = Declared()
    await scene.look()
    shown = scene.shown()
    assert (shown.partitions, shown.replication_factor) == (6, 3)
    assert (shown.min_in_sync_replicas, shown.strategy) == (2, "RoundRobin")


async def test_unstated_min_isr_falls_with_the_factor():
    scene = Declared()
    await scene.look(replicationFactor=3)
    lower = await scene.look(replicationFactor=1)
    assert (lower.replication_factor, lower.min_isr) == (1, 1)
