"""A Verification of a local cluster keeps its evidence in a claim, and outlives its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.plimsoll_spark.test_local_mode import OURS, TOPIC, get, of_the_driver

from plimsoll_spark.session import JARS_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUN_S = 400
RECORDS = 20_000
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "proofs"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
VERIFICATION = f"""
---
apiVersion: plimsoll.dev/v1alpha1
kind: Verification
metadata: {{name: orders-check}}
spec:
  clusterRef: {{name: local}}
  topic: proven
  produce: {{records: {RECORDS}, recordBytes: 100, recordsPerSecond: 1000}}
  evidence: {{persistentVolumeClaim: proofs, keep: Always}}
"""


def status(cluster: LocalCluster, name: str) -> Any:
    return get(cluster, f"{OURS}/verifications/{name}").get("status") or {}


def resume(cluster: LocalCluster) -> Any:
    """`kubectl plimsoll verify --resume orders-check`."""
    words = [sys.executable, "-m", "plimsoll_operator.kubectl_plugin.app", "verify"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.directory / "kubeconfig")}
    done = subprocess.run(
        [*words, "--resume", "orders-check", "-o", "json"],
        env=environment,
        capture_output=True,
        timeout=RUN_S,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    decoder, text, last = json.JSONDecoder(), done.stdout.strip(), None
    while text:
        last, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
    return last


def test_killed_pod_has_a_successor_that_judges(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(spark_jars))
    file = tmp_path / "objects.yaml"
    file.write_text(TOPIC + VERIFICATION)
    with LocalCluster(tmp_path / "data", files=[file]) as cluster:
        wait_for(
            "the missing claim",
            lambda: "EvidenceNotReady" in json.dumps(status(cluster, "orders-check")),
            RUN_S,
            0.5,
        )
        cluster.api.ask("POST", CLAIMS, CLAIM)
        run = wait_for("the ledger", lambda: a_run(cluster), RUN_S, 0.5)
        for pid in of_the_driver(cluster.directory):
            os.kill(pid, signal.SIGKILL)
        wait_for("a verdict", lambda: status(cluster, "orders-check").get("verdict"), RUN_S, 0.5)
        first = status(cluster, "orders-check")
        assert (first["verdict"], first["phase"]) == ("Inconclusive", "Failed"), cluster.said()
        assert first["conditions"][0]["reason"] == "DriveIncomplete", first
        assert first["counts"]["read"] >= first["counts"]["acked"] > 0
        assert first["evidence"]["run"] == run.name
        assert (run / "results/000002/report.html").exists()
        again = resume(cluster)["status"]
        assert again["conditions"][0]["reason"] == "DriveIncomplete", again
        assert again["counts"]["acked"] == first["counts"]["acked"]


def a_run(cluster: LocalCluster) -> Path | None:
    """The directory of the run, once a file of its ledger is complete."""
    found = sorted(cluster.directory.glob("claims/proofs/*/ledger/[!_]*.parquet"))
    return found[0].parents[1] if found else None
