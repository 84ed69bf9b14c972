"""Manifests are what the golden files say, and every pod is restricted.

After a deliberate change: `PLIMSOLL_REWRITE=1 pytest tests/plimsoll_operator/test_manifests.py`,
and read the diff.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from msgspec.structs import replace
from tests.plimsoll_operator.builders import CLUSTER_UID, a_cluster

from plimsoll_broker import config as broker_config
from plimsoll_core.ids import BrokerId
from plimsoll_core.release import RELEASE
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_ids import cluster_id, kafka_id
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.local.broker_pods import BrokerPlace, local_config
from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_operator.local.ports import Ports
from plimsoll_operator.manifests.configmap import FILE, config_map
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.networkpolicy import network_policy
from plimsoll_operator.manifests.statefulset import revision
from plimsoll_operator.manifests.verification import SparkDriver
from plimsoll_operator.manifests.verification import children as driver_children
from plimsoll_operator.reconcile.cluster.children import broker_sets, children, config_maps

GOLDEN = Path(__file__).parent / "golden"


def a_context(version: str = RELEASE, **spec: Any) -> Context:
    return Context(
        cluster=a_cluster(**spec),
        version=version,
        cluster_id=UUID(CLUSTER_UID),
        broker_image="plimsoll/broker:1",
        image_pull_policy="IfNotPresent",
        controllers=("plimsoll-controller.plimsoll-system.svc:9093",),
    )


def a_driver(runner: dict[str, Any] | None = None, **more: Any) -> SparkDriver:
    body = {
        "metadata": {"name": "orders-check", "namespace": "kafka", "uid": "v1"},
        "spec": {
            "clusterRef": {"name": "main"},
            "topic": "orders",
            "produce": {"records": 1000, "acks": "All", "idempotent": True},
            **({} if runner is None else {"runner": runner}),
        },
    }
    return SparkDriver(
        verification=from_object(body, Verification),
        image="plimsoll/spark:1",
        image_pull_policy="IfNotPresent",
        **more,
    )


EXECUTORS = {
    "executors": 2,
    "executorResources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "2Gi"}},
}


CONFIGURED = {
    "brokers": {
        "count": 1,
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
        "template": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
            "spec": {
                "nodeSelector": {"disk": "fast"},
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
                "priorityClassName": "high",
            },
        },
    },
    "storage": {"size": "10Gi", "storageClassName": "fast"},
    "config": {"log.retention.hours": 168, "log.flush.interval.ms": 1000},
    "onControllerLoss": "StopServing",
}

POOLED = {
    "brokers": {"serviceMetadata": {"labels": {"team": "a"}, "annotations": {"scrape": "yes"}}},
    "pools": [
        {"name": "old", "firstId": 0, "brokers": 1},
        {
            "name": "new",
            "firstId": 100,
            "brokers": 1,
            "storage": {"size": "2Gi", "storageClassName": "fast"},
            "config": {"num.replica.fetchers": 4},
            "template": {
                "volumeClaimMetadata": {"labels": {"tier": "ssd"}, "annotations": {"backup": "no"}},
                "spec": {
                    "terminationGracePeriodSeconds": 120,
                    "runtimeClassName": "gvisor",
                    "env": [{"name": "TZ", "value": "UTC"}],
                    "volumes": [{"name": "extra", "emptyDir": {}}],
                    "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
                    "containers": [
                        {"name": "shipper", "image": "shipper:1"},
                        {
                            "name": "own",
                            "image": "own:1",
                            "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
                        },
                    ],
                    "initContainers": [{"name": "wait", "image": "wait:1"}],
                },
            },
        },
    ],
}

CASES: dict[str, list[dict[str, Any]]] = {
    "cluster": [
        *children(a_context()),
        config_map(a_context()),
        *broker_sets(a_context(), [BrokerId(0)]),
    ],
    "configured": [
        config_map(a_context(**CONFIGURED)),
        *broker_sets(a_context(**CONFIGURED), [BrokerId(7)]),
    ],
    "pooled": [
        *children(a_context(**POOLED))[1:3],
        *config_maps(a_context(**POOLED), [BrokerId(0), BrokerId(100)]),
        *broker_sets(a_context(**POOLED), [BrokerId(0), BrokerId(100)]),
    ],
    "verification": driver_children(a_driver()),
    "executors": driver_children(
        a_driver(EXECUTORS, rpc_secret="00ff", login="orders-user", image_pull_secrets=("pull",))
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_what_the_golden_file_says(name: str):
    text = yaml.safe_dump_all(CASES[name], sort_keys=False)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("PLIMSOLL_REWRITE"):
        path.write_text(text)
    assert text == path.read_text()


def test_another_release_is_another_revision() -> None:
    assert revision(a_context("0.2")) != revision(a_context())


def pod_of(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [m["spec"]["template"]["spec"] for m in manifests if "template" in m.get("spec", {})]
    return dict(found)


def test_pull_secrets_reach_brokers_in_turn() -> None:
    context = a_context()
    assert "imagePullSecrets" not in pod_of(broker_sets(context, [BrokerId(0)]))
    private = dataclasses.replace(context, image_pull_secrets=("a", "b"))
    pod = pod_of(broker_sets(private, [BrokerId(0)]))
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert revision(private) != revision(context)


def test_broker_user_follows_the_cluster() -> None:
    context = dataclasses.replace(a_context(), set_user=False)
    security = pod_of(broker_sets(context, [BrokerId(0)]))["securityContext"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(security)
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_drivers_follow_the_chart() -> None:
    driver = dataclasses.replace(a_driver(), image_pull_secrets=("a",), set_user=False)
    pod = pod_of(driver_children(driver))
    assert pod["imagePullSecrets"] == [{"name": "a"}]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod["securityContext"])


def test_sidecar_is_restricted_unless_it_says_otherwise() -> None:
    *_, manifest = CASES["pooled"]
    pod = manifest["spec"]["template"]["spec"]
    (_, shipper, own), (first,) = pod["containers"], pod["initContainers"]
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert shipper["securityContext"] == first["securityContext"] == restricted
    assert own["securityContext"] == restricted | {"capabilities": {"add": ["NET_ADMIN"]}}
    assert "env" not in shipper, "only the broker is told its revision"


def pods() -> list[dict[str, Any]]:
    found = [m for name, case in CASES.items() if name != "pooled" for m in case]
    return [m["spec"]["template"]["spec"] for m in found if "template" in m.get("spec", {})]


@pytest.mark.parametrize("pod", pods())
def test_pods_are_all_restricted(pod: dict[str, Any]):
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] >= 10_000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_broker_has_one_probe_which_restarts_nothing():
    """A node without processor time had all of its brokers killed together."""
    (container,) = pod_of(broker_sets(a_context(), [BrokerId(0)]))["containers"]
    assert [one for one in container if one.endswith("Probe")] == ["readinessProbe"]


@pytest.mark.parametrize(
    ("spec", "means"), [({}, "KeepServing"), ({"onControllerLoss": "StopServing"}, "StopServing")]
)
def test_brokers_get_no_controller_policy(spec: dict[str, Any], means: str, tmp_path: Path):
    """By ConfigMap and in local mode; a default is left out, for brokers that know no such key."""
    in_pod = tmp_path / FILE
    in_pod.write_text(config_map(a_context(**spec))["data"][FILE])
    assert ("on_controller_loss" in in_pod.read_text()) == bool(spec)
    local = tmp_path / "local.json"
    pod = {"metadata": {"uid": "a", "labels": {labels.BROKER_ID: "0"}}}
    ports = Ports(kafka=1, metrics=2)
    local.write_bytes(
        local_config(in_pod.read_text(), pod, BrokerPlace(DirectoryLayout(tmp_path), ports))
    )
    environment = {"PLIMSOLL_BROKER_ID": "0", "PLIMSOLL_ADVERTISED_HOST": "b"}
    for path in (in_pod, local):
        assert broker_config.read(path, environment).on_controller_loss == means


def test_broker_pods_have_no_token():
    (brokers,) = broker_sets(a_context(), [BrokerId(0)])
    assert brokers["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_children_are_owned_without_blocking_deletion():
    for manifest in CASES["cluster"]:
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["blockOwnerDeletion"]) == (CLUSTER_UID, False)


def test_volumes_outlive_their_cluster():
    (brokers,) = broker_sets(a_context(), [BrokerId(0)])
    (claim,) = brokers["spec"]["volumeClaimTemplates"]
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    policy = brokers["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_user_labels_never_shadow_selector_labels():
    template = {"metadata": {"labels": {"plimsoll.dev/cluster": "other", "mine": "1"}}}
    (brokers,) = broker_sets(a_context(brokers={"template": template}), [BrokerId(0)])
    labels = brokers["spec"]["template"]["metadata"]["labels"]
    assert (labels["plimsoll.dev/cluster"], labels["mine"]) == ("main", "1")


def test_cluster_id_is_uid_unless_adopted():
    assert cluster_id(a_cluster()) == UUID(CLUSTER_UID)
    adopted = UUID("00000000-0000-4000-8000-00000000beef")
    assert cluster_id(a_cluster(clusterId=kafka_id(adopted))) == adopted
    assert cluster_id(a_cluster(clusterId=str(adopted))) == adopted


class TestRevisions:
    def template(self, **spec: Any) -> dict[str, Any]:
        (brokers,) = broker_sets(a_context(**spec), [BrokerId(1)])
        return brokers["spec"]["template"]

    def revision(self, **spec: Any) -> str:
        return str(self.template(**spec)["metadata"]["annotations"]["plimsoll.dev/revision"])

    def test_revision_is_equal_for_all_brokers(self):
        found = broker_sets(a_context(), [BrokerId(0), BrokerId(7)])
        names = [
            m["spec"]["template"]["metadata"]["annotations"]["plimsoll.dev/revision"] for m in found
        ]
        assert names == [revision(a_context())] * 2

    def test_process_is_told_which(self):
        (container,) = self.template()["spec"]["containers"]
        assert {"name": "PLIMSOLL_REVISION", "value": self.revision()} in container["env"]

    @pytest.mark.parametrize(
        "spec",
        [
            {"image": "other@sha256:" + "0" * 64},
            {"config": {"log.retention.hours": 1}},
            {"onControllerLoss": "StopServing"},
            {"brokers": {"resources": {"limits": {"memory": "2Gi"}}}},
            {"brokers": {"template": {"metadata": {"labels": {"a": "b"}}}}},
        ],
        ids=["image", "config", "controller loss", "resources", "template"],
    )
    def test_revision_changes_with_fields_that_affect_broker_pods(self, spec: dict[str, Any]):
        assert self.revision(**spec) != self.revision()

    @pytest.mark.parametrize(
        "spec", [{"brokers": {"count": 5}}, {"storage": {"size": "99Gi"}}], ids=["count", "size"]
    )
    def test_revision_ignores_broker_count_and_storage_size(self, spec: dict[str, Any]):
        assert self.revision(**spec) == self.revision()

    def test_owner_asks_for_a_restart_by_an_annotation(self):
        def of(value: str) -> str:
            context = a_context()
            meta = replace(context.cluster.metadata, annotations={"plimsoll.dev/restart": value})
            cluster = replace(context.cluster, metadata=meta)
            return revision(dataclasses.replace(context, cluster=cluster))

        assert len({of("1"), of("2"), revision(a_context())}) == 3

    def test_config_map_is_named_by_content(self):
        one, other = (
            config_map(a_context()),
            config_map(a_context(config={"log.retention.hours": 1})),
        )
        assert one["immutable"] is True
        assert one["metadata"]["name"] != other["metadata"]["name"]
        volume = self.template()["spec"]["volumes"][0]
        assert volume["configMap"]["name"] == one["metadata"]["name"]


def test_pod_processes_are_shared_for_drills_only():
    def shared(**spec: Any) -> bool:
        (manifest,) = broker_sets(a_context(**spec), [BrokerId(0)])
        pod = manifest["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        obeys = {"name": "PLIMSOLL_ALLOW_DRILLS", "value": "true"} in container["env"]
        assert obeys == pod["shareProcessNamespace"]
        return bool(pod["shareProcessNamespace"])

    assert not shared()
    assert not shared(maintenance={"suspended": True})
    assert shared(maintenance={"allowDrills": True})


def test_replication_port_is_open_to_cluster_only():
    context = dataclasses.replace(a_context(), operator_namespace="plimsoll-system")
    spec = network_policy(context)["spec"]
    (rule,) = [r for r in spec["ingress"] if {"port": 9091, "protocol": "TCP"} in r["ports"]]
    assert len(rule["ports"]) == 1
    brokers, operator = rule["from"]
    assert brokers == {"podSelector": {"matchLabels": labels.selector("main")}}
    assert operator["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "plimsoll-system"
    }
    assert operator["podSelector"]["matchLabels"][labels.COMPONENT] == "operator"


def test_brokers_reach_peers_controller_and_dns_only():
    spec = network_policy(a_context())["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    dns, brokers, controller = spec["egress"]
    assert {port["port"] for port in dns["ports"]} == {53, 5353}
    assert brokers["to"] == [{"podSelector": {"matchLabels": labels.selector("main")}}]
    assert [port["port"] for port in brokers["ports"]] == [9091]
    assert [port["port"] for port in controller["ports"]] == [9093]
    assert controller["to"][0]["podSelector"]["matchLabels"][labels.COMPONENT] == "operator"


def test_broker_metrics_are_read_by_charts_namespaces():
    peer = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    by_label = {"namespaceSelector": {"matchLabels": {"plimsoll.dev/scraper": "true"}}}
    policy = network_policy(a_context())
    (rule,) = (one for one in policy["spec"]["ingress"] if one["ports"][0]["port"] == 9100)
    assert rule["from"] == [by_label], "nobody who is not named"
    context = dataclasses.replace(a_context(), metrics_from=(peer,))
    (rule,) = [
        rule
        for rule in network_policy(context)["spec"]["ingress"]
        if {"port": 9100, "protocol": "TCP"} in rule["ports"]
    ]
    assert rule == {"ports": [{"port": 9100, "protocol": "TCP"}], "from": [peer]}
