"""Commands of the documents, taken from their pages and run as a reader would type them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from dev.kubectl import local_environment
from tests.documented_commands import ROOT, commands, fences
from tests.integration.local_cluster import LocalCluster, wait_for

TIMEOUT_S = 120
SETTLED_S = 90
ASSIGNS = re.compile(r"(export )?\w+=")
OBJECTS = """
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main, namespace: kafka}
spec: {brokers: {count: 5}, storage: {size: 1Gi}}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: orders, namespace: kafka}
spec: {clusterRef: {name: main}, partitions: 15, replicationFactor: 3, minInSyncReplicas: 2}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: payments, namespace: kafka}
spec: {clusterRef: {name: main}, partitions: 5, replicationFactor: 3, minInSyncReplicas: 2}
"""


class Terminal:
    """A shell that remembers what it assigned; each command must succeed."""

    def __init__(self, kubeconfig: str) -> None:
        path = local_environment()["PATH"]
        if shutil.which("kubectl", path=path) is None:
            pytest.skip("kubectl is not installed: dev/node.sh install")
        self.environment = {**os.environ, "PATH": path, "KUBECONFIG": kubeconfig}
        # Assignments so far; each is evaluated anew for every command behind it.
        self._assigned: list[str] = []

    def type(self, command: str, stdin: str | None = None) -> str:
        if ASSIGNS.match(command):
            self._assigned.append(command)
        done = subprocess.run(
            ["bash", "-c", "\n".join(["set -euo pipefail", *self._assigned, command])],
            cwd=ROOT,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


def test_local_cluster_commands_match_the_page(tmp_path: Path) -> None:
    page = commands(ROOT / "docs/local.md")
    # `--secure` and its client: tests/integration/test_local_secure.py.
    setup, start, metadata, write, read, share, *kubectl, _, _ = page
    terminal = Terminal(kubeconfig=os.devnull)
    terminal.type(setup)
    file = ROOT / "examples/topic-orders.yaml"
    directory = tmp_path / "log"
    with LocalCluster(directory, brokers=3, files=[file]) as cluster:
        words = start.replace("/tmp/log", str(directory)).replace("examples/", f"{file.parent}/")
        assert sorted(shlex.split(words)[2:]) == sorted(cluster.command[4:])
        first = cluster.bootstrap.partition(",")[0]

        def typed(command: str) -> str:
            command = command.replace("127.0.0.1:…", first)
            return terminal.type(command.replace("/tmp/log", str(directory)))

        assert 'topic "orders" with 15 partitions' in typed(metadata)
        typed(write)
        assert sorted(typed(read).split(), key=int) == [str(n) for n in range(1, 1001)]
        assert sorted(typed(share).split(), key=int) == [str(n) for n in range(1, 1001)]
        assert typed(share) == "", "the group has read them"
        export, topics, message, patch, describe = kubectl
        typed(export)
        assert typed(topics).splitlines()[1].startswith("orders ")
        served = "15 partitions have a leader and at least min ISR.\n"
        wait_for("the topic's message", lambda: typed(message) == served, SETTLED_S, 1)
        assert typed(patch) == "logcluster.plimsoll.dev/main patched\n"
        wait_for(
            "a Rebalance that waits for its approval",
            lambda: "main-fill-3 waits for approval" in typed(describe),
            SETTLED_S,
            1,
        )


def test_commands_of_operations_do_what_the_page_says(tmp_path: Path) -> None:
    page = ROOT / "docs/operations.md"
    move, rebalance = (
        next(
            one.text for one in fences(page) if one.kind == "yaml" and f"kind: {kind}\n" in one.text
        )
        for kind in ("Reassignment", "Rebalance")
    )
    every, shown, events, moves, moved, plan, approve, restart, versions, brokers = [
        command for command in commands(page) if command.startswith(("kubectl", "hash="))
    ]
    (acknowledge,) = commands(ROOT / "docs/topics.md")
    (tmp_path / "objects.yaml").write_text(OBJECTS)
    directory = tmp_path / "log"
    cluster = LocalCluster(directory, brokers=None, files=[tmp_path / "objects.yaml"])
    with cluster:
        terminal = Terminal(kubeconfig=str(directory / "kubeconfig"))
        assert "logcluster.plimsoll.dev/main" in terminal.type(every)
        assert "kind: LogCluster" in terminal.type(shown)
        assert "kind: Topic" in terminal.type("kubectl get topic orders -n kafka -o yaml")
        assert "logcluster/main" in terminal.type(events)
        terminal.type("kubectl apply -f -", stdin=move)
        assert "orders-off-broker-1" in terminal.type(moves)
        terminal.type(moved)
        assert cluster.topic("orders")[0].replicas == [3, 4, 0]
        assert all(1 not in one.replicas for one in cluster.topic("payments").values())

        terminal.type("kubectl apply -f -", stdin=rebalance)
        phase = "kubectl get rebalance afresh -n kafka -o jsonpath='{.status.phase}'"
        wait_for("the plan", lambda: terminal.type(phase) == "AwaitingApproval", SETTLED_S, 1)
        terminal.type(plan)
        assert "patched" in terminal.type(approve)
        wait_for("its end", lambda: terminal.type(phase) == "Completed", SETTLED_S, 1)

        assert "annotated" in terminal.type(acknowledge)
        assert json.loads(terminal.type(versions))["brokers"] != {}
        header, *rows = terminal.type(brokers).splitlines()
        assert header.split()[:4] == ["NAME", "CLUSTER", "BROKER", "STATE"]
        assert [row.split()[:4] for row in rows] == [
            [f"main-{broker}", "main", str(broker), "Active"] for broker in range(5)
        ]
        before = cluster.pids
        assert "annotated" in terminal.type(restart)
        wait_for(
            "every broker to be another process",
            lambda: (
                not set(before.values()) & set(cluster.broker_pids)
                and len(cluster.broker_pids) == 5
            ),
            2 * SETTLED_S,
            1,
        )
