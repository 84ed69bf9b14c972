"""Disasters of the Kubernetes itself (docs/recovery.md), each under a writer whose acknowledged
records are compared afterwards: etcd restored to an earlier time, Kubernetes upgraded, the
namespace deleted, etcd lost.

Each prints how long it lasted. They work on the local node alone, whose etcd they replace.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dev.kubectl import NODE, RESTRICTED, Cluster, condition, is_true, wait_for
from tests.e2e import release
from tests.e2e.clients import consume, produce
from tests.e2e.faults import evict
from tests.e2e.test_operator import a_topic, apply, ready
from tests.e2e.test_recovery import (
    BACK_S,
    Writer,
    all_ready,
    commit_of_group,
    committed_of_group,
    records_go_on,
    the_yaml,
    timed,
    wait_in_sync,
    write_as_user,
)

EARLIER = [f"before-{number}" for number in range(100)]
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.environ.get("USE_CURRENT_CONTEXT") == "1", reason="replaces the etcd of the local node"
    ),
]


def node(*arguments: str) -> None:
    subprocess.run([str(NODE), *arguments], check=True, stdout=subprocess.DEVNULL)


class Kept(NamedTuple):
    """What a cluster is after a disaster as before. `uid`: the LogCluster's, which may change."""

    cluster_id: str
    uid: str
    topic_id: str
    committed: int | None


def started(cluster: Cluster, namespace: str) -> Kept:
    """The cluster with records, a group's offset and a user's login."""
    apply(cluster, namespace, *the_yaml())
    all_ready(cluster, namespace)
    produce(cluster, namespace, "orders", EARLIER)
    commit_of_group(cluster, namespace)
    return seen(cluster, namespace)


def seen(cluster: Cluster, namespace: str) -> Kept:
    found = all_ready(cluster, namespace)
    return Kept(
        cluster_id=found["status"]["clusterId"],
        uid=found["metadata"]["uid"],
        topic_id=topic_id(cluster, namespace),
        committed=committed_of_group(cluster, namespace),
    )


def topic_id(cluster: Cluster, namespace: str, name: str = "orders") -> str:
    found = cluster.get("topic", name, namespace)
    assert found is not None
    return str(found["status"]["topicId"])


def assert_nothing_lost(
    cluster: Cluster, namespace: str, before: Kept, acknowledged: list[str]
) -> None:
    assert seen(cluster, namespace)._replace(uid=before.uid) == before
    assert {*EARLIER, *acknowledged} <= set(consume(cluster, namespace, "orders", 3))
    write_as_user(cluster, namespace, "as the user, afterwards")


# --- etcd restored to an earlier time -------------------------------------------------------------


def test_etcd_restored_loses_no_acknowledged_record(
    operator: Cluster, namespace: str, tmp_path: Path
) -> None:
    before = started(operator, namespace)
    later = a_topic("later", partitions=3, replicationFactor=3, minInSyncReplicas=2)
    writer = Writer(operator, namespace)
    with writer.writing():
        records_go_on(writer)
        node("etcd-save", str(tmp_path / "etcd"))
        apply(operator, namespace, later)
        ready(operator, namespace, "topic", "later")
        identity = topic_id(operator, namespace, "later")
        produce(operator, namespace, "later", ["of a topic that the copy lacks"])
        operator.kubectl("delete", "pod", "main-broker-1-0", "-n", namespace, timeout_s=120)
        wait_in_sync(operator, namespace)
        records_go_on(writer)
        node("etcd-replace", str(tmp_path / "etcd"))
        with timed("etcd restored to an earlier time"):
            apply(operator, namespace, *the_yaml(), later)

            def restored() -> bool | None:
                return (
                    is_true(operator.get("logcluster", "main", namespace), "MetadataRestored")
                    or None
                )

            wait_for("the metadata log to be restored", restored, BACK_S)
        records_go_on(writer)
        all_ready(operator, namespace)
        ready(operator, namespace, "topic", "later")
        wait_in_sync(operator, namespace)
    assert topic_id(operator, namespace, "later") == identity
    assert consume(operator, namespace, "later", 3) == ["of a topic that the copy lacks"]
    assert_nothing_lost(operator, namespace, before, writer.acknowledged)


# --- Kubernetes upgraded --------------------------------------------------------------------------


def drain(cluster: Cluster, namespace: str, broker: int) -> str:
    """Evict one broker, as `kubectl drain` does. Return the uid of the pod that ends."""
    pod = f"main-broker-{broker}-0"
    found = cluster.get("pod", pod, namespace)
    assert found is not None

    def evicted() -> bool:
        evict(cluster, namespace, broker)
        return True

    wait_for(f"the PodDisruptionBudget to let broker {broker} go", evicted, BACK_S)
    return str(found["metadata"]["uid"])


