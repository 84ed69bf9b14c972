"""A missing Topic object deletes nothing until its absence is proven: one test per way to err."""

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator import terms
from tests.plimsoll_operator.builders import OBJECT, a_cluster_body, an_image, replay, with_topic
from tests.plimsoll_operator.terms import Deciding

from plimsoll_core.cluster.model import HistoryRestored, PendingDeletion, TopicObject
from plimsoll_core.cluster.records import TopicCreated, TopicOrphaned
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.requests import Answer, Done, Refused, Request, TopicObjectGone
from plimsoll_operator.api import labels
from plimsoll_operator.api.acknowledgement import acknowledged_until_ms, users_way_out
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.labels import ACKNOWLEDGE, ACKNOWLEDGE_USERS, TOPICS_CRD
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import CRDS, LEASES, LOG_CLUSTERS, NAMESPACES, TOPICS
from plimsoll_operator.reconcile.topic import deletion_proof
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.cluster_counts import cluster_status
from plimsoll_operator.status.events import Occurrence

DAY_MS = 86_400_000
APPLIED = {"creationTimestamp": "2026-02-01T00:00:00Z"}
NOW = "2026-02-02T00:00:00Z"


class Scene(terms.Scene):
    """A cluster, its namespace and CRD, and a committed topic whose object is nowhere."""

    def __init__(self, answer: Answer | None = None, **cluster_spec: Any) -> None:
        super().__init__(with_topic(an_image(), ((0, 1, 2),)), **cluster_spec)
        self.controller.reply = lambda _: answer or Done()
        self.namespace("Active")
        self.kube.set_metadata(CRDS, None, deletion_proof.CRD_NAME, uid="crd-1", **APPLIED)

    def namespace(self, phase: str) -> None:
        meta = {"name": "kafka"}
        self.kube.put(NAMESPACES, {"metadata": meta, "status": {"phase": phase}})

    def noted_crd(self, uid: str) -> None:
        """What an operator noted at the Lease."""
        noted = {TOPICS_CRD: uid}
        self.kube.set_metadata(LEASES, "kafka", "main-1", annotations=noted)

    def topic_object(self, uid: str, **spec: Any) -> None:
        meta = {"name": OBJECT.name, "namespace": OBJECT.namespace, "uid": uid}
        body = {"metadata": meta, "spec": {"clusterRef": {"name": "main"}, **spec}}
        self.kube.put(TOPICS, body)

    async def look(self) -> list[Request]:
        await self.run(deletion_proof.reconcile)
        return self.controller.asked


async def test_proven_absence_uses_the_api_servers_time():
    scene = Scene(topics={"deletion": {"graceSeconds": 60, "maxPerHour": 7}})
    (asked,) = await scene.look()
    assert asked == TopicObjectGone(
        object=OBJECT,
        server_now_ms=scene.kube.server_ms,
        grace_ms=60_000,
        removals_per_hour_max=7,
    )


async def test_topic_within_grace_costs_no_read():
    scene = Scene()
    now_ms = scene.kube.server_ms
    pending = PendingDeletion(since_ms=now_ms, until_ms=now_ms + 60_000)
    (topic,) = scene.controller.image.topics.values()
    orphaned = TopicOrphaned(cause="its object is gone", topic_id=topic.id, pending=pending)
    scene.controller.image = replay(scene.controller.image, orphaned)
    scene.kube.said_ms = now_ms
    assert await scene.look() == []
    assert not [call for call in scene.kube.calls if call[:2] == ("get", "topics")]
    scene.kube.server_ms = scene.kube.said_ms = pending.until_ms
    (asked,) = await scene.look()
    assert asked.server_now_ms == pending.until_ms


async def test_grace_of_nothing_is_not_the_default_grace():
    scene = Scene(topics={"deletion": {"graceSeconds": 0}})
    (asked,) = await scene.look()
    assert isinstance(asked, TopicObjectGone)
    assert asked.grace_ms == 0


async def test_existing_unseen_object_is_not_absent():
    scene = Scene()
    scene.topic_object(OBJECT.uid)
    assert await scene.look() == []


async def test_object_that_was_made_again_is_not_absent():
    scene = Scene()
    scene.topic_object("another-uid")
    assert await scene.look() == []


@pytest.mark.parametrize(
    "spec", [{"topicName": "other"}, {"clusterRef": {"name": "other"}}], ids=["name", "cluster"]
)
@pytest.mark.parametrize("seen", [True, False])
async def test_object_recreated_for_other_topic_is_absent(spec: dict[str, Any], seen: bool):
    """Both fields are immutable, so who changes one makes the object again: the topic that it
    declared before stayed for ever."""
    scene = Scene()
    scene.topic_object("another-uid", **spec)
    if seen:
        scene.objects.topics.put(scene.kube.find(TOPICS, OBJECT.namespace, OBJECT.name))
    (asked,) = await scene.look()
    assert isinstance(asked, TopicObjectGone)
    assert asked.object == OBJECT


async def test_object_of_same_uid_is_present():
    scene = Scene()
    scene.topic_object(OBJECT.uid, topicName="other")
    assert await scene.look() == []


