"""A continuous Verification of a local cluster outlives its driver and a broker, and names a record
that the log never held."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.listening import asked
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.plimsoll_spark.test_local_evidence import CLAIM, CLAIMS, status
from tests.plimsoll_spark.test_local_mode import CLUSTER, OURS, TOPIC, get, of_the_driver

from plimsoll_operator.api.labels import ACKNOWLEDGE_VIOLATION
from plimsoll_spark import ledger
from plimsoll_spark.session import JARS_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

RUN_S = 400
VERIFICATION = """
---
apiVersion: plimsoll.dev/v1alpha1
kind: Verification
metadata: {name: canary}
spec:
  clusterRef: {name: local}
  topic: proven
  mode: Continuous
  window: 10s
  produce: {recordsPerSecond: 50, recordBytes: 100}
  evidence: {persistentVolumeClaim: proofs}
  drill: [{at: 2s, fault: KillBroker, target: {broker: 1}}]
"""
NEVER_SENT = 2**40


def windows(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = status(cluster, "canary").get("continuous") or {}
    return found


def said_of_the_run(cluster: LocalCluster) -> Any:
    """`kubectl plimsoll verify --show canary -o json`."""
    words = [sys.executable, "-m", "plimsoll_operator.kubectl_plugin.app", "verify"]
    done = subprocess.run(
        [*words, "--show", "canary", "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(cluster.directory / "kubeconfig")},
        capture_output=True,
        timeout=RUN_S,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def page(cluster: LocalCluster) -> str:
    """The report so far."""
    found = get(cluster, "/api/v1/namespaces/default/configmaps/canary-report")
    return str(found["data"].get("report.html", ""))


def claim_an_ack(cluster: LocalCluster) -> dict[str, Any]:
    """Add an acknowledgement to the ledger that no broker gave, at an offset that was read."""
    (directory,) = cluster.directory.glob("claims/proofs/*/ledger")
    newest = max(directory.glob("[!_]*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    rows, _ = ledger.read_files([newest])
    row = {
        "partition": int(rows.partition[-1]),
        "offset": int(rows.offset[-1]),
        "producer": 60_000,
        "sequence": NEVER_SENT,
        "outcome": ledger.ACKED,
        "send_ms": float(rows.send_ms[-1]),
        "settled_ms": float(rows.settled_ms[-1]),
    }
    batch = pa.RecordBatch.from_pylist([row], schema=ledger.SCHEMA)
    ledger.write_chunk(directory / "producer-60000-000000000.parquet", batch)
    return row


def test_continuous_run_outlives_kills_and_names_a_loss(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(spark_jars))
    file = tmp_path / "objects.yaml"
    file.write_text(TOPIC + CLUSTER + VERIFICATION)
    with LocalCluster(tmp_path / "data", files=[file]) as cluster:
        cluster.api.ask("POST", CLAIMS, CLAIM)
        wait_for("a verdict", lambda: status(cluster, "canary").get("verdict"), RUN_S, 0.5)
        (fault,) = wait_for("the fault", lambda: status(cluster, "canary").get("drill"), RUN_S, 0.5)
        assert (fault["fault"], fault["result"]) == ("KillBroker", "Injected")
        before = windows(cluster)
        assert before["drivers"] == 1, cluster.said()
        for pid in of_the_driver(cluster.directory):
            if b"--work" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        wait_for("another driver", lambda: windows(cluster)["drivers"] == 2, RUN_S, 0.5)
        wait_for(
            "windows that pass after it",
            lambda: windows(cluster)["passed"] >= before["passed"] + 2,
            RUN_S,
            0.5,
        )
        assert windows(cluster)["violated"] == 0, windows(cluster)
        shown = said_of_the_run(cluster)["status"]["continuous"]
        assert (shown["drivers"], shown["recent"][0]["verdict"]) == (2, "Passed")
        assert shown["recent"][0]["recordsPerSecond"] > 0
        wait_for(
            "the report", lambda: "driver process 2 continued the run" in page(cluster), RUN_S, 0.5
        )
        assert "<title>injected fault KillBroker: " in page(cluster)
        lost = claim_an_ack(cluster)
        wait_for("the loss", lambda: status(cluster, "canary")["verdict"] == "Violated", RUN_S, 0.5)
        shown = status(cluster, "canary")
        told = shown["continuous"]["lastLoss"]
        assert {name: told[name] for name in ("topic", "partition", "offset", "sequence")} == {
            "topic": "proven",
            "sequence": NEVER_SENT,
            **{name: lost[name] for name in ("partition", "offset")},
        }
        assert (shown["phase"], shown["conditions"][0]["reason"]) == ("Running", "RecordsChanged")
        end = shown["continuous"]["lastViolation"]["end"]
        assert f"{ACKNOWLEDGE_VIOLATION}={end}" in shown["conditions"][0]["message"]
        wait_for("the window's end", lambda: windows(cluster)["violated"] == 1, RUN_S, 0.5)
        end = windows(cluster)["lastViolation"]["end"]
        patch = {"metadata": {"annotations": {ACKNOWLEDGE_VIOLATION: end}}}
        asked(cluster, "PATCH", f"{OURS}/verifications/canary", patch)
        wait_for(
            "Passed again", lambda: status(cluster, "canary")["verdict"] == "Passed", RUN_S, 0.5
        )
        known = f"Violations are acknowledged until {end}"
        passed = '<p class="verdict Passed">'
        wait_for("the heading", lambda: known in (it := page(cluster)) and passed in it, RUN_S, 0.5)
        events = get(cluster, "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        told_of = [one["note"] for one in events if one["reason"] == "ContinuousVerdictChanged"]
        assert any(": Violated." in note for note in told_of), told_of
