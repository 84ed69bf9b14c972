"""A topic that a live object declares is kept: objects are renamed, in either order."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import Topic, TopicObject
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.labels import ADOPT
from plimsoll_operator.kube.resources import CRDS, NAMESPACES, TOPICS
from plimsoll_operator.reconcile.topic import deletion_proof
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.record_events import occurrences

GRACE_MS = 40_000
OLD, NEW = ("kafka", "orders"), ("kafka", "new-name")


class Renaming(Scene):
    """A LogCluster with a topic `orders` that the object `orders` declares; reads are fresh, and
    the objects are seen as they are."""

    def __init__(self, grace_s: int = GRACE_MS // 1000, **topics: Any) -> None:
        self.decided = Deciding(with_topic(an_image(), ((0, 1, 2),)))
        rules = {"deletion": {"graceSeconds": grace_s}, **topics}
        super().__init__(self.decided.image, self.decided, topics=rules)
        self.begun = self.decided.image
        for namespace in ("kafka", "other"):
            self.kube.put(
                NAMESPACES, {"metadata": {"name": namespace}, "status": {"phase": "Active"}}
            )
        self.kube.set_metadata(CRDS, None, deletion_proof.CRD_NAME, uid="crd-1")
        self.kube.said_ms = self.kube.server_ms
        self.apply(OLD, uid=self.topic.object.uid if self.topic.object else "")

    @property
    def topic(self) -> Topic:
        (found,) = self.decided.image.topics.values()
        return found

    def apply(self, key: tuple[str, str], uid: str, **annotations: str) -> None:
        body = {
            "metadata": {
                "namespace": key[0],
                "name": key[1],
                "uid": uid,
                "annotations": annotations,
            },
            "spec": {
                "clusterRef": {"name": "main", "namespace": "kafka"},
                "topicName": "orders",
                "partitions": 1,
                "replicationFactor": 3,
                "minInSyncReplicas": 2,
            },
        }
        self.objects.topics.put(self.kube.put(TOPICS, body))

    def delete(self, key: tuple[str, str]) -> None:
        self.kube.drop(TOPICS, *key)
        self.objects.topics.drop(key)

    async def look(self, key: tuple[str, str]) -> str:
        """The reason of a refusal, empty without one."""
        try:
            await self.run(topic.reconcile, key)
        except Retry:
            return topics_of(self.term).refusals[key].reason
        return ""

    async def pass_on(self, ms: int) -> None:
        self.kube.server_ms += ms
        self.kube.said_ms = self.kube.server_ms
        await self.run(deletion_proof.reconcile)

    def told(self) -> list[str]:
        """The reasons of Events, of all that was committed."""
        found = occurrences(self.begun, self.decided.image, self.decided.records)
        return [one.reason for one in found]


@pytest.mark.parametrize("grace_s", [0, 40])
async def test_object_applied_before_rename_takes_topic_over(grace_s: int):
    scene = Renaming(grace_s)
    before = scene.topic
    scene.apply(NEW, "new")
    assert await scene.look(NEW) == "TopicNameTaken"
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    assert await scene.look(NEW) == ""
    await scene.pass_on(10 * GRACE_MS)
    assert scene.topic.id == before.id
    assert scene.topic.object == TopicObject(namespace="kafka", name="new-name", uid="new")
    assert scene.topic.pending_deletion is None
    assert scene.told() == ["TopicHandedOver"]


async def test_object_applied_after_rename_takes_topic_over():
    scene = Renaming()
    before = scene.topic
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    assert scene.topic.pending_deletion is not None
    scene.apply(NEW, "new")
    assert await scene.look(NEW) == ""
    await scene.pass_on(10 * GRACE_MS)
    assert (scene.topic.id, scene.topic.pending_deletion) == (before.id, None)
    assert scene.told() == ["TopicPendingDeletion", "TopicHandedOver"]


async def test_unseen_object_keeps_its_topic():
    """The list is made after the absence was proven, and says so."""
    scene = Renaming()
    before = scene.topic
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    scene.apply(NEW, "new")
    scene.objects.topics.drop(NEW)
    await scene.pass_on(10 * GRACE_MS)
    assert scene.topic.id == before.id
    assert scene.topic.object is not None
    assert scene.topic.object.uid == "new"


async def test_many_renamed_objects_are_no_mass_deletion():
    scene = Renaming(deletion={"graceSeconds": 40, "maxPerHour": 0})
    scene.apply(NEW, "new")
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    assert "Stalled" not in scene.term.shown.notes
    assert scene.topic.object is not None
    assert scene.topic.object.uid == "new"


async def test_object_that_is_going_takes_nothing_over():
    scene = Renaming(0)
    scene.apply(NEW, "new")
    scene.kube.set_metadata(TOPICS, *NEW, deletionTimestamp="2026-02-02T00:00:00Z")
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    assert not scene.decided.image.topics


async def test_topic_of_another_namespace_waits_for_the_annotation():
    scene = Renaming(allowedNamespaces={"from": "All"})
    before, moved = scene.topic, ("other", "orders")
    scene.apply(moved, "moved")
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    assert await scene.look(moved) == "TopicNameTaken"
    assert "kubectl plimsoll adopt" in topics_of(scene.term).refusals[moved].message
    await scene.pass_on(10 * GRACE_MS)
    assert scene.topic.id == before.id, "an object declares it: nothing is removed"
    scene.apply(moved, "moved", **{ADOPT: kafka_id(before.id)})
    assert await scene.look(moved) == ""
    assert scene.topic.id == before.id
    assert scene.topic.object == TopicObject(namespace="other", name="orders", uid="moved")


async def test_forbidden_object_delays_nothing():
    scene = Renaming()
    scene.apply(("other", "orders"), "not allowed")
    scene.delete(OLD)
    await scene.run(deletion_proof.reconcile)
    await scene.pass_on(10 * GRACE_MS)
    assert not scene.decided.image.topics
