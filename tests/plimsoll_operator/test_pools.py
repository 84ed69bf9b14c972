"""Pools: brokers with hardware of their own are added, restarted and drained pool by pool."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator import rolling
from tests.plimsoll_operator.builders import a_cluster, an_image, with_topic
from tests.plimsoll_operator.rolling import declare
from tests.plimsoll_operator.test_members_handler import Growing

from plimsoll_core.cluster.record_versions import OLDEST, POOLS_SINCE
from plimsoll_operator.api import labels
from plimsoll_operator.api.broker_configs import spec_refusal
from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.kube.resources import LOG_CLUSTERS, STATEFUL_SETS, VOLUME_CLAIMS
from plimsoll_operator.reconcile.cluster import membership
from plimsoll_operator.reconcile.registry import draft_of
from plimsoll_operator.status.status_writer import Target

OLD = {"name": "old", "firstId": 0, "brokers": 2}
NEW = {
    "name": "new",
    "firstId": 100,
    "brokers": 2,
    "storage": {"size": "2Gi", "storageClassName": "fast"},
    "resources": {"limits": {"memory": "4Gi"}},
    "config": {"num.replica.fetchers": 4},
}


class Pooled(Growing):
    """`orders` has a replica on brokers 0 and 1, and the time passes by itself."""

    def __init__(self, *pools: dict[str, Any]) -> None:
        image = with_topic(an_image((0, 1)), ((0, 1),), holder=None)
        super().__init__(image, pools=[*pools])
        self.term.monotonic_ms = lambda: self.ms

    async def pools(self, *pools: dict[str, Any]) -> None:
        """The spec is changed, seen, and settles."""
        self.declare(pools=[*pools])
        await self.look()
        await self.look(after_ms=membership.SETTLE_MS)

    def set_of(self, broker: int) -> dict[str, Any]:
        return self.kube.find(STATEFUL_SETS, "kafka", f"main-broker-{broker}")

    def status(self) -> LogClusterStatus:
        shown = draft_of(self.term, Target(LOG_CLUSTERS, "kafka", "main"))
        assert shown is not None
        assert isinstance(shown.status, LogClusterStatus)
        return shown.status

    def pool_rows(self) -> list[tuple[str, int, int, tuple[int, ...]]]:
        rows = self.status().pools or ()
        return [(row.name, row.brokers, row.ready, row.ids) for row in rows]


async def test_added_pool_gets_its_own_hardware() -> None:
    scene = Pooled(OLD)
    await scene.pools(OLD, NEW)
    assert scene.image.members == (0, 1, 100, 101)
    made = scene.set_of(100)
    (claim,) = made["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert claim["metadata"]["labels"][labels.POOL] == "new"
    assert made["metadata"]["labels"][labels.POOL] == "new"
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"memory": "4Gi"}}
    assert len(scene.made("configmaps")) == 2, "one for each pool's configs"
    assert scene.pool_rows() == [("old", 2, 2, (0, 1)), ("new", 2, 0, (100, 101))]


async def test_naming_a_pool_changes_no_pod_template() -> None:
    scene = Pooled()
    scene.declare(brokers={"count": 2})
    await scene.look()
    before = scene.set_of(0)
    await scene.pools(OLD)
    after = scene.set_of(0)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"][labels.POOL] == "old"


@pytest.mark.parametrize("pools", [[{**OLD, "brokers": 0}, NEW], [NEW]], ids=["emptied", "removed"])
async def test_old_pool_is_drained_before_it_goes(pools: list[dict[str, Any]]) -> None:
    scene = Pooled(OLD)
    await scene.pools(OLD, NEW)
    await scene.pools(*pools)
    assert scene.blocked() == [
        ("Drain", 0, "WaitingForBrokers"),
        ("Drain", 1, "WaitingForBrokers"),
    ]
    scene.join(100, 101)
    await scene.look()
    assert scene.image.leaving == (0, 1)
    drains = [row for row in scene.rebalances().values() if row[0] == "RemoveBrokers"]
    assert drains == [("RemoveBrokers", [0, 1], "Automatic")]
    scene.moved((100, 101))
    await scene.look()
    assert scene.image.members == (100, 101)
    assert scene.made("statefulsets") == ["main-broker-100", "main-broker-101"]
    await scene.stopped(0)
    await scene.stopped(1)
    await scene.look()
    assert sorted(scene.image.brokers) == [100, 101]
    assert scene.pool_rows()[-1] == ("new", 2, 2, (100, 101))


async def test_pool_stays_if_others_lack_room() -> None:
    scene = Pooled(OLD)
    await scene.pools({**NEW, "brokers": 1})
    scene.join(100)
    await scene.look()
    assert scene.blocked() == [("Drain", 0, "NotEnoughBrokers"), ("Drain", 1, "NotEnoughBrokers")]
    (row, _) = scene.term.shown.blocked["Members"]
    assert "replication factor 2" in row.until
    assert scene.image.members == (0, 1, 100)


async def test_pool_grows_its_volumes_alone() -> None:
    scene = Pooled(OLD, NEW)
    for broker in (0, 100):
        own = labels.labels("main", scene.term.cluster_id, "broker")
        meta = {"name": f"data-main-broker-{broker}-0", "namespace": "kafka", "labels": own}
        claim = {"metadata": meta, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
        scene.kube.put(VOLUME_CLAIMS, claim)
    note = {"volumeClaimMetadata": {"annotations": {"backup": "daily"}}}
    await scene.pools(OLD, {**NEW, "template": note})
    await scene.look()
    found = {
        broker: scene.kube.find(VOLUME_CLAIMS, "kafka", f"data-main-broker-{broker}-0")
        for broker in (0, 100)
    }
    sizes = {b: one["spec"]["resources"]["requests"]["storage"] for b, one in found.items()}
    assert sizes == {0: "1Gi", 100: "2Gi"}
    assert found[100]["metadata"]["annotations"] == {"backup": "daily"}
    assert found[0]["metadata"]["labels"][labels.POOL] == "old"
    assert [row.volume_size for row in scene.status().pools or ()] == ["1Gi", "2Gi"]


async def test_changed_pool_restarts_its_brokers_only() -> None:
    three = {"name": "a", "firstId": 0, "brokers": 3}
    cluster = await rolling.a_cluster((0, 1, 2), pools=[three])
    before = cluster.template(0)
    one = {"name": "b", "firstId": 100, "brokers": 1}
    declare(
        cluster, **rolling.OLD, pools=[three, {**one, "resources": {"limits": {"memory": "2Gi"}}}]
    )
    await cluster.look()
    assert not cluster.image.grants
    assert cluster.template(0) == before
    declare(cluster, **rolling.OLD, pools=[{**three, "config": {"max.connections": 7}}])
    await cluster.look()
    assert list(cluster.image.grants) == [0]
    assert cluster.template(0) != before


async def test_brokers_without_pool_keep_their_template() -> None:
    cluster = await rolling.a_cluster((0, 1, 2), pools=[{**OLD, "brokers": 3}])
    before = cluster.template(0)
    declare(cluster, pools=[NEW], brokers={"resources": {"limits": {"memory": "3Gi"}}})
    await cluster.look()
    assert cluster.template(0) == before
    assert not cluster.image.grants


def a_pod(**spec: Any) -> dict[str, Any]:
    return {"brokers": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (a_pod(env=[{"name": "PLIMSOLL_BROKER_ID", "value": "7"}]), "cannot set PLIMSOLL_BROKER"),
        (a_pod(volumes=[{"name": "data", "emptyDir": {}}]), "cannot name a volume data"),
        (a_pod(containers=[{"name": "broker"}]), "containers cannot name a container broker"),
        (a_pod(initContainers=[{"name": "broker"}]), "initContainers cannot name"),
        (a_pod(volumeMounts=[{"name": "x", "mountPath": "/x"}]), "spec.volumes does not have"),
        (
            a_pod(
                volumes=[{"name": "x", "emptyDir": {}}],
                volumeMounts=[{"name": "x", "mountPath": "/var/lib"}],
            ),
            "cannot mount x at /var/lib",
        ),
        ({"pools": [OLD, {**NEW, "firstId": 0}]}, "2 pools with firstId 0"),
        ({"pools": [OLD, {**NEW, "name": "old"}]}, "2 pools with name old"),
        ({"pools": [{**OLD, "brokers": 0}]}, "has no broker"),
        ({"pools": [{**OLD, "brokers": 60}, {**NEW, "brokers": 60}]}, "120 brokers"),
        ({"pools": [{**OLD, "config": {"log.retention.ms": 1}}]}, "cannot set log.retention.ms"),
        ({"pools": [{**OLD, "config": {"max.connections": 0}}]}, "pools[old].config is invalid"),
        (
            {"pools": [{**OLD, "template": {"spec": {"containers": [{"name": "broker"}]}}}]},
            "pools[old].template.spec.containers",
        ),
    ],
)  # fmt: skip
def test_unusable_pools_and_templates_are_refused(spec: dict[str, Any], sentence: str) -> None:
    refusal = spec_refusal(a_cluster(**spec))
    assert refusal is not None
    assert sentence in refusal.message


@pytest.mark.parametrize(
    ("spec", "version", "sentence"),
    [
        ({"metadataVersion": "0.2"}, 5, "spec.metadataVersion is 0.2: remove it first"),
        ({"version": "0.2"}, 4, "spec.version is 0.2: upgrade the brokers first"),
        ({}, 4, "the cluster has 0.2: remove spec.pools, upgrade the brokers, and set"),
    ],
)
def test_pools_wait_until_older_operators_cannot_lead(
    spec: dict[str, Any], version: int, sentence: str
) -> None:
    refusal = spec_refusal(a_cluster(pools=[OLD], **spec), version)
    assert refusal is not None
    assert sentence in refusal.message
    assert spec_refusal(a_cluster(**spec), version) is None, "without pools all is well"


@pytest.mark.parametrize("version", [OLDEST, POOLS_SINCE])
def test_pools_are_accepted_by_metadata_version(version: int) -> None:
    """A new cluster finalises its version once its brokers are registered."""
    assert spec_refusal(a_cluster(pools=[OLD]), version) is None


async def test_refused_pools_change_nothing_that_runs() -> None:
    scene = Pooled()
    scene.declare(brokers={"count": 2})
    await scene.look()
    scene.controller.image = replace(scene.image, metadata_version=4)
    await scene.pools(NEW)
    assert (scene.image.members, scene.image.leaving) == ((0, 1), ())
    ready = scene.term.shown.notes["Ready"]
    assert (ready.status, ready.reason) == ("False", "MetadataTooOld")


def test_usable_pools_are_accepted() -> None:
    mount = {"name": "x", "mountPath": "/var/library"}
    spec = {"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": [mount]}
    pools = [OLD, {**NEW, "template": {"spec": spec}}]
    assert spec_refusal(a_cluster(pools=pools)) is None


async def test_refused_template_changes_nothing_that_runs() -> None:
    scene = Pooled(OLD)
    await scene.look()
    before = scene.set_of(0)
    broken = {**OLD, "template": {"spec": {"env": [{"name": "PLIMSOLL_X"}]}}}
    await scene.pools(broken, NEW)
    assert scene.image.members == (0, 1)
    assert scene.set_of(0) == before
    ready = scene.term.shown.notes["Ready"]
    assert (ready.status, ready.reason) == ("False", "InvalidConfig")
    assert ready.message.startswith("pools[old].template.spec.env cannot set PLIMSOLL_X")