async def test_namespace_that_is_going_proves_nothing():
    scene = Scene()
    scene.namespace("Terminating")
    assert await scene.look() == []


async def test_namespace_that_is_gone_proves_nothing():
    scene = Scene()
    scene.kube.drop(NAMESPACES, None, "kafka")
    assert await scene.look() == []


async def test_cluster_that_is_going_proves_nothing():
    scene = Scene()
    scene.kube.set_metadata(LOG_CLUSTERS, "kafka", "main", deletionTimestamp=NOW)
    assert await scene.look() == []


async def test_cluster_that_was_made_again_proves_nothing():
    scene = Scene()
    scene.kube.set_metadata(LOG_CLUSTERS, "kafka", "main", uid="another")
    assert await scene.look() == []


async def test_recreated_crd_deletes_no_topic():
    scene = Scene()
    scene.noted_crd("crd-0")
    assert await scene.look() == []


async def test_topic_seen_under_new_crd_can_be_deleted():
    scene = Scene()
    scene.noted_crd("crd-0")
    scene.term.seen_uids[OBJECT.uid] = "2026-02-02T00:00:00Z"
    assert len(await scene.look()) == 1


async def test_crd_is_noted_before_anything_is_absent():
    """Else the first topics that ever go missing could be those that went with their CRD."""
    scene = Scene()
    scene.topic_object(OBJECT.uid)
    scene.objects.topics.put(scene.kube.find(TOPICS, "kafka", OBJECT.name))
    await scene.look()
    noted = scene.kube.find(LEASES, "kafka", "main-1")["metadata"]["annotations"]
    assert noted == {TOPICS_CRD: "crd-1"}


async def test_topic_seen_under_old_crd_is_kept():
    """The operator ran all the time: it saw the objects that went with their CRD."""
    scene = Scene()
    scene.noted_crd("crd-0")
    scene.term.seen_uids[OBJECT.uid] = "2026-01-31T23:59:59Z"
    assert await scene.look() == []


async def test_crd_that_is_going_proves_nothing():
    scene = Scene()
    scene.noted_crd("crd-1")
    scene.term.seen_uids[OBJECT.uid] = "2026-02-02T00:00:00Z"
    scene.kube.set_metadata(CRDS, None, deletion_proof.CRD_NAME, deletionTimestamp=NOW)
    assert await scene.look() == []


async def test_crd_is_noted_for_the_next_operator():
    scene = Scene()
    await scene.look()
    noted = scene.kube.find(LEASES, "kafka", "main-1")["metadata"]["annotations"]
    assert noted == {TOPICS_CRD: "crd-1"}


async def test_lease_with_a_note_outlives_its_cluster():
    scene = Scene()
    owner = labels.owner("LogCluster", "main", "uid")
    scene.kube.set_metadata(LEASES, "kafka", "main-1", ownerReferences=owner)
    await scene.look()
    assert not scene.kube.find(LEASES, "kafka", "main-1")["metadata"].get("ownerReferences")


async def test_api_server_that_does_not_answer_proves_nothing():
    scene = Scene()
    scene.kube.fail = [None, None, None, None, None, Unavailable(0, "no answer")]
    with pytest.raises(Retry, match="cannot confirm that missing Topic objects are gone"):
        await scene.look()
    assert scene.controller.asked == []


async def test_mass_deletion_is_in_status_with_remedy():
    refusal = Refused(reason="MassDeletion", code=42, message="21 Topic objects disappeared.")
    scene = Scene(answer=refusal)
    await scene.look()
    note = scene.term.shown.notes["Stalled"]
    assert (note.status, note.reason) == ("True", "MassDeletion")
    assert "plimsoll.dev/acknowledge-deletion=" in note.message
    scene.topic_object(OBJECT.uid)
    scene.objects.topics.put(scene.kube.find(TOPICS, "kafka", OBJECT.name))
    await scene.look()
    assert "Stalled" not in scene.term.shown.notes


# --- many at once ---------------------------------------------------------------------------------

SINCE_MS = 1_795_000_000_000


class Vanished(Scene):
    """So many topics whose objects vanish at once, and a controller that decides."""

    def __init__(self, count: int, **deletion: Any) -> None:
        super().__init__(topics={"deletion": deletion})
        image = an_image()
        for number in range(count):
            name = f"t{number:02d}"
            created = TopicCreated(
                cause="created",
                topic_id=UUID(int=number + 1),
                name=name,
                replication_factor=1,
                min_isr=1,
                object=TopicObject(namespace="kafka", name=name, uid=name),
            )
            image = replay(image, created)
        self.deciding = Deciding(image)
        self.events: list[Occurrence] = []
        self.kube.server_ms = SINCE_MS
        self.term.controller = self.deciding  # type: ignore[assignment]
        self.effects.tell = self.events.append

    def annotate(self, value: str) -> None:
        body = a_cluster_body(topics={"deletion": {"maxPerHour": 20}})
        body["metadata"]["annotations"] = {ACKNOWLEDGE: value}
        self.kube.put(LOG_CLUSTERS, body)
        self.objects.clusters.put(body)

    @property
    def left(self) -> int:
        return len(self.deciding.image.topics)


