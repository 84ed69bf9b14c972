"""A LogCluster's children: members first, brokers with data stay, foreign objects are left."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import CLUSTER_UID, an_image, replay
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.cluster_configs import broker_configs
from plimsoll_core.cluster.records import BrokerFenced, MembersChanged
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Done, Request, SetMembers
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.crds import LOG_CLUSTER
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    LOG_CLUSTERS,
    SERVICES,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
)
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.cluster.logcluster_status import cluster_memory
from plimsoll_operator.reconcile.registry import draft_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.status_writer import Target


def committing(scene: Scene) -> None:
    """The controller commits members as it is asked to."""

    def reply(request: Request) -> Answer:
        if isinstance(request, SetMembers):
            record = MembersChanged(cause="declared", broker_ids=request.broker_ids)
            scene.controller.image = replay(scene.controller.image, record)
        return Done()

    scene.controller.reply = reply


def a_scene(brokers: tuple[int, ...] = (), **spec: Any) -> Scene:
    scene = Scene(an_image(brokers), **spec)
    committing(scene)
    return scene


BROKERS_3 = ["main-broker-0", "main-broker-1", "main-broker-2"]


async def test_new_cluster_gets_members_and_then_their_children():
    scene = a_scene()
    await scene.run(cluster.reconcile)
    assert scene.controller.asked[0] == SetMembers(broker_ids=(0, 1, 2))
    assert scene.made("statefulsets") == BROKERS_3
    assert scene.made("services") == ["main-bootstrap", "main-brokers"]


async def test_reconciling_again_changes_no_stateful_set():
    scene = a_scene()
    await scene.run(cluster.reconcile)
    scene.kube.calls.clear()
    await scene.run(cluster.reconcile)
    changes = [
        c for c in scene.kube.calls if c[1] == "statefulsets" and c[0] not in ("get", "list")
    ]
    assert changes == []
    assert sum(isinstance(asked, SetMembers) for asked in scene.controller.asked) == 1


async def test_untouched_child_is_read_and_not_reapplied():
    scene = a_scene((0,))
    committing(scene)
    for _ in range(2):
        await scene.run(cluster.reconcile)
    scene.kube.calls.clear()
    await scene.run(cluster.reconcile)
    assert {verb for verb, _, _ in scene.kube.calls} <= {"get", "list"}
    service = scene.kube.find(SERVICES, "kafka", "main-bootstrap")
    scene.kube.put(SERVICES, {**service, "spec": {**service["spec"], "type": "NodePort"}})
    scene.kube.calls.clear()
    await scene.run(cluster.reconcile)
    written = [call for call in scene.kube.calls if call[0] not in ("get", "list")]
    assert written == [("apply", "services", "main-bootstrap")]


async def test_child_of_an_earlier_object_is_waited_out():
    scene = a_scene()
    meta = {
        "name": "main-broker-1",
        "namespace": "kafka",
        "labels": {},
        "ownerReferences": [{"uid": "an-earlier-uid"}],
    }
    earlier = scene.kube.put(STATEFUL_SETS, {"metadata": meta, "spec": {}})
    with pytest.raises(Retry, match="waits until Kubernetes has deleted StatefulSet"):
        await scene.run(cluster.reconcile)
    assert scene.kube.find(STATEFUL_SETS, "kafka", "main-broker-1") == earlier


async def test_child_that_is_going_is_waited_out():
    scene = a_scene()
    await scene.run(cluster.reconcile)
    (name,) = scene.made("configmaps")
    found = scene.kube.find(CONFIG_MAPS, "kafka", name)
    assert found["metadata"]["ownerReferences"][0]["uid"] == CLUSTER_UID
    scene.kube.set_metadata(CONFIG_MAPS, "kafka", name, deletionTimestamp="2026-11-22T00:00:00Z")
    with pytest.raises(Retry, match="waits until Kubernetes has deleted ConfigMap"):
        await scene.run(cluster.reconcile)


async def test_child_refused_by_api_server_is_in_status():
    scene = a_scene()
    scene.kube.fail = [None, None, None, Rejected(403, "exceeded quota")]
    with pytest.raises(Retry):
        await scene.run(cluster.reconcile)
    note = scene.term.shown.notes["Stalled"]
    assert note.reason == "ChildRefused"
    assert "exceeded quota" in note.message
    await scene.run(cluster.reconcile)
    assert "Stalled" not in scene.term.shown.notes


async def test_unknown_config_changes_nothing_that_runs():
    scene = a_scene()
    await scene.run(cluster.reconcile)
    before = scene.made("configmaps")
    scene.declare(config={"log.retention.houres": 1})
    await scene.run(cluster.reconcile)
    assert scene.made("configmaps") == before
    ready = scene.term.shown.notes["Ready"]
    assert (ready.status, ready.reason) == ("False", "InvalidConfig")
    assert "log.retention.houres" in ready.message
    scene.declare()
    await scene.run(cluster.reconcile)
    assert "Ready" not in scene.term.shown.notes


def test_longer_units_are_turned_into_the_finest_one():
    assert broker_configs({"log.retention.hours": "168"}) == {"log.retention.ms": "604800000"}
    assert broker_configs({"log.retention.hours": "-1"}) == {"log.retention.ms": "-1"}
    both = {"log.retention.hours": "1", "log.retention.minutes": "2"}
    assert broker_configs(both) == {"log.retention.ms": "120000"}


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({"log.retention.hours": "soon"}, "must be a whole number"),
        ({"log.retention.bytes": "x"}, "must be a whole number from -1"),
        ({"unknown": "1"}, "There is no broker config unknown"),
        ({"retention.ms": "1"}, "There is no broker config retention.ms"),
    ],
)
def test_wrong_broker_config_is_refused_with_a_sentence(configs, sentence):
    refusal = broker_configs(configs)
    assert isinstance(refusal, Refusal)
    assert sentence in refusal.message


def hold_volume(scene: Scene, size: str) -> None:
    found = labels.labels("main", scene.term.cluster_id, "broker") | {labels.BROKER_ID: "0"}
    meta = {"name": "data-main-broker-0-0", "namespace": "kafka", "labels": found}
    spec = {"resources": {"requests": {"storage": size}}}
    scene.kube.put(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})


def volume_size(scene: Scene) -> str:
    found = scene.kube.find(VOLUME_CLAIMS, "kafka", "data-main-broker-0-0")
    return str(found["spec"]["resources"]["requests"]["storage"])


@pytest.mark.parametrize(
    ("held", "wanted", "after"),
    [("1Gi", "2Gi", "2Gi"), ("2Gi", "2048Mi", "2Gi"), ("2Gi", "1Gi", "2Gi"), ("1G", "1Gi", "1Gi")],
)
async def test_volumes_grow_and_never_shrink(held: str, wanted: str, after: str):
    scene = a_scene(storage={"size": wanted})
    hold_volume(scene, held)
    await scene.run(cluster.reconcile)
    assert volume_size(scene) == after


FORBIDDEN = Rejected(403, "PATCH /api/v1/… answered: the class does not allow expansion")


async def test_volume_that_cannot_grow_stalls_with_remedy():
    scene = a_scene(storage={"size": "2Gi"})
    await scene.run(cluster.reconcile)
    hold_volume(scene, "1Gi")
    scene.kube.refuse["merge"] = FORBIDDEN
    await scene.run(cluster.reconcile)
    note = scene.term.shown.notes["Stalled"]
    assert (note.status, note.reason) == ("True", "VolumeCannotGrow")
    assert "asks for 2Gi" in note.message
    assert (
        "stays at 1Gi): the class does not allow expansion. Set storage.size back" in note.message
    )
    assert "PATCH" not in note.message
    assert "Blocked" not in scene.term.shown.notes
    (row,) = scene.term.shown.blocked["GrowVolume"]
    assert (row.broker, row.reason) == (0, "VolumeCannotGrow")
    assert cluster_memory(scene.term).volume_size == "1Gi"


async def test_size_reverted_to_volumes_ends_the_stall():
    scene = a_scene(storage={"size": "2Gi"})
    await scene.run(cluster.reconcile)
    hold_volume(scene, "1Gi")
    scene.kube.refuse["merge"] = FORBIDDEN
    await scene.run(cluster.reconcile)
    scene.declare(storage={"size": "1Gi"})
    await scene.run(cluster.reconcile)
    assert "Stalled" not in scene.term.shown.notes
    assert scene.term.shown.blocked["GrowVolume"] == ()


async def test_size_may_return_to_smallest_volumes():
    (rule,) = [rule for rule, text in LOG_CLUSTER.object_rules if "never shrinks" in text]
    assert "oldSelf.status.volumeSize" in rule
    scene = a_scene(storage={"size": "2Gi"})
    await scene.run(cluster.reconcile)
    hold_volume(scene, "1Gi")
    scene.kube.refuse["merge"] = FORBIDDEN
    await scene.run(cluster.reconcile)
    shown = draft_of(scene.term, Target(LOG_CLUSTERS, "kafka", "main"))
    assert shown is not None
    assert isinstance(shown.status, LogClusterStatus)
    assert shown.status.volume_size == "1Gi"
    conditions = {c.type: (c.status, c.reason) for c in shown.status.conditions}
    assert conditions["Stalled"] == ("True", "VolumeCannotGrow")
    assert conditions["Blocked"] == ("False", "NothingWaits")
    assert [row.action for row in shown.status.blocked] == ["GrowVolume"]


async def test_groups_of_absent_broker_count_at_successor():
    scene = a_scene((0, 1, 2))
    heard = scene.controller.soft.contacts
    for broker_id, broker in scene.term.image.brokers.items():
        epoch = broker.broker_epoch
        heard[broker_id] = Contact(broker_epoch=epoch, last_ms=0, groups=broker_id + 1)
    everybody = sum(contact.groups or 0 for contact in heard.values())
    assert shown_groups(scene) == everybody
    gone = scene.term.image.brokers[BrokerId(0)]
    fenced = BrokerFenced(cause="silent", broker_id=gone.id, broker_epoch=gone.broker_epoch)
    scene.controller.image = replay(scene.controller.image, fenced)
    assert shown_groups(scene) == everybody - 1


def shown_groups(scene: Scene) -> int:
    shown = draft_of(scene.term, Target(LOG_CLUSTERS, "kafka", "main"))
    assert shown is not None
    assert isinstance(shown.status, LogClusterStatus)
    assert shown.status.groups is not None
    return shown.status.groups.total


async def test_deleted_volume_claim_is_reported_before_pod_ends():
    scene = a_scene()
    await scene.run(cluster.reconcile)
    hold_volume(scene, "1Gi")
    name = "data-main-broker-0-0"
    deleted = {"deletionTimestamp": "2026-11-22T00:00:00Z"}
    scene.kube.set_metadata(VOLUME_CLAIMS, "kafka", name, **deleted)
    await scene.run(cluster.reconcile)
    note = scene.term.shown.notes["Stalled"]
    assert note.reason == "VolumeDeleted"
    assert "data-main-broker-0-0" in note.message
    assert "delete the pods (main-broker-0-0)" in note.message
    scene.kube.drop(VOLUME_CLAIMS, "kafka", "data-main-broker-0-0")
    await scene.run(cluster.reconcile)
    assert "Stalled" not in scene.term.shown.notes
