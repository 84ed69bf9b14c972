"""An upgrade from the release before, and the way back, on a real Kubernetes, while Spark writes.

The earlier release is installed by its own chart and images, made from its commit by
dev/release.sh.  One cluster lives through all of it, test by test, in this order: the chapter
Upgrade of docs/operations.md, step by step.  The last test judges what was written meanwhile.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dev.kubectl import ROOT, Cluster, is_true, wait_for
from tests.e2e.drill import SYSTEM, TOPICS, Drill, assert_all_passed, verified
from tests.e2e.earlier import earlier, release
from tests.e2e.test_operator import ready

from plimsoll_core.cluster.record_versions import NEWEST, release_of
from plimsoll_core.release import RELEASE as PRESENT

pytestmark = pytest.mark.long
ROLL_S = 300
STEP_S, AND_NEXT_S = 40, 60
"""What a step takes twice over where processors are idle; so long is then written for the others:
the one Verification of the first step serves all of them."""


def spark_image() -> str:
    """As `values-local.yaml` names it; both operators run the same."""
    lines = (ROOT / "dev" / "values-local.yaml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.strip().startswith("spark:"))


def install(cluster: Cluster, chart: Path, *values: str) -> None:
    cluster.run(
        "helm", "upgrade", "--install", "plimsoll", str(chart),
        "--namespace", SYSTEM, "--create-namespace", *values,
        "--set", "verification.enabled=true", "--set", f"images.spark={spark_image()}",
        "--wait", "--timeout", "180s",
        timeout_s=240,
    )  # fmt: skip


def install_earlier(cluster: Cluster) -> None:
    chart = Path(release("tree")) / "helm" / "plimsoll"
    install(cluster, chart, "--set", f"image.tag={earlier()}")


def install_present(cluster: Cluster) -> None:
    values = str(ROOT / "dev" / "values-local.yaml")
    install(cluster, ROOT / "helm" / "plimsoll", "--values", values)


@pytest.fixture(scope="module")
def drill(operator: Cluster) -> Iterator[Drill]:
    """The earlier release, with a cluster that serves."""
    release("images")
    install_earlier(operator)
    namespace = f"up-{uuid.uuid4().hex[:6]}"
    operator.make_namespace(namespace)
    made = Drill(operator, namespace)
    made.apply("LogCluster", "main", made.spec)
    for name, (partitions, factor, min_isr) in TOPICS.items():
        spec = {
            "partitions": partitions,
            "replicationFactor": factor,
            "minInSyncReplicas": min_isr,
        }
        made.apply("Topic", name, spec)
    ready(operator, namespace, "logcluster", "main")
    for name in TOPICS:
        ready(operator, namespace, "topic", name)
    wait_for("the metadata version to be finalised", lambda: finalised(made), ROLL_S)
    wait_for("certificates inside", lambda: inside_mode(made) == "Required" or None, ROLL_S)
    yield made
    operator.delete_namespace(namespace)
    install_present(operator)


def pods(drill: Drill) -> dict[str, str]:
    """Brokers' pods by name, as uids: a restart gives a new one."""
    found = drill.cluster.items("pods", drill.namespace, "app.kubernetes.io/component=broker")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}


def versions(drill: Drill) -> dict[str, Any]:
    found: dict[str, Any] = (drill.get("logcluster", "main").get("status") or {}).get(
        "versions", {}
    )
    return found


def finalised(drill: Drill) -> str | None:
    """Return the metadata version once no newer one can be finalised."""
    found = versions(drill)
    same = "metadata" in found and found["metadata"] == found.get("metadataFinalizable")
    return str(found["metadata"]) if same else None


def inside_mode(drill: Drill) -> str:
    status = drill.get("logcluster", "main")["status"]
    return str(status["certificates"]["internal"]["mode"])


def says(drill: Drill, **wanted: Any) -> None:
    """Wait until `status.versions` says so, and everything is in sync."""

    def probe() -> bool | None:
        found = versions(drill)
        return all(found.get(name) == value for name, value in wanted.items()) or None

    wait_for(f"status.versions to say {wanted}", probe, ROLL_S)
    wait_for("everything to be in sync", drill.settled, 120)


def change(drill: Drill, **spec: Any) -> None:
    """Edit the LogCluster's spec; None takes a field out."""
    drill.spec.update(spec)
    drill.spec = {name: value for name, value in drill.spec.items() if value is not None}
    drill.apply("LogCluster", "main", drill.spec)


@pytest.mark.timeout(1800)
def test_new_operator_restarts_no_old_broker(drill: Drill):
    with verified(drill, STEP_S, AND_NEXT_S) as watch:
        before = pods(drill)
        assert len(before) == 3
        metadata = finalised(drill)
        install_present(drill.cluster)
        says(drill, operator=PRESENT, pinned=earlier(), metadata=metadata, brokers={earlier(): 3})
        assert pods(drill) == before
        wait_for(
            "the cluster to be Ready under the operator that leads now",
            lambda: is_true(drill.get("logcluster", "main"), "Ready") or None,
            60,
        )
        assert pods(drill) == before
        assert inside_mode(drill) == "Required"
    assert not watch.below


@pytest.mark.timeout(900)
def test_brokers_roll_while_pinned_version_waits(drill: Drill):
    with verified(drill, STEP_S, AND_NEXT_S) as watch:
        before, metadata = pods(drill), finalised(drill)
        change(drill, version=PRESENT, metadataVersion=metadata)
        says(drill, pinned=PRESENT, metadata=metadata, brokers={PRESENT: 3})
        assert not set(pods(drill).values()) & set(before.values())
    assert not watch.below


@pytest.mark.timeout(900)
def test_brokers_and_operator_go_back_before_finalisation(drill: Drill):
    with verified(drill, STEP_S, AND_NEXT_S) as watch:
        change(drill, version=earlier())
        says(drill, pinned=earlier(), metadata=versions(drill)["metadata"], brokers={earlier(): 3})
        install_earlier(drill.cluster)
        wait_for("an operator of the release before to lead", drill.settled, 120)
    assert not watch.below


@pytest.mark.timeout(900)
def test_metadata_version_is_finalised_after_upgrade(drill: Drill):
    with verified(drill, STEP_S, 0) as watch:
        install_present(drill.cluster)
        says(drill, operator=PRESENT, pinned=earlier())
        change(drill, version=PRESENT, metadataVersion=None)
        says(drill, pinned=PRESENT, metadata=release_of(NEWEST), brokers={PRESENT: 3})
    assert not watch.below


@pytest.mark.timeout(900)
def test_verifications_of_all_upgrade_steps_passed(drill: Drill):
    assert_all_passed(drill)
