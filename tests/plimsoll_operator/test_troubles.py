"""A broker that does not come up says why, in the words of Kubernetes, where its cluster waits."""

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import a_cluster as a_log_cluster
from tests.plimsoll_operator.builders import an_image, registered, replay, with_topic
from tests.plimsoll_operator.rolling import NEW, Cluster, a_cluster, declare

from plimsoll_core.cluster.records import BrokersLeaving
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.resources import CORE_EVENTS, LOG_CLUSTERS, PODS, STATEFUL_SETS
from plimsoll_operator.manifests.statefulset import CONTAINER
from plimsoll_operator.reconcile.registry import draft_of
from plimsoll_operator.reconcile.restarts import reconcile as restarts
from plimsoll_operator.reconcile.restarts.broker_pods import trouble
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_of
from plimsoll_operator.status.cluster_counts import cluster_status
from plimsoll_operator.status.record_events import occurrences
from plimsoll_operator.status.status_writer import Target

QUOTA = 'pods "main-broker-0-0" is forbidden: exceeded quota: no-pods'


@pytest.fixture
async def three() -> Cluster:
    return await a_cluster((0, 1, 2))


def shown(found: Cluster) -> dict[str, str]:
    """The messages of the LogCluster's conditions."""
    draft = draft_of(found.scene.term, Target(LOG_CLUSTERS, "kafka", "main"))
    assert draft is not None
    return {c.type: c.message for c in draft.status.conditions}


def refuse_the_pod(found: Cluster) -> None:
    """As the StatefulSet's controller tells it."""
    owner = found.kube.find(STATEFUL_SETS, "kafka", "main-broker-0")["metadata"]
    for number, text in enumerate(("the first reason", QUOTA)):
        body: dict[str, Any] = {
            "metadata": {"name": f"e{number}", "namespace": "kafka"},
            "involvedObject": {"uid": owner["uid"]},
            "reason": "FailedCreate",
            "lastTimestamp": f"2026-11-22T00:00:0{number}Z",
            "message": f"create Pod main-broker-0-0 in StatefulSet x failed error: {text}",
        }
        found.kube.put(CORE_EVENTS, body)


async def test_pod_that_cannot_be_made_says_why(three: Cluster):
    three.stop(0)
    three.kube.drop(PODS, "kafka", "main-broker-0-0")
    refuse_the_pod(three)
    await three.look()
    assert f"Broker 0: FailedCreate: {QUOTA}." in shown(three)["Reconciling"]


async def test_granted_restart_without_pod_says_why(three: Cluster):
    declare(three, **NEW)
    await three.look()
    three.stop(0)
    refuse_the_pod(three)
    await three.look()
    assert f"Broker 0 is being restarted (FailedCreate: {QUOTA})" in shown(three)["Reconciling"]


async def test_broker_awaiting_image_says_so(three: Cluster):
    three.stop(0)
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    pod = three.pod(0)
    statuses = [{"name": "broker", "state": {"waiting": waiting}}]
    three.kube.put(PODS, {**pod, "status": {"containerStatuses": statuses}})
    await three.look()
    assert "Broker 0: ErrImagePull: not found." in shown(three)["Reconciling"]
    three.take_part(0)
    await three.look()
    assert rolls_of(three.scene.term).troubles == {}


async def test_absent_broker_is_checked_until_back(three: Cluster):
    three.stop(0)
    three.scene.work.clear()
    await three.scene.run(restarts.reconcile)
    assert three.scene.work, "its pod's trouble comes later than its end"
    three.take_part(0)
    three.scene.work.clear()
    await three.scene.run(restarts.reconcile)
    assert three.scene.work == []


async def test_restarting_broker_does_not_run_revision(
    three: Cluster,
):
    declare(three, **NEW)
    await three.look()
    assert three.start_pods() == [0]
    await three.look()
    rolling = rolls_of(three.scene.term).rolling
    assert rolling is not None
    assert (rolling.current, rolling.total) == (0, 3)


def test_broker_with_another_volume_is_reported():
    image = with_topic(an_image(), ((0, 1, 2),) * 4)
    again = replace(registered(1), directory_ids=(UUID(int=999),))
    (event,) = occurrences(image, replay(image, again), [again])
    assert (event.reason, event.warning) == ("VolumeEmptied", True)
    assert "Broker 1 came back with an empty volume" in event.message
    assert "4 replicas" in event.message
    same = registered(1)
    assert list(occurrences(image, replay(image, same), [same])) == []


def test_broker_that_cannot_start_says_why():
    foreign = "ForeignVolume: /data belongs to broker 1, this is broker 0"
    container = {
        "name": CONTAINER,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
        "lastState": {"terminated": {"exitCode": 3, "message": foreign}},
    }
    pod = {"status": {"containerStatuses": [container]}}
    assert trouble(pod) == f"CrashLoopBackOff: {foreign}"
    del container["lastState"]
    assert trouble(pod) == "CrashLoopBackOff: back-off 40s restarting"


@pytest.mark.parametrize("leaving", [(), (3,)])
def test_ready_brokers_are_never_more_than_desired(leaving: tuple[int, ...]):
    image = an_image((0, 1, 2, 3))
    ids = tuple(BrokerId(b) for b in leaving)
    image = replay(image, BrokersLeaving(cause="declared", broker_ids=ids))
    found = cluster_status(image, a_log_cluster(brokers={"count": 3})).brokers
    assert found is not None
    assert (found.ready, found.desired, found.active) == (3, 3, 4), "the fourth runs still"
