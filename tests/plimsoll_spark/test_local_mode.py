"""A Verification that is applied to a local cluster runs there as it runs in Kubernetes.

Its executors are processes; `make demo` is one without.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.documented_commands import ROOT
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster, runs, wait_for

from plimsoll_spark.session import JARS_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUN_S = 300
RECORDS = 2_000
OURS = "/apis/plimsoll.dev/v1alpha1/namespaces/default"
# As it is shipped, but for the cluster's and the topic's name.
EXAMPLE = (ROOT / "examples/user-orders-check.yaml").read_text()
USER = EXAMPLE.replace("{name: main}", "{name: local}").replace("name: orders}", "name: proven}")
TOPIC = """
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: proven}
spec: {clusterRef: {name: local}, partitions: 3, replicationFactor: 3, minInSyncReplicas: 2}
"""
VERIFICATION = """
---
apiVersion: plimsoll.dev/v1alpha1
kind: Verification
metadata: {name: proof}
spec:
  clusterRef: {name: local}
  topic: proven
  produce: {records: %d, recordBytes: 256, recordsPerSecond: %d}
  runner: {executors: 2}
"""


CLUSTER = """
---
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: local}
spec:
  storage: {size: 1Gi}
  brokers: {count: 3}
  maintenance: {allowDrills: true}
"""
DRILL = """  drill:
  - {at: 2s, fault: KillBroker, target: {leaderOf: {topic: proven, partition: 0}}}
  - {at: 10s, fault: PauseBroker, target: {broker: 1}, for: 6s}
  - {at: 20s, fault: PreferLeaders}
  - {at: 21s, fault: Reassign, target: {leaderOf: {topic: proven, partition: 1}}}
  - {at: 25s, fault: RollAll}
"""
FAULTS = ["KillBroker", "PauseBroker", "PreferLeaders", "Reassign", "RollAll"]


def get(cluster: LocalCluster, path: str) -> Any:
    return cluster.api.ask("GET", path)[1]


def status(cluster: LocalCluster) -> Any:
    return get(cluster, f"{OURS}/verifications/proof").get("status") or {}


def a_cluster(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch, *, rate: int, closed: bool = False
) -> LocalCluster:
    """`closed`: what --secure makes of it, and the driver logs in as a User."""
    monkeypatch.setenv(JARS_VARIABLE, str(jars))
    file, text, arguments = tmp_path / "objects.yaml", TOPIC + VERIFICATION % (RECORDS, rate), []
    if closed:
        text = f"{text}  user: orders-check\n---\n{USER}"
        arguments = ["--secure", "--port", str(*free_ports(1))]
    file.write_text(text)
    return LocalCluster(tmp_path / "data", files=[file], arguments=arguments)


def of_the_driver(directory: Path) -> list[int]:
    """The pids of whatever runs for a driver of this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        if f"TMPDIR={directory}/pods/".encode() in environment:
            found.append(int(path.parent.name))
    return [pid for pid in found if runs(pid)]


def test_verification_of_closed_local_cluster_passes(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_cluster(tmp_path, spark_jars, monkeypatch, rate=1_000, closed=True) as cluster:
        wait_for("the verdict", lambda: status(cluster).get("verdict"), RUN_S, 0.5)
        shown = status(cluster)
        assert (shown["phase"], shown["verdict"]) == ("Completed", "Passed"), cluster.said()
        assert shown["counts"]["acked"] == shown["counts"]["read"] == RECORDS
        report = get(cluster, "/api/v1/namespaces/default/configmaps/proof-report")["data"]
        assert "</html>" in report["report.html"]
        job = "/apis/batch/v1/namespaces/default/jobs/proof-driver"
        wait_for("the Job's end", lambda: get(cluster, job)["status"].get("completionTime"))
    with cluster:
        assert status(cluster)["verdict"] == "Passed", "a later start keeps the verdict"
        (pod,) = (
            one
            for one in get(cluster, "/api/v1/namespaces/default/pods")["items"]
            if one["metadata"]["name"].startswith("proof-driver-")
        )
        assert pod["status"]["phase"] == "Succeeded"


def marks(cluster: LocalCluster) -> list[Any]:
    """What became of the drill's faults so far."""
    return list(status(cluster).get("drill") or ())


def pods(cluster: LocalCluster) -> dict[str, str]:
    """The uids of the brokers' pods."""
    found = get(cluster, "/api/v1/namespaces/default/pods")["items"]
    names = {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}
    return {name: uid for name, uid in names.items() if "-broker-" in name}


def stands_still(pid: int) -> bool:
    """A stopped process is in state T."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    except OSError:
        return False


@pytest.mark.long
def test_drill_injects_every_fault_once(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(spark_jars))
    file = tmp_path / "objects.yaml"
    file.write_text(TOPIC + CLUSTER + VERIFICATION % (6_000, 150) + DRILL)
    with LocalCluster(tmp_path / "data", files=[file]) as cluster:
        first = wait_for("three brokers", lambda: len(pods(cluster)) == 3 and pods(cluster))
        wait_for("the kill", lambda: marks(cluster), RUN_S, 0.2)
        wait_for("another pod", lambda: pods(cluster) != first, RUN_S, 0.2)
        paused = wait_for(
            "a process that stands still",
            lambda: [pid for pid in cluster.broker_pids if stands_still(pid)],
            RUN_S,
            0.05,
        )
        wait_for("it runs again", lambda: not stands_still(paused[0]), RUN_S, 0.2)
        wait_for("the verdict", lambda: status(cluster).get("verdict"), RUN_S, 0.5)
        shown = marks(cluster)
        assert [(one["fault"], one["result"]) for one in shown] == [
            (fault, "Injected") for fault in FAULTS
        ], shown
        # A stall of two minutes, on a machine without processors, leaves records unanswered.
        judged = status(cluster)
        assert judged["verdict"] == "Passed" or (
            judged["conditions"][0]["reason"] == "TooFewAcked"
        ), judged
        report = get(cluster, "/api/v1/namespaces/default/configmaps/proof-report")["data"]
        told = json.loads(report["verdict.json"])["facts"]["faults"]
        assert [one["fault"] for one in told] == FAULTS
        assert report["report.html"].count('<g class="mark">') == 2 * len(FAULTS)
        moved = f"{OURS}/reassignments/proof-drill-3"
        wait_for(
            "the partition has moved",
            lambda: get(cluster, moved)["status"]["phase"] == "Completed",
            RUN_S,
        )
        wait_for(
            "all brokers restarted",
            lambda: not set(first.values()) & set(pods(cluster).values()),
            RUN_S,
        )


def test_stopped_cluster_ends_its_driver(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_cluster(tmp_path, spark_jars, monkeypatch, rate=10) as cluster:
        wait_for(
            "the first acks",
            lambda: status(cluster).get("counts", {}).get("acked"),
            RUN_S,
            0.5,
        )
        assert of_the_driver(cluster.directory)
    assert of_the_driver(cluster.directory) == []
    with cluster:
        wait_for("its end", lambda: status(cluster).get("phase") == "Failed", RUN_S, 0.2)
        assert status(cluster)["verdict"] == "Inconclusive"
        assert status(cluster)["conditions"][0]["reason"] == "DriverFailed"
        assert of_the_driver(cluster.directory) == []
