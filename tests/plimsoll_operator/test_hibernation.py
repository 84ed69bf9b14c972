"""A LogCluster that hibernates: its StatefulSets, its status, and its waking."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import replay
from tests.plimsoll_operator.rolling import NEW, OLD, Cluster
from tests.plimsoll_operator.rolling import a_cluster as running_cluster
from tests.plimsoll_operator.test_voluntary_hours import Hours

from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.cluster.records import BrokerFenced, MetadataVersionFinalized, RestartGranted
from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import Conflict
from plimsoll_operator.kube.resources import PODS, STATEFUL_SETS, VOLUME_CLAIMS
from plimsoll_operator.manifests.statefulset import revision
from plimsoll_operator.reconcile.cluster import hibernation
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context


class Sleeper:
    """A cluster of three whose StatefulSets have pods as their replicas say."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.scene = cluster, cluster.scene
        self.hours = Hours(cluster.scene, cluster.deciding)
        self.ms = 0
        self.scene.term.monotonic_ms = lambda: self.ms

    async def declare(self, **spec: Any) -> None:
        self.scene.declare(**{**OLD, "brokers": {"count": 3}, **spec})
        await self.look()

    async def look(self) -> None:
        self.hours.follow()
        await self.cluster.look()
        await self.cluster.look()

    def replicas(self) -> list[int]:
        sets = (self.cluster.kube.find(STATEFUL_SETS, "kafka", name) for name in self.names)
        return [body["spec"]["replicas"] for body in sets]

    @property
    def names(self) -> list[str]:
        return [f"main-broker-{broker}" for broker in range(3)]

    async def ends(self, broker: int) -> None:
        """Its pod stops cleanly, as the StatefulSet says."""
        image = self.cluster.image
        epoch = image.brokers[broker].broker_epoch
        fenced = BrokerFenced(cause="shutdown", broker_id=broker, broker_epoch=epoch)
        self.cluster.deciding.image = replay(image, fenced)
        self.cluster.kube.drop(PODS, "kafka", f"main-broker-{broker}-0")
        await self.look()

    def back(self) -> None:
        partitions = self.cluster.image.partitions
        self.cluster.take_part(*self.cluster.start_pods())
        # `take_part` puts everybody in sync; the partitions stay as they were committed.
        self.cluster.deciding.image = replace(self.cluster.image, partitions=partitions)


@pytest.fixture
async def three() -> Sleeper:
    made = await running_cluster((0, 1, 2), (1, 2, 0))
    newest = MetadataVersionFinalized(cause="t", metadata_version=NEWEST)
    made.deciding.image = replay(made.image, newest)
    return Sleeper(made)


async def asleep(three: Sleeper) -> None:
    await three.declare(hibernated=True)
    for broker in (2, 1, 0):
        await three.ends(broker)


async def test_brokers_stop_in_order_and_cleanly(three: Sleeper) -> None:
    await three.declare(hibernated=True)
    assert three.cluster.image.hibernated
    assert all(p.leader is None for p in three.cluster.image.partitions.values())
    assert three.replicas() == [1, 1, 0]
    stopping = three.hours.conditions()["Hibernated"]
    assert (stopping.status, stopping.reason) == ("False", "Stopping")
    assert (
        stopping.message
        == "The cluster is going to hibernate: brokers 0, 1 and 2 still to be stopped."
    )
    await three.ends(2)
    assert three.replicas() == [1, 0, 0]
    await three.ends(1)
    await three.ends(0)
    assert three.replicas() == [0, 0, 0]
    shown = three.hours.conditions()
    assert (shown["Hibernated"].status, shown["Hibernated"].reason) == ("True", "Asleep")
    assert (shown["Ready"].status, shown["Ready"].reason) == ("False", "Hibernated")
    assert shown["Reconciling"].status == "False"
    assert three.scene.made("statefulsets") == three.names


async def test_cluster_wakes_when_all_members_are_back(three: Sleeper) -> None:
    await asleep(three)
    await three.declare()
    assert three.replicas() == [1, 1, 1]
    assert three.cluster.image.hibernated, "no broker is back yet"
    assert (
        three.hours.conditions()["Hibernated"].message
        == "The cluster wakes from hibernation: 0 of 3 brokers are back."
    )
    three.back()
    await three.look()
    assert not three.cluster.image.hibernated
    assert all(p.leader == p.replicas[0] for p in three.cluster.image.partitions.values())
    assert "Hibernated" not in three.hours.conditions()


async def test_missing_member_delays_waking_for_bounded_time(three: Sleeper) -> None:
    await asleep(three)
    await three.declare()
    three.ms += hibernation.WAKE_MS_MAX - 1
    await three.look()
    assert three.cluster.image.hibernated
    three.ms += 1
    await three.look()
    assert not three.cluster.image.hibernated


async def test_hibernation_that_is_withdrawn_starts_brokers_again(three: Sleeper) -> None:
    await three.declare(hibernated=True)
    await three.ends(2)
    await three.declare()
    assert three.replicas() == [1, 1, 1]
    three.back()
    await three.look()
    assert not three.cluster.image.hibernated


