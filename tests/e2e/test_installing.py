"""Installing on a real Kubernetes: preflight, its hook, `helm test`, rights in one namespace."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dev.kubectl import ROOT, Cluster, CommandFailed, wait_for
from tests.e2e.release import SYSTEM
from tests.e2e.test_operator import ORDERS, a_log_cluster, apply, ready

from plimsoll_operator.preflight.checklist import BEFORE

PROBE = "plimsoll-preflight"


def preflight(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """What the command says, by check; `exit_code` besides."""
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll_operator.cli", "preflight", "--json", *arguments],
        env=cluster.environment, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)["checks"]
    return {one["check"]: one for one in rows} | {"exit_code": done.returncode}


def test_preflight_passes_on_the_node_and_leaves_nothing(operator: Cluster):
    found = preflight(operator, "-n", SYSTEM)
    told = {name: found[name]["message"] for name in BEFORE}
    assert found["exit_code"] == 0, told
    for name in ("kubernetes-version", "storage-class", "rights", "priority-and-fairness"):
        assert found[name]["result"] in ("ok", "warning"), told
        assert "Not checked" not in told[name]
    assert found["rights"]["result"] == "ok", told
    assert "100 writes of one MetadataBatch" in told["api-latency"]
    for kind in ("metadatabatches.internal.plimsoll.dev", "configmaps"):
        assert operator.get(kind, PROBE, SYSTEM) is None


def test_preflight_names_what_is_missing(operator: Cluster):
    found = preflight(operator, "-n", "nowhere-at-all", "--storage-class", "no-such-class")
    assert found["exit_code"] == 1
    assert "StorageClass no-such-class does not exist" in found["storage-class"]["message"]
    assert "create the namespace first" in found["api-latency"]["message"]


@pytest.fixture
def failing_webhook(operator: Cluster, namespace: str) -> Iterator[str]:
    """Before ConfigMaps of the test's namespace alone; nobody answers for it."""
    name = f"{namespace}-policy"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "check.plimsoll.example",
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "nobody", "namespace": namespace}},
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": namespace}
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
            }
        ],
    }  # fmt: skip
    operator.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    yield name
    operator.kubectl("delete", "validatingwebhookconfiguration", name)


def test_preflight_names_a_dangerous_webhook(
    operator: Cluster, namespace: str, failing_webhook: str
):
    def seen(*arguments: str) -> str:
        found = preflight(operator, "--check", "webhooks", *arguments)["webhooks"]
        return str(found["message"])

    assert failing_webhook in seen("--watch-namespace", namespace)
    assert failing_webhook in seen()
    assert failing_webhook not in seen("--watch-namespace", SYSTEM)


def test_account_without_rights_is_told_which_it_lacks(
    operator: Cluster, namespace: str, tmp_path: Path
):
    operator.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    token = operator.kubectl("create", "token", "nobody", "-n", namespace).strip()
    config = json.loads(operator.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    poor = Cluster(operator.environment | {"KUBECONFIG": str(path)})
    found = preflight(poor, "-n", namespace)
    assert found["exit_code"] == 1
    assert "rights are missing: get namespaces" in found["rights"]["message"]
    assert found["storage-class"]["result"] == "warning", "it may not list them"


def upgrade(cluster: Cluster, *values: str) -> None:
    """The release as it is, but for these values, NAME=JSON."""
    settings = [flag for value in values for flag in ("--set-json", value)]
    cluster.run(
        "helm", "upgrade", "plimsoll", str(ROOT / "helm" / "plimsoll"), "--namespace", SYSTEM,
        "--reuse-values", *settings, "--wait", "--timeout", "180s",
        timeout_s=300,
    )  # fmt: skip


def release_works(cluster: Cluster) -> None:
    """By `helm test`, whose pods are gone afterwards."""
    cluster.run("helm", "test", "plimsoll", "-n", SYSTEM, "--timeout", "180s", timeout_s=240)
    selector = "app.kubernetes.io/component=test"
    wait_for(
        "the pods of helm test to be gone",
        lambda: None if cluster.items("pods", SYSTEM, selector) else True,
        60,
    )


def test_helm_test_passes_on_the_installed_release(operator: Cluster):
    release_works(operator)


@pytest.fixture
def hooked(operator: Cluster) -> Iterator[Cluster]:
    """The release upgraded with the preflight hook, which takes its account and rights away."""
    upgrade(operator, "preflight.enabled=true")
    yield operator
    upgrade(operator, "preflight.enabled=false")


def test_preflight_hook_passes_an_upgrade(hooked: Cluster):
    for kind in ("job", "serviceaccount", "role", "rolebinding", "configmap"):
        assert hooked.get(kind, PROBE, SYSTEM) is None, kind
    for kind in ("clusterrole", "clusterrolebinding"):
        assert hooked.get(kind, PROBE, SYSTEM) is None, kind


def test_preflight_hook_stops_a_failing_upgrade(operator: Cluster):
    with pytest.raises(CommandFailed, match="pre-upgrade"):
        upgrade(operator, "preflight.enabled=true", 'preflight.storageClass="no-such-class"')
    try:
        said = operator.kubectl("logs", "job/plimsoll-preflight", "-n", SYSTEM)
        assert "StorageClass no-such-class does not exist" in " ".join(said.split())
    finally:
        upgrade(operator, "preflight.enabled=false", 'preflight.storageClass=""')
        clean_up_after_a_failed_hook(operator)


def clean_up_after_a_failed_hook(cluster: Cluster) -> None:
    """A hook that failed stays, for its log to be read, until the next one replaces it."""
    kinds = "job,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding"
    cluster.kubectl("delete", kinds, PROBE, "-n", SYSTEM, "--ignore-not-found")


@pytest.fixture
def narrow(operator: Cluster, namespace: str) -> Iterator[str]:
    """The only namespace that the operator watches, with its rights in a Role there."""
    upgrade(operator, f'watch.namespaces=["{namespace}"]')
    yield namespace
    upgrade(operator, "watch.namespaces=[]")


def test_namespaced_operator_needs_no_cluster_rights(operator: Cluster, narrow: str):
    role = operator.get("clusterrole", "plimsoll", SYSTEM)
    assert role is not None
    assert {one for rule in role["rules"] for one in rule.get("resources", ())} == {
        "namespaces", "nodes", "customresourcedefinitions",
        "tokenreviews", "subjectaccessreviews",  # questions, which are not stored
    }  # fmt: skip
    apply(operator, narrow, a_log_cluster(), ORDERS)
    ready(operator, narrow, "logcluster", "main")
    ready(operator, narrow, "topic", "orders")
    release_works(operator)
    selector = "app.kubernetes.io/component=operator"
    for pod in operator.items("pods", SYSTEM, selector):
        said = operator.kubectl("logs", pod["metadata"]["name"], "-n", SYSTEM)
        assert "forbidden" not in said.lower()