@pytest.mark.long
def test_upgraded_kubernetes_loses_no_acknowledged_record(
    operator: Cluster, namespace: str
) -> None:
    before = started(operator, namespace)
    writer = Writer(operator, namespace)
    with writer.writing():
        records_go_on(writer)
        began = len(writer.pauses_s)
        node("restart")
        for broker in range(3):
            uid = drain(operator, namespace, broker)

            def back(broker: int = broker, uid: str = uid) -> bool | None:
                found = operator.get("pod", f"main-broker-{broker}-0", namespace)
                return (is_true(found, "Ready") and found["metadata"]["uid"] != uid) or None

            wait_for(f"broker {broker} to serve again", back, BACK_S)
        node("restart")
        wait_in_sync(operator, namespace)
        records_go_on(writer)
    print(f"Kubernetes upgraded: no record for {max(writer.pauses_s[began:]):.1f} s at most")
    assert_nothing_lost(operator, namespace, before, writer.acknowledged)


# --- the namespace deleted, etcd lost -------------------------------------------------------------


@contextmanager
def retained_volumes(cluster: Cluster, namespace: str) -> Iterator[list[dict[str, Any]]]:
    """The brokers' PersistentVolumes, which stay when their claims go; deleted at the end."""
    every = cluster.items("persistentvolumes", "")
    found = [one for one in every if one["spec"]["claimRef"]["namespace"] == namespace]
    assert len(found) == 3
    names = [one["metadata"]["name"] for one in found]
    reclaim(cluster, names, "Retain")
    try:
        yield found
    finally:
        reclaim(cluster, names, "Delete")  # the node's provisioner removes them once released


def reclaim(cluster: Cluster, volumes: list[str], policy: str) -> None:
    patch = f'{{"spec":{{"persistentVolumeReclaimPolicy":"{policy}"}}}}'
    cluster.kubectl("patch", "pv", *volumes, "-p", patch)


def claims_of(volumes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A claim for each volume, as docs/recovery.md shows it."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": one["spec"]["claimRef"]["name"]},
            "spec": {
                "accessModes": one["spec"]["accessModes"],
                "volumeName": one["metadata"]["name"],
                "storageClassName": one["spec"]["storageClassName"],
                "resources": {"requests": {"storage": one["spec"]["capacity"]["storage"]}},
            },
        }
        for one in volumes
    ]


def claim_volumes(cluster: Cluster, namespace: str, volumes: list[dict[str, Any]]) -> None:
    apply(cluster, namespace, *claims_of(volumes))

    def bound() -> bool | None:
        claims = cluster.items("persistentvolumeclaims", namespace)
        return [one["status"].get("phase") for one in claims] == ["Bound"] * 3 or None

    wait_for("every claim to be bound", bound, 60)


def continue_cluster(cluster: Cluster, namespace: str, cluster_id: str) -> dict[str, Any]:
    """Apply the YAML again, with the cluster's id. Return the LogCluster once it is Ready."""
    again = the_yaml()
    for one in again:
        if one["kind"] == "LogCluster":
            one["spec"]["clusterId"] = cluster_id
    apply(cluster, namespace, *again)
    found: dict[str, Any] = all_ready(cluster, namespace)
    return found


@pytest.mark.long
def test_deleted_namespace_returns_from_retained_volumes(operator: Cluster, namespace: str) -> None:
    before = started(operator, namespace)
    writer = Writer(operator, namespace)
    with retained_volumes(operator, namespace) as volumes:
        with writer.writing():
            records_go_on(writer)
            operator.kubectl("delete", "namespace", namespace, timeout_s=BACK_S)
        with timed("the namespace deleted"):
            operator.make_namespace(namespace, RESTRICTED)
            free = '[{"op": "remove", "path": "/spec/claimRef/uid"}]'
            for one in volumes:
                name = one["metadata"]["name"]
                operator.kubectl("patch", "pv", name, "--type=json", "-p", free)
            claim_volumes(operator, namespace, volumes)
            continue_cluster(operator, namespace, before.cluster_id)
        assert seen(operator, namespace).uid != before.uid
        assert_nothing_lost(operator, namespace, before, writer.acknowledged)


def as_new(volume: dict[str, Any]) -> dict[str, Any]:
    """A PersistentVolume for the same disk in a Kubernetes that knows nothing of it."""
    kept = ("capacity", "accessModes", "volumeMode", "storageClassName", "local", "nodeAffinity")
    claim = volume["spec"]["claimRef"]
    spec = {key: volume["spec"][key] for key in kept}
    spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec["claimRef"] = {"namespace": claim["namespace"], "name": claim["name"]}
    meta = {
        "name": volume["metadata"]["name"],
        "annotations": {PROVISIONED_BY: volume["metadata"]["annotations"][PROVISIONED_BY]},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def test_lost_etcd_leaves_every_record_on_volumes(operator: Cluster, namespace: str) -> None:
    before = started(operator, namespace)
    writer = Writer(operator, namespace)
    with retained_volumes(operator, namespace) as volumes:
        with writer.writing():
            records_go_on(writer)
            node("etcd-replace")
        with timed("etcd lost"):
            release.upgrade(operator)
            operator.make_namespace(namespace, RESTRICTED)
            for one in volumes:
                operator.apply(as_new(one))
            claim_volumes(operator, namespace, volumes)
            after = continue_cluster(operator, namespace, before.cluster_id)
        stalled = condition(after, "Stalled")
        assert stalled is not None
        assert stalled["status"] == "False"
        assert_nothing_lost(operator, namespace, before, writer.acknowledged)
