"""LogBrokers: made and removed with brokers, and what they show of each."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, replay, with_topic
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokerUnfenced,
    BrokerUnregistered,
    MembersChanged,
    RestartGranted,
)
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerEpoch, BrokerId, MetadataOffset
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_operator.controller.controller_stats import Commit
from plimsoll_operator.kube.resources import LOG_BROKERS
from plimsoll_operator.leadership.broker_watch import brokers_changed
from plimsoll_operator.reconcile import registry
from plimsoll_operator.reconcile.logbroker import reconcile as log_broker
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_of
from plimsoll_operator.status.cluster_conditions import metadata_durable
from plimsoll_operator.status.status_writer import Target

ONE = ("kafka", "main-1")
EPOCH = an_image().brokers[BrokerId(1)].broker_epoch
FENCED = BrokerFenced(cause="fenced on proof: gone", broker_id=BrokerId(1), broker_epoch=EPOCH)
BACK = BrokerUnfenced(cause="caught up", broker_id=BrokerId(1), broker_epoch=EPOCH)
GIB = 2**30


def a_scene(**cluster_spec: Any) -> Scene:
    return Scene(with_topic(an_image(), ((0, 1, 2), (1, 2, 0))), **cluster_spec)


def commit(scene: Scene, *records: Any) -> None:
    scene.controller.image = replay(scene.controller.image, *records)
    brokers_changed(scene.effects, records, scene.term.now_ms())


def hear(scene: Scene, broker: int, **figures: Any) -> None:
    """A heartbeat that came just now."""
    scene.controller.soft.contacts[BrokerId(broker)] = Contact(
        broker_epoch=BrokerEpoch(broker),
        last_ms=scene.controller.now_ms,
        applied_offset=scene.controller.image.next_offset,
        release="0.2",
        figures=BrokerFigures(**figures),
    )


def shown(scene: Scene, key: tuple[str, str] = ONE) -> dict[str, Any]:
    draft = registry.draft_of(scene.term, Target(LOG_BROKERS, *key))
    assert draft is not None
    found: dict[str, Any] = msgspec.to_builtins(draft.status)
    return found


def ready(scene: Scene) -> tuple[str, str]:
    (condition,) = shown(scene)["conditions"]
    return condition["status"], condition["reason"]


async def everything_made(scene: Scene) -> None:
    for work in log_broker.all_work(scene.term):
        await scene.run(registry.reconcile, work)


async def test_every_broker_has_an_owned_object():
    scene = a_scene()
    await everything_made(scene)
    assert scene.made("logbrokers") == ["main-0", "main-1", "main-2"]
    body = scene.kube.objects["logbrokers", "kafka", "main-1"]
    assert body["spec"] == {"clusterRef": {"name": "main"}, "brokerId": 1}
    (owner,) = body["metadata"]["ownerReferences"]
    cluster = scene.term.cluster
    assert cluster is not None
    assert (owner["kind"], owner["uid"]) == ("LogCluster", cluster.metadata.uid)
    assert list(log_broker.all_work(scene.term)) == []


async def test_object_that_somebody_deleted_is_made_again():
    scene = a_scene()
    await everything_made(scene)
    del scene.kube.objects["logbrokers", "kafka", "main-1"]
    scene.objects.log_brokers.drop(ONE)
    await scene.run(registry.reconcile, Work(Task.BROKER, ONE))
    assert scene.made("logbrokers") == ["main-0", "main-1", "main-2"]


async def test_object_is_deleted_with_brokers_unregistration():
    scene = a_scene()
    await everything_made(scene)
    commit(scene, MembersChanged(cause="x", broker_ids=(0, 2)), FENCED)
    await scene.run(registry.reconcile, Work(Task.BROKER, ONE))
    assert "main-1" in scene.made("logbrokers")
    commit(scene, BrokerUnregistered(cause="x", broker_id=1, broker_epoch=EPOCH))
    assert Work(Task.BROKER, ONE) in scene.work
    await scene.run(registry.reconcile, Work(Task.BROKER, ONE))
    assert scene.made("logbrokers") == ["main-0", "main-2"]


async def test_object_of_missing_broker_is_removed():
    scene = a_scene()
    body = {"metadata": {"name": "main-7", "namespace": "kafka", "uid": "u7"}}
    body["spec"] = {"clusterRef": {"name": "main"}, "brokerId": 7}
    scene.kube.put(LOG_BROKERS, body)
    scene.objects.log_brokers.put(body)
    await scene.run(registry.reconcile, Work(Task.BROKER, ("kafka", "main-7")))
    assert scene.made("logbrokers") == []


async def test_serving_broker_shows_rack_load_and_disk():
    scene = a_scene()
    await everything_made(scene)
    hear(scene, 1, disk_free_bytes=4 * GIB, disk_bytes=10 * GIB, completed_offset=99)
    rolls_of(scene.term).nodes[BrokerId(1)] = "n1"
    found = shown(scene)
    assert ready(scene) == ("True", "Serving")
    del found["conditions"]
    assert found == {
        "state": "Active",
        "node": "n1",
        "version": "0.2",
        "disk": {"used": "6Gi", "free": "4Gi"},
        "leaders": 1,
        "replicas": 2,
        "inSync": 2,
        "lowestISRMargin": 1,
        "backlog": {"records": 0, "seconds": 0},
    }


async def test_backlog_is_committed_minus_applied():
    scene = a_scene()
    await everything_made(scene)
    controller, end = scene.controller, scene.controller.image.next_offset
    controller.stats.committed(2, 5, Commit(end - 1, controller.now_ms - 9_000))
    controller.stats.committed(1, 5, Commit(end, controller.now_ms - 7_000))
    hear(scene, 1, completed_offset=MetadataOffset(end - 1))
    assert shown(scene)["backlog"] == {"records": 1, "seconds": 7}


async def test_broker_loading_logs_has_no_backlog():
    scene = a_scene()
    await everything_made(scene)
    controller, end = scene.controller, scene.controller.image.next_offset
    controller.stats.committed(1, 5, Commit(end, controller.now_ms - 7_000))
    hear(scene, 1)
    assert shown(scene)["backlog"] == {"records": 0, "seconds": 0}


async def test_fenced_broker_shows_since_and_reason():
    scene = a_scene()
    await everything_made(scene)
    scene.marked.clear()
    commit(scene, FENCED)
    assert scene.marked == [Target(LOG_BROKERS, *ONE)]
    found = shown(scene)
    assert found["state"] == "Fenced"
    assert found["fenced"]["why"] == "fenced on proof: gone"
    assert ready(scene) == ("False", "Fenced")
    assert found["conditions"][0]["message"] == ("Broker 1 is not ready: fenced on proof: gone.")
    commit(scene, BACK)
    assert "fenced" not in shown(scene)
    assert ready(scene) == ("True", "Serving")


async def test_held_back_broker_shows_until_when():
    scene = a_scene()
    await everything_made(scene)
    commit(scene, FENCED)
    scene.controller.soft.flaps[BrokerId(1)] = [scene.controller.now_ms - ms for ms in (9_000, 0)]
    scene.controller.soft.contacts.clear()
    assert ready(scene) == ("False", "Fenced"), "its process is not there yet"
    hear(scene, 1)
    assert ready(scene) == ("False", "HeldBack")
    assert shown(scene)["conditions"][0]["message"] == (
        "Broker 1 was fenced 2 times within ten minutes, so it stays fenced until 4 s after the "
        "last time, or until a partition needs it as leader or to reach min ISR. If this repeats, "
        "see the broker's log and its network."
    )
    commit(scene, BACK)
    assert ready(scene) == ("True", "Serving")
    assert shown(scene)["conditions"][0]["message"] == (
        "Broker 1 is ready. Broker 1 was fenced 2 times within ten minutes, so for 4 s after the "
        "last time it joins only ISRs that would otherwise stay below min ISR. If this repeats, "
        "see the broker's log and its network."
    )


async def test_next_operator_keeps_the_fence_time():
    scene = a_scene()
    scene.controller.image = replay(scene.controller.image, FENCED)
    await everything_made(scene)
    body = scene.kube.objects["logbrokers", "kafka", "main-1"]
    before = {"since": "2026-01-01T00:00:00Z", "why": "silent"}
    scene.objects.log_brokers.put(
        {**body, "status": {"fenced": before, "state": "OfALaterRelease"}}
    )
    assert shown(scene)["fenced"] == before


async def test_granted_restart_is_not_shown_as_fault():
    scene = a_scene()
    await everything_made(scene)
    grant = RestartGranted(
        cause="x", broker_id=1, broker_epoch=EPOCH, pod_uid=str(uuid4()), revision="r2"
    )
    commit(scene, grant, FENCED)
    assert ready(scene) == ("False", "Restarting")
    assert shown(scene)["restarting"] == "r2"


async def test_unregistered_member_shows_what_blocks_pod():
    scene = Scene(replay(an_image(), MembersChanged(cause="x", broker_ids=(0, 1, 2, 3))))
    await everything_made(scene)
    rolls_of(scene.term).troubles[BrokerId(3)] = "Unschedulable: 0/3 nodes are available"
    found = shown(scene, ("kafka", "main-3"))
    assert found["state"] == "NotRegistered"
    assert found["conditions"][0]["message"] == (
        "Broker 3 has not registered yet. Unschedulable: 0/3 nodes are available."
    )


@pytest.mark.parametrize(
    ("copied", "said"),
    [
        ((0, 1, 2), ("True", "ThreeCopies")),
        ((0, 1), ("False", "TooFewCopies")),
        ((), ("False", "TooFewCopies")),
    ],
)
def test_metadata_is_durable_with_three_copies(copied, said):
    scene = a_scene()
    for broker in range(3):
        hear(scene, broker, copied_offset=MetadataOffset(1) if broker in copied else None)
    found = metadata_durable(scene.term.controller)
    assert found is not None
    assert (found.status, found.reason) == said


def test_durability_is_unknown_until_all_brokers_reported():
    scene = a_scene()
    hear(scene, 0, copied_offset=MetadataOffset(1))
    assert metadata_durable(scene.term.controller) is None
