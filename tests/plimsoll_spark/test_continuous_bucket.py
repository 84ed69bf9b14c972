"""A continuous run with its evidence in a bucket goes on after its pod is gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.plimsoll_spark.s3_server import BUCKET, SECRET, S3Server

from plimsoll_spark.session import JARS_VARIABLE
from plimsoll_spark.supervisor import SUPERSEDED

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

RUN_S = 400
UNUSABLE = "this driver process of the Verification ends, and a new one starts by itself"
TOPIC = "canary"
BUDGET = {"maxStallMilliseconds": 600_000, "p99Milliseconds": 60_000, "isrFullWithinSeconds": 600}
"""Which a machine without processors keeps, too."""


class Pod:
    """The driver's pod: its temporary directory goes with it."""

    def __init__(self, folder: Path, config: Path, login: Path) -> None:
        self._temporary = folder / "pod"
        self._temporary.mkdir()
        self.log = folder / "driver.log"
        words = ["--config", str(config), "--bucket-login", str(login)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "plimsoll_spark.verification", *words],
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self._temporary)},
                start_new_session=True,
            )

    def kill_driver(self) -> None:
        found = psutil.Process(self._process.pid).children()
        (driver,) = (one for one in found if "--work" in one.cmdline())
        driver.kill()

    def end(self) -> int:
        return self._process.wait(RUN_S)

    def lose(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._temporary)

    def __enter__(self) -> Pod:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.lose()


def states(kept: Path) -> list[str]:
    """The drivers of which the bucket has the judge's state."""
    return sorted(path.name for path in (kept / "judge").glob("*"))


def test_lost_pod_leaves_its_windows_in_the_bucket(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(spark_jars))
    report, config = tmp_path / "report", tmp_path / "verification.json"
    with S3Server(tmp_path / "buckets") as server, LocalCluster(tmp_path / "data") as cluster:
        cluster.create_topic(TOPIC, 2, {"min.insync.replicas": "2"})
        cluster.wait_isr(TOPIC, 3)
        asked = {
            "name": "canary",
            "bootstrap": cluster.bootstrap,
            "topic": TOPIC,
            "mode": "Continuous",
            "window": "10s",
            "deadlineSeconds": 0,
            "produce": {"recordsPerSecond": 200, "recordBytes": 100},
            "evidence": {"s3": {"bucket": BUCKET, "endpoint": server.endpoint}},
            "budget": BUDGET,
            "report": {"directory": str(report)},
        }
        config.write_text(json.dumps(asked))
        login, kept = server.login(tmp_path / "login"), server.files / "canary"

        def rolling() -> dict[str, Any]:
            path = report / "progress.json"
            content = json.loads(path.read_text()) if path.exists() else {}
            found: dict[str, Any] = content.get("rolling") or {}
            return found

        with Pod(tmp_path, config, login) as pod:
            wait_for("two windows", lambda: rolling().get("passed", 0) >= 2, RUN_S, 0.5)
            wait_for("the judge's state", lambda: states(kept) == ["000001"], RUN_S, 0.5)
            pod.lose()
        before = rolling()
        with Pod(tmp_path, config, login) as pod:
            wait_for("another driver", lambda: rolling()["drivers"] == 2, RUN_S, 0.5)
            wait_for("windows", lambda: rolling()["passed"] >= before["passed"] + 2, RUN_S, 0.5)
            server.stop()
            pod.kill_driver()
            wait_for("a refusal", lambda: UNUSABLE in pod.log.read_text(), RUN_S, 0.5)
            server.start()
            wait_for("a third driver", lambda: rolling()["drivers"] >= 3, RUN_S, 0.5)
            passed = rolling()["passed"]
            wait_for("its windows", lambda: rolling()["passed"] >= passed + 2, RUN_S, 0.5)
            (tmp_path / "next").mkdir()
            with Pod(tmp_path / "next", config, login) as successor:
                # The node of the first was deleted, and its processes go on.
                assert pod.end() == SUPERSEDED, pod.log.read_text()[-3000:]
                drivers, passed = rolling()["drivers"], rolling()["passed"]
                wait_for("its windows", lambda: rolling()["passed"] >= passed + 2, RUN_S, 0.5)
                wait_for("one state", lambda: len(states(kept)) == 1, RUN_S, 0.5)
                after = rolling()
                assert after["drivers"] == drivers
                said = pod.log.read_text() + successor.log.read_text()
        assert (after["since"], after["violated"]) == (before["since"], 0), after
        assert after["inconclusive"] == before["inconclusive"], after
        parts = {path.relative_to(kept).parts[0] for path in kept.rglob("*") if path.is_file()}
        assert parts == {"runs", "attempts", "judge", "ledger"}
        assert SECRET not in said
        page = (report / "report.html").read_text()
        assert "driver process 2 continued the run" in page
        assert all(f"<td>{limit}</td>" in page for limit in BUDGET), page