async def test_new_template_rolls_after_waking_only(three: Sleeper) -> None:
    await asleep(three)
    await three.declare(hibernated=True, **NEW)
    assert not three.cluster.image.grants
    assert [three.cluster.template(b)["spec"]["containers"][0]["image"] for b in range(3)] == [
        "broker:old"
    ] * 3
    await three.declare(**NEW)
    three.back()
    await three.look()
    assert three.cluster.deciding.image.grants or three.cluster.blocked


async def test_older_metadata_version_blocks_hibernation() -> None:
    three = Sleeper(await running_cluster((0, 1, 2)))
    await three.declare(hibernated=True)
    assert three.replicas() == [1, 1, 1]
    blocked = three.hours.conditions()["Blocked"]
    assert blocked.reason == "MetadataTooOld"
    assert blocked.message == "Hibernate waits until metadata version 0.3 is finalised."


def delete_claim(three: Sleeper, broker: int) -> None:
    own = labels.labels("main", three.scene.term.cluster_id, "broker")
    meta = {
        "name": f"data-main-broker-{broker}-0",
        "namespace": "kafka",
        "labels": own | {labels.BROKER_ID: str(broker)},
        "deletionTimestamp": "2026-11-22T00:00:00Z",
    }
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    three.cluster.kube.put(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})


async def test_cluster_with_deleted_claim_does_not_hibernate(three: Sleeper) -> None:
    """Kubernetes removes a deleted claim, with its data, as soon as its pod stops."""
    delete_claim(three, 1)
    await three.declare(hibernated=True)
    assert not three.cluster.image.hibernated
    assert three.replicas() == [1, 1, 1]
    (row,) = three.scene.term.shown.blocked[hibernation.HIBERNATED]
    assert (row.action, row.broker, row.reason) == ("Hibernate", 1, "VolumeDeleted")
    assert row.sentence == (
        "Hibernate of broker 1 waits until volume claim data-main-broker-1-0, which is being "
        "deleted, is replaced: its data goes when pod main-broker-1-0 stops. Delete that pod once "
        "no partition needs its replica."
    )
    three.cluster.kube.drop(VOLUME_CLAIMS, "kafka", "data-main-broker-1-0")
    await three.look()
    assert three.cluster.image.hibernated
    assert not three.scene.term.shown.blocked[hibernation.HIBERNATED]


async def test_broker_with_deleted_claim_is_not_stopped(three: Sleeper) -> None:
    await three.declare(hibernated=True)
    delete_claim(three, 1)
    await three.ends(2)
    assert three.replicas() == [1, 1, 0], "its pod is not stopped, nor one after it"
    (row,) = three.scene.term.shown.blocked["Restart"]
    assert (row.action, row.broker, row.reason) == ("Hibernate", 1, "VolumeDeleted")


async def test_broker_with_deleted_claim_is_not_restarted(three: Sleeper) -> None:
    delete_claim(three, 0)
    three.scene.declare(**{**NEW, "brokers": {"count": 3}})
    await three.look()
    assert list(three.cluster.image.grants) == [1], "the others roll"
    assert ("pods", "kafka", "main-broker-0-0") in three.cluster.kube.objects
    row = three.scene.term.shown.blocked["Restart"][0]
    assert (row.action, row.broker, row.reason) == ("Restart", 0, "VolumeDeleted")


async def test_granted_restart_waits_while_claim_is_deleted(three: Sleeper) -> None:
    """The template is written, so that the pod which a person deletes comes back with it."""
    names = {b: three.cluster.pod(b)["metadata"]["uid"] for b in range(3)}
    grant = RestartGranted(
        cause="t",
        broker_id=0,
        broker_epoch=three.cluster.image.brokers[0].broker_epoch,
        pod_uid=names[0],
        revision=revision_wanted(three),
    )
    three.cluster.deciding.image = replay(three.cluster.image, grant)
    delete_claim(three, 0)
    await three.look()
    assert three.cluster.template(0)["spec"]["containers"][0]["image"] == "broker:new"
    assert three.cluster.pod(0)["metadata"]["uid"] == names[0]
    three.cluster.kube.drop(VOLUME_CLAIMS, "kafka", "data-main-broker-0-0")
    await three.look()
    assert ("pods", "kafka", "main-broker-0-0") not in three.cluster.kube.objects


def revision_wanted(three: Sleeper) -> str:
    three.scene.declare(**{**NEW, "brokers": {"count": 3}})
    context = manifest_context(three.scene.term)
    assert context is not None
    return revision(context.of_broker(0))


async def test_late_stop_of_suspended_operator_fails(three: Sleeper) -> None:
    """It had read the StatefulSet while the cluster hibernated; the next one woke it at once."""
    await three.declare(hibernated=True)
    read = three.cluster.kube.find(STATEFUL_SETS, "kafka", "main-broker-1")
    await three.declare()
    assert not three.cluster.image.hibernated, "all were still there"
    late = {**read, "spec": {**read["spec"], "replicas": 0}}
    with pytest.raises(Conflict):
        await three.cluster.kube.replace(STATEFUL_SETS, late)
    assert three.replicas() == [1, 1, 1]