async def test_mass_deletion_event_holds_everything_needed():
    scene = Vanished(60)
    await scene.run(deletion_proof.reconcile)
    note = scene.term.shown.notes["Stalled"]
    assert note.reason == "MassDeletion"
    assert "60 Topic objects disappeared within an hour (t00, t01, t02, t03, t04 and 55 more)" in (
        note.message
    )
    assert f"{ACKNOWLEDGE}={timestamp(SINCE_MS)}." in note.message
    assert "maxPerHour of kafka/main to 60 or more" in note.message
    assert [(e.reason, e.warning) for e in scene.events] == [("MassDeletion", True)]
    await scene.run(deletion_proof.reconcile)
    assert len(scene.events) == 1


async def test_topics_missing_since_restore_are_held_at_once():
    """etcd was restored to before they were applied; the metadata came from brokers' copies."""
    scene = Vanished(2, graceSeconds=60)
    row = HistoryRestored(at_ms=SINCE_MS + 5, end_offset=MetadataOffset(1))
    scene.deciding.image = replace(scene.deciding.image, restored=row)
    for server_ms in (SINCE_MS, SINCE_MS + 60_000):
        scene.kube.server_ms = server_ms
        await scene.run(deletion_proof.reconcile)
        note = scene.term.shown.notes["Stalled"]
        assert note.reason == "MassDeletion"
        assert "these Topic objects are missing since: t00, t01." in note.message
        assert f"{ACKNOWLEDGE}={timestamp(SINCE_MS)}." in note.message
    assert [(e.reason, e.warning) for e in scene.events] == [("MassDeletion", True)]
    assert scene.left == 2
    scene.annotate(timestamp(SINCE_MS))
    await scene.run(deletion_proof.reconcile)
    assert scene.left == 0
    await scene.run(deletion_proof.reconcile)
    assert "Stalled" not in scene.term.shown.notes


async def test_few_that_vanish_stall_nothing():
    scene = Vanished(20)
    await scene.run(deletion_proof.reconcile)
    assert "Stalled" not in scene.term.shown.notes


async def test_acknowledgement_releases_only_earlier_absences():
    scene = Vanished(60)
    await scene.run(deletion_proof.reconcile)
    scene.annotate(timestamp(SINCE_MS))
    await scene.run(deletion_proof.reconcile)
    assert "Stalled" not in scene.term.shown.notes
    scene.kube.server_ms = SINCE_MS + DAY_MS
    await scene.run(deletion_proof.reconcile)
    assert scene.left == 0
    later = Vanished(60)
    later.annotate(timestamp(SINCE_MS - 2_000))
    await later.run(deletion_proof.reconcile)
    assert later.term.shown.notes["Stalled"].reason == "MassDeletion"
    later.kube.server_ms = SINCE_MS + DAY_MS
    await later.run(deletion_proof.reconcile)
    assert later.left == 60


async def test_acknowledgement_without_a_grace_is_within_the_hour():
    scene = Vanished(30, graceSeconds=0)
    await scene.run(deletion_proof.reconcile)
    assert scene.left == 10
    assert f"{ACKNOWLEDGE}={timestamp(SINCE_MS)}" in scene.term.shown.notes["Stalled"].message
    body = a_cluster_body(topics={"deletion": {"graceSeconds": 0}})
    body["metadata"]["annotations"] = {ACKNOWLEDGE: timestamp(SINCE_MS)}
    scene.objects.clusters.put(body)
    await scene.run(deletion_proof.reconcile)
    assert scene.left == 0


async def test_acknowledge_annotation_without_timestamp_leaves_mass_deletion_stalled():
    scene = Vanished(60)
    scene.annotate("yes")
    await scene.run(deletion_proof.reconcile)
    assert scene.term.shown.notes["Stalled"].reason == "MassDeletion"


def test_pending_deletions_are_all_counted():
    scene = Vanished(60)
    image = scene.deciding.image
    for topic_id in image.topics:
        pending = PendingDeletion(since_ms=SINCE_MS, until_ms=SINCE_MS + DAY_MS)
        image = replay(image, TopicOrphaned(cause="x", topic_id=topic_id, pending=pending))
    found = scene.objects.clusters.get(("kafka", "main"))
    assert found is not None
    shown = cluster_status(image, found).topics
    assert shown is not None
    assert (shown.pending_deletions, len(shown.pending_deletion)) == (60, 20)


@pytest.mark.parametrize("stamp", ["9999-12-31T23:59:59-08:00", "0001-01-01T00:00:00+08:00"])
def test_impossible_acknowledged_time_is_ignored(stamp: str):
    body = a_cluster_body()
    body["metadata"]["annotations"] = {ACKNOWLEDGE_USERS: f"kafka@{stamp}", ACKNOWLEDGE: stamp}
    cluster = from_object(body, LogCluster)
    assert acknowledged_until_ms(cluster) == -1
    assert "other@1970-01-01T00:00:07Z." in users_way_out(cluster, "other", 7_000)
