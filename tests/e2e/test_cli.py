"""`kubectl plimsoll` against a real API server, with the rights that the documents name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dev.kubectl import Cluster, CommandFailed, is_true, wait_for

SYSTEM = "plimsoll-system"
READY_S = 180
VERIFIED_S = 240
LOG_CLUSTER = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "LogCluster",
    "metadata": {"name": "main"},
    "spec": {
        "brokers": {"count": 3, "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}}},
        "storage": {"size": "1Gi"},
    },
}
ORDERS = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders"},
    "spec": {"clusterRef": {"name": "main"}, "partitions": 6, "minInSyncReplicas": 2},
}


class OnCall:
    """A person with the `view` role in one namespace and the chart's Role in the operator's."""

    def __init__(self, cluster: Cluster, namespace: str, home: Path, *, trusted: bool) -> None:
        self.namespace = namespace
        name = "on-call" if trusted else "stranger"
        cluster.kubectl("create", "serviceaccount", name, "-n", namespace)
        who = f"--serviceaccount={namespace}:{name}"
        cluster.kubectl("create", "rolebinding", name, "--clusterrole=view", who, "-n", namespace)
        self.bound = f"{namespace}-{name}"
        if trusted:
            cluster.kubectl(
                "create", "rolebinding", self.bound, "--role=plimsoll-kubectl", who, "-n", SYSTEM
            )
        token = cluster.kubectl("create", "token", name, "-n", namespace, "--duration=1h").strip()
        config = yaml.safe_load(
            cluster.kubectl("config", "view", "--minify", "--raw", "-o", "yaml")
        )
        config["users"] = [{"name": name, "user": {"token": token}}]
        context = config["contexts"][0]
        context["context"] |= {"user": name, "namespace": namespace}
        config["current-context"] = context["name"]
        path = home / name
        path.write_text(yaml.safe_dump(config))
        self.environment = {**os.environ, "KUBECONFIG": str(path)}

    def run(self, *words: str, timeout_s: int = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "plimsoll_operator.kubectl_plugin.app", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def data(self, *words: str) -> Any:
        done = self.run(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def apply(cluster: Cluster, namespace: str, body: dict[str, Any]) -> None:
    cluster.apply(body, namespace)


@pytest.mark.timeout(READY_S + VERIFIED_S + 180)
def test_person_on_call_needs_plain_rights(
    operator: Cluster, namespace: str, tmp_path: Path
) -> None:
    cluster = operator
    for body in (LOG_CLUSTER, ORDERS):
        apply(cluster, namespace, body)
    wait_for(
        "orders serves",
        lambda: is_true(cluster.get("topic", "orders", namespace), "Ready") or None,
        READY_S,
    )
    person = OnCall(cluster, namespace, tmp_path, trusted=True)
    try:
        _sees_everything(cluster, person)
        _why_survives_a_broker_and_an_operator_that_does_not_answer(cluster, person)
        _verifies(cluster, person)
    finally:
        cluster.kubectl("delete", "rolebinding", person.bound, "-n", SYSTEM)
    _nobody_else_sees_the_view(cluster, OnCall(cluster, namespace, tmp_path, trusted=False))


def _sees_everything(cluster: Cluster, person: OnCall) -> None:
    status = person.data("status")
    assert status["view"]["active"]
    assert status["view"]["brokers"]["ready"] == 3
    assert [row["topic"] for row in person.data("topics")["topics"]].count("orders") == 1
    partitions = person.data("topic", "orders")["partitions"]
    assert [sorted(row["isr"]) for row in partitions] == [[0, 1, 2]] * 6
    assert [row["state"] for row in person.data("brokers")["brokers"]] == ["Active"] * 3
    assert person.data("what-if", "1", "2")["underMinISR"] >= 6
    assert isinstance(person.data("blocked")["objects"], list)
    report = Path(person.environment["KUBECONFIG"]).parent / "r.tar.gz"
    assert "view-cluster.json" in person.data("report", "-f", str(report))["files"]


def _changes(person: OnCall, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = person.data("why", "orders", "0", *words)["changes"]
    return found


def _why_survives_a_broker_and_an_operator_that_does_not_answer(
    cluster: Cluster, person: OnCall
) -> None:
    before = _changes(person)
    assert before[0]["asked"] == f"Topic {person.namespace}/orders"
    cluster.kubectl(
        "delete", "pod", "main-broker-0-0", "-n", person.namespace, "--grace-period=0", "--force"
    )
    back = wait_for(
        "broker 0 left the ISR and came back",
        lambda: found if len(found := _changes(person)) >= len(before) + 2 else None,
        READY_S,
        1,
    )
    left = back[len(before)]
    assert left["why"] in ("restart", "fenced")
    assert not left["planned"]
    assert None not in {one["time"] for one in back}
    archived = _changes(person, "--operator-namespace", "default")
    assert archived[: len(back)] == [one | {"leaderEpoch": None} for one in back]


def _verifies(cluster: Cluster, person: OnCall) -> None:
    who = f"--serviceaccount={person.namespace}:on-call"
    cluster.kubectl(
        "create", "rolebinding", "edit", "--clusterrole=edit", who, "-n", person.namespace
    )
    words = ("verify", "orders", "--records", "1000", "--allow-existing")
    done = person.run(*words, timeout_s=VERIFIED_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


def _nobody_else_sees_the_view(cluster: Cluster, stranger: OnCall) -> None:
    done = stranger.run("topics")
    assert done.returncode == 1
    assert "Cannot list the operator's pods" in " ".join(done.stderr.split())
    shown = stranger.run("status")
    assert shown.returncode == 0
    # Whatever the width of the terminal.
    assert "Showing the object's last status." in " ".join(shown.stdout.split())
    pods = cluster.items("pods", SYSTEM, "app.kubernetes.io/component=operator")
    assert pods
    for pod in pods:
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:9100/proxy/v1/clusters"
        with pytest.raises(CommandFailed, match="401"):
            cluster.raw(path)
