"""`kubectl plimsoll` against a local cluster: the same verbs as against Kubernetes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.documented_commands import ROOT, commands
from tests.integration import forked
from tests.integration.listening import OURS
from tests.integration.local_cluster import LocalCluster, produce, wait_for
from tests.integration.test_documented_commands import Terminal
from tests.integration.test_local_objects import ask

LIMIT_S = 60


class Plugin:
    """The command, against one local cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.environment = {**os.environ, "KUBECONFIG": str(cluster.directory / "kubeconfig")}
        self.words = [sys.executable, "-m", "plimsoll_operator.kubectl_plugin.app"]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = forked.run(forked.PLUGIN, words, timeout=LIMIT_S, environment=self.environment)
        texts = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, *texts)

    def text(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def data(self, *words: str) -> Any:
        return json.loads(self.text(*words, "-o", "json"))

    def condition(self, kind: str) -> dict[str, Any]:
        """Wait until the cluster's status has the condition, and return it."""

        def found() -> dict[str, Any] | None:
            shown = self.data("status")["status"].get("conditions", ())
            return next((one for one in shown if one["type"] == kind), None)

        return wait_for(f"the condition {kind}", found)

    def refusal(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 1, done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr.strip()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Nobody restarts its brokers; the topic `made` is a client's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIMSOLL_SPARK_JARS", "/nonexistent")
        directory = tmp_path_factory.mktemp("cli") / "c"
        with LocalCluster(directory) as running:
            running.create_topic("made", 3, {"min.insync.replicas": "2", "retention.ms": "77000"})
            running.wait_isr("made", 3)
            yield running


@pytest.fixture(scope="module")
def plugin(cluster: LocalCluster) -> Plugin:
    return Plugin(cluster)


def test_cluster_and_brokers_match_the_controller(plugin: Plugin) -> None:
    status = plugin.data("status")
    assert status["view"]["active"]
    assert status["view"]["brokers"]["ready"] == 3
    assert "led by" in plugin.text("status")
    rows = plugin.data("brokers")["brokers"]
    assert [(row["broker"], row["state"]) for row in rows] == [(b, "Active") for b in range(3)]
    assert all(row["heardMsAgo"] is not None for row in rows)
    assert yaml.safe_load(plugin.text("brokers", "-o", "yaml"))["brokers"][2]["broker"] == 2


def test_topics_of_clients_are_listed_with_their_partitions(plugin: Plugin) -> None:
    rows = {row["topic"]: row for row in plugin.data("topics")["topics"]}
    assert rows["made"]["declaredBy"] is None
    assert (rows["made"]["partitions"], rows["made"]["minIsr"]) == (3, 2)
    partitions = plugin.data("topic", "made")["partitions"]
    assert [sorted(row["isr"]) for row in partitions] == [[0, 1, 2]] * 3
    assert plugin.refusal("topic", "none") == "The cluster has no topic none."


def test_size_and_lag_come_from_the_leaders(plugin: Plugin) -> None:
    assert not produce(plugin.cluster.bootstrap, "made", [b"x" * 100] * 300).errors

    def told() -> bool:
        rows = plugin.data("topic", "made")["partitions"]
        return sum(row["bytes"] or 0 for row in rows) > 3_000

    wait_for("leaders tell how much they hold", told, 60, 1)


def test_what_if_counts_what_would_stop(plugin: Plugin) -> None:
    assert plugin.data("what-if", "2")["underMinISR"] == 0
    two = plugin.data("what-if", "1", "2")
    assert {row["topic"] for row in two["underPartitions"]} >= {"made"}
    every = plugin.data("what-if", "0", "1", "2")
    assert every["offline"] >= 3
    assert plugin.refusal("what-if", "7") == "This cluster has no broker 7."


def test_adopted_topic_is_declared_unchanged(plugin: Plugin) -> None:
    cluster = plugin.cluster
    cluster.create_topic("Old_Name", 2, {"min.insync.replicas": "2", "retention.ms": "88000"})
    before = plugin.data("topic", "Old_Name")
    body = yaml.safe_load(plugin.text("adopt", "Old_Name"))
    assert ask(cluster, "POST", f"{OURS}/topics", body)[0] == 201

    def declared() -> bool:
        return plugin.data("topic", "Old_Name")["declaredBy"] == "default/old-name"

    wait_for("its object declares it", declared, 30, 0.5)
    after = plugin.data("topic", "Old_Name")
    for field in ("topicId", "minIsr", "replicationFactor"):
        assert after[field] == before[field], field
    # Min ISR has a field of its own in a Topic.
    assert after["configs"] == {"retention.ms": "88000"}
    assert "is already declared by default/old-name" in plugin.refusal("adopt", "Old_Name")


def test_verification_that_cannot_run_says_so_and_fails(plugin: Plugin) -> None:
    done = plugin.run("verify", "made", "--records", "1", "--allow-existing")
    assert done.returncode == 1
    assert "VerificationDisabled" in done.stdout


def test_verification_of_missing_topic_is_refused(plugin: Plugin) -> None:
    assert plugin.refusal("verify", "nosuch") == (
        "Cannot verify topic nosuch. The cluster has no topic nosuch. No Topic object of "
        "LogCluster local in default declares topic nosuch either; apply one, or create the topic."
    )


def test_report_is_written_and_holds_what_is_shown(plugin: Plugin, tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    assert plugin.data("report", "-f", str(path))["missing"] == []
    with tarfile.open(path) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"view-cluster.json", "history.jsonl", "logclusters.yaml", "pods.yaml"} <= names


def test_watched_json_is_printed_again_when_it_changes(plugin: Plugin) -> None:
    # A run in the background ignores SIGINT, and so would its children.
    words = ["env", "--default-signal=INT", *plugin.words, "topics", "--watch", "-o", "json"]
    with subprocess.Popen(
        words, env=plugin.environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        decoder, seen = json.JSONDecoder(), ""

        def document() -> Any:
            nonlocal seen
            while True:
                try:
                    found, end = decoder.raw_decode(seen.lstrip())
                except ValueError:
                    line = watching.stdout.readline()  # type: ignore[union-attr]
                    assert line, "it ended"
                    seen += line
                    continue
                seen = seen.lstrip()[end:]
                return found

        try:
            assert "added" not in {row["topic"] for row in document()["topics"]}
            plugin.cluster.create_topic("added", 1)
            while "added" not in {row["topic"] for row in document()["topics"]}:
                pass
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait(LIMIT_S) == 0


def test_unknown_cluster_and_namespace_are_sentences(plugin: Plugin) -> None:
    assert plugin.refusal("status", "-c", "other") == (
        "There is no LogCluster other in namespace default."
    )
    assert plugin.refusal("status", "-n", "kafka") == (
        "There is no LogCluster in namespace kafka; choose another namespace with -n."
    )


def changes(plugin: Plugin, partition: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plugin.data("why", "t", str(partition))["changes"]
    return found


def test_why_lists_changes_after_total_crash(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", restart=False)
    with cluster:
        plugin = Plugin(cluster)
        cluster.create_topic("t", 1, {"min.insync.replicas": "1"})
        cluster.wait_isr("t", 3)
        leader = cluster.topic("t")[0].leader
        cluster.kill_broker(leader)
        wait_for("another one leads", lambda: cluster.topic("t")[0].leader not in (leader, -1))
        made, lost = changes(plugin)
        assert made["what"].startswith("The partition was created: ")
        assert made["asked"] == "a client"
        assert lost["what"].startswith(f"leader {leader} → ")
        assert (lost["why"], lost["planned"], lost["leaderEpoch"]) == ("fenced", False, 1)
        assert lost["time"] is not None
        assert "fenced on proof" in lost["cause"]
        cluster.kill_everything()
        cluster.start()
        cluster.wait_isr("t", 3)
        told = changes(plugin)
        assert told[:2] == [made, lost]
        assert told[-1]["isr"] is not None
        assert len(told[-1]["isr"]) == 3
        assert "The archive of the metadata history lacks the changes at this point." not in {
            one["what"] for one in told
        }
        nothing = plugin.text("why", "t", "0", "--since", "0s")
        assert "Partition t-0 did not change in that time." in nothing
        assert "Topic t has no partition 9" in plugin.refusal("why", "t", "9")


def test_documented_commands_run_as_a_plugin_of_kubectl(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken from docs/cli.md and typed as they stand there, but for names."""
    script = tmp_path / "bin" / "kubectl-plimsoll"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {" ".join(plugin.words)} "$@"\n')
    script.chmod(0o755)
    terminal = Terminal(kubeconfig=plugin.environment["KUBECONFIG"])
    terminal.environment["PATH"] = f"{script.parent}:{terminal.environment['PATH']}"
    assert shutil.which("kubectl-plimsoll", path=terminal.environment["PATH"])
    plugin.cluster.create_topic("orders", 5)
    run = [one for one in commands(ROOT / "docs/cli.md") if one.startswith("kubectl plimsoll ")]
    assert len(run) >= 10
    for command in run:
        typed = command.replace(" -n kafka", "").replace(" --watch", "")
        typed = typed.replace("report.tar.gz", str(tmp_path / "report.tar.gz"))
        if " verify " in typed:
            continue  # needs Spark: tests/e2e/test_cli.py
        assert terminal.type(typed), command
