"""A cluster comes back from its backup on a volume after everything in its namespace was deleted,
its volumes too."""

from collections.abc import Iterator
from typing import Any

import pytest
from dev.kubectl import ROOT, Cluster, condition, wait_for
from tests.e2e.clients import produce
from tests.e2e.release import SYSTEM
from tests.e2e.test_node import a_claim
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready
from tests.e2e.test_recovery import BACK_S, delete_all_but_volumes, timed

CLAIM = "plimsoll-backups"
ORDERS = a_topic(partitions=3, replicationFactor=3, minInSyncReplicas=2)


def upgrade(cluster: Cluster, claim: str) -> None:
    cluster.run(
        "helm", "upgrade", "plimsoll", str(ROOT / "helm" / "plimsoll"), "--namespace", SYSTEM,
        "--values", str(ROOT / "dev" / "values-local.yaml"),
        "--set", "verification.enabled=true", "--set", f"backup.persistentVolumeClaim={claim}",
        "--wait", "--timeout", "240s",
        timeout_s=300,
    )  # fmt: skip


@pytest.fixture
def volume(operator: Cluster) -> Iterator[Cluster]:
    """The release with a volume for backups, and without it afterwards."""
    operator.apply(a_claim(CLAIM, size="100Mi"), SYSTEM)
    try:
        upgrade(operator, CLAIM)
        yield operator
    finally:
        upgrade(operator, "")
        operator.kubectl("delete", "pvc", CLAIM, "-n", SYSTEM, "--wait=false")


def log_cluster(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return cluster.get("logcluster", "main", namespace) or {}


def test_cluster_returns_from_its_backup(volume: Cluster, namespace: str) -> None:
    cluster = volume
    apply(cluster, namespace, a_log_cluster(backup={}), ORDERS)
    ready(cluster, namespace, "logcluster", "main", BACK_S)
    ready(cluster, namespace, "topic", "orders")
    topic = cluster.get("topic", "orders", namespace)
    assert topic is not None
    produce(cluster, namespace, "orders", ["a record that no backup holds"])

    def proven() -> dict[str, Any] | None:
        status = log_cluster(cluster, namespace).get("status") or {}
        shown = status.get("backup") or {}
        whole = shown.get("offset", 0) >= status["metadataLog"]["offset"]
        found: dict[str, Any] = status
        return found if whole and "proven" in shown else None

    before = wait_for("a backup that a drill has proven", proven, 180)
    assert (condition(log_cluster(cluster, namespace), "BackedUp") or {})["status"] == "True"

    delete_all_but_volumes(cluster, namespace)
    cluster.kubectl("delete", "pvc", "--all", "-n", namespace, "--timeout=90s", timeout_s=120)
    former = {"clusterId": before["clusterId"], "backup": {}, "uncleanRecovery": "Proactive"}
    with timed("volumes and objects lost, the backup restored"):
        apply(cluster, namespace, a_log_cluster(**former), ORDERS)

        def choice() -> str | None:
            status = log_cluster(cluster, namespace).get("status") or {}
            choices = (status.get("metadataRestore") or {}).get("choices") or ()
            return next((str(one["value"]) for one in choices if one.get("fromBackup")), None)

        chosen = wait_for("what may be restored", choice, 120)
        cluster.kubectl(
            "annotate",
            "logcluster",
            "main",
            "-n",
            namespace,
            f"plimsoll.dev/restore-metadata={chosen}",
        )
        after = ready(cluster, namespace, "logcluster", "main", BACK_S)
    assert after["status"]["clusterId"] == before["clusterId"]
    ready(cluster, namespace, "topic", "orders")
    again = cluster.get("topic", "orders", namespace)
    assert again is not None
    assert again["status"]["topicId"] == topic["status"]["topicId"]
    produce(cluster, namespace, "orders", ["a record of the restored topic"])
