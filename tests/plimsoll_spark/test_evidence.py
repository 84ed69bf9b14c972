"""Runs whose driver or JVM dies half-way: the ledger stays, and the next driver judges it."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.plimsoll_spark.s3_server import BUCKET, SECRET, S3Server

from plimsoll_spark.session import JARS_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RECORDS = 20_000
WITHIN_S = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("evidence") / "data", brokers=3) as local:
        yield local


class Driver:
    """A driver with evidence in a directory; each call of `start` is a new process."""

    def __init__(self, folder: Path, jars: Path, cluster: LocalCluster, **asked: Any) -> None:
        self.report, self.log = folder / "report", folder / "driver.log"
        self.evidence = folder / "evidence"
        self._config = folder / "verification.json"
        self._environment = {**os.environ, JARS_VARIABLE: str(jars)}
        base = {
            "name": "check",
            "bootstrap": cluster.bootstrap,
            "produce": {"records": RECORDS, "recordsPerSecond": 1_000, "recordBytes": 100},
            "evidence": {"directory": str(self.evidence)},
            "report": {"directory": str(self.report)},
        }
        self._config.write_text(json.dumps(base | asked))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "plimsoll_spark.verification"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--config", str(self._config), *options],
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def read(self, name: str) -> dict[str, Any]:
        path = self.report / name
        content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return content

    def wait_acked(self, count: int) -> None:
        """Until so many records were acknowledged, and a file of the ledger is complete."""

        def there() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            acked = self.read("progress.json").get("counts", {}).get("acked", 0)
            return acked >= count and any(self.evidence.glob("check/ledger/[!_]*.parquet"))

        wait_for(f"{count} acks", there, WITHIN_S, 0.1)

    def kill_group(self) -> None:
        """As a pod that is killed for want of memory: all processes at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_jvm(self) -> None:
        assert self._process is not None
        found = psutil.Process(self._process.pid).children(recursive=True)
        (jvm,) = (one for one in found if one.name() == "java")
        jvm.kill()

    def end(self) -> int:
        assert self._process is not None
        return self._process.wait(WITHIN_S)


def a_topic(cluster: LocalCluster, name: str) -> str:
    cluster.create_topic(name, 3, {"min.insync.replicas": "2"})
    cluster.wait_isr(name, 3)
    return name


@pytest.mark.long
def test_acks_of_killed_driver_are_judged_later(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    topic = a_topic(cluster, "killed")
    with Driver(tmp_path, spark_jars, cluster, topic=topic) as driver:
        driver.start()
        driver.wait_acked(RECORDS // 2)
        driver.kill_group()
        assert driver.read("verdict.json") == {}
        begun_s = time.monotonic()
        driver.start("--resume", "check")
        assert driver.end() == 0, driver.log.read_text()[-3000:]
        print(f"resumed in {time.monotonic() - begun_s:.1f} s")
    verdict = driver.read("verdict.json")
    counts = verdict["counts"]
    assert (verdict["verdict"], verdict["reason"]) == ("Inconclusive", "DriveIncomplete"), verdict
    assert RECORDS > counts["sent"] >= RECORDS // 2 > counts["lost"] == 0
    assert counts["acked"] + counts["unknown"] == counts["sent"]
    assert counts["read"] >= counts["acked"] > 0
    assert f"all {counts['acked']} acknowledged records were read back" in verdict["message"]
    assert "another driver pod (number 2) judged the records" in verdict["message"]
    assert verdict["evidence"] == {
        "run": "check", "place": str(driver.evidence / "check"), "missing": None
    }  # fmt: skip


def test_killed_jvm_is_followed_by_the_next_driver(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    topic = a_topic(cluster, "jvmless")
    place = {"directory": str(tmp_path / "evidence"), "attempts": 2}
    with Driver(tmp_path, spark_jars, cluster, topic=topic, evidence=place) as driver:
        driver.start()
        driver.wait_acked(RECORDS // 2)
        driver.kill_jvm()
        assert driver.end() == 3, driver.log.read_text()[-3000:]
        assert driver.read("verdict.json") == {}
        driver.start()
        assert driver.end() == 0, driver.log.read_text()[-3000:]
    verdict = driver.read("verdict.json")
    assert verdict["reason"] == "DriveIncomplete", verdict
    assert "Spark's Java process in the Verification's driver pod ended" in verdict["message"]
    assert verdict["counts"]["acked"] > 0


def test_driver_that_outlives_its_pod_stops(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """Its node was deleted, so its Job started another pod, while its processes went on."""
    topic, folders = a_topic(cluster, "outlived"), (tmp_path / "first", tmp_path / "second")
    place = {"directory": str(tmp_path / "evidence"), "attempts": 2}
    for folder in folders:
        folder.mkdir()
    first, second = (
        Driver(one, spark_jars, cluster, topic=topic, evidence=place) for one in folders
    )
    with first, second:
        first.evidence = tmp_path / "evidence"
        first.start()
        first.wait_acked(RECORDS // 4)
        second.start()
        assert first.end() == 4, first.log.read_text()[-3000:]
        assert second.end() == 0, second.log.read_text()[-3000:]
    assert "writes nothing more, since a later one, number 2, has begun" in first.log.read_text()
    assert first.read("verdict.json") == {}
    verdict = second.read("verdict.json")
    counts = verdict["counts"]
    assert (verdict["verdict"], verdict["reason"]) == ("Inconclusive", "DriveIncomplete"), verdict
    assert counts["read"] >= counts["acked"] > 0 == counts["lost"] == counts["duplicated"]
    kept = json.loads((tmp_path / "evidence/check/runs/000002.json").read_text())
    assert kept["attempt"] == 2


def test_lost_record_is_found_by_the_next_driver(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """The log is cut while no driver is there: the topic's retention does not explain that."""
    topic = a_topic(cluster, "cut")
    with Driver(tmp_path, spark_jars, cluster, topic=topic) as driver:
        driver.start()
        driver.wait_acked(RECORDS // 4)
        driver.kill_group()
        add_row(driver.evidence / "check" / "ledger", sequence=RECORDS - 1, offset=RECORDS)
        driver.start("--resume", "check")
        assert driver.end() == 0, driver.log.read_text()[-3000:]
    verdict = driver.read("verdict.json")
    assert (verdict["verdict"], verdict["reason"]) == ("Violated", "RecordsLost"), verdict
    (example,) = verdict["examples"]
    assert example["kind"] == "lost"
    assert (example["producer"], example["sequence"]) == (0, RECORDS - 1)
    assert example["key"].startswith("k")
    files = sorted(driver.evidence.rglob("*"))
    assert {"verdict.json", "report.html", "000001.json"} <= {path.name for path in files}
    assert any("spark-events" in path.parts and path.is_file() for path in files)
    assert [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.long
def test_topic_that_becomes_compacted_has_no_loss(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    configs = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    cluster.create_topic("cleaned", 1, {"min.insync.replicas": "2", **configs})
    cluster.wait_isr("cleaned", 3)
    produce = {"records": RECORDS, "recordsPerSecond": 1_000, "recordBytes": 1_000, "keys": 10}
    with Driver(tmp_path, spark_jars, cluster, topic="cleaned", produce=produce) as driver:
        driver.start()
        driver.wait_acked(RECORDS // 2)
        driver.kill_group()
        logs = cluster.directory / "broker-0" / "cleaned-0"
        written = sum(path.stat().st_size for path in logs.glob("*.log"))
        policy = ConfigEntry(
            "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET
        )
        topic = ConfigResource(ConfigResource.Type.TOPIC, "cleaned", incremental_configs=[policy])
        admin = cluster.admin()
        for answer in admin.incremental_alter_configs([topic]).values():
            answer.result(60)

        def is_cleaned() -> bool:
            sizes = [path.stat().st_size for path in logs.glob("*.log") if path.exists()]
            return sum(sizes) < written / 2

        wait_for("a cleaned log", is_cleaned, WITHIN_S, 0.5)
        driver.start("--resume", "check")
        assert driver.end() == 0, driver.log.read_text()[-3000:]
    verdict = driver.read("verdict.json")
    assert (verdict["verdict"], verdict["reason"]) == ("Inconclusive", "TopicCompacted"), verdict
    assert (verdict["counts"]["lost"], verdict["counts"]["gaps"]) == (0, 0)
    assert "the cleaner may have removed these records" in verdict["message"]


def add_row(ledger: Path, *, sequence: int, offset: int) -> None:
    """Enter an acknowledged record that was never written."""
    import pyarrow as pa

    from plimsoll_spark.ledger import ACKED, SCHEMA, write_chunk

    row = [0, offset, 0, sequence, ACKED, 1.0, 2.0]
    columns = [pa.array([one], field.type) for one, field in zip(row, SCHEMA, strict=True)]
    write_chunk(ledger / "added.parquet", pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def test_passed_run_leaves_no_evidence(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    topic = a_topic(cluster, "healthy")
    produce = {"records": 1_000}
    with Driver(tmp_path, spark_jars, cluster, topic=topic, produce=produce) as driver:
        driver.start()
        assert driver.end() == 0, driver.log.read_text()[-3000:]
    verdict = driver.read("verdict.json")
    assert (verdict["verdict"], verdict["evidence"]["place"]) == ("Passed", None), verdict
    assert list(driver.evidence.rglob("*")) == []


def test_deadline_is_followed_by_verdict_on_acks(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """The brokers' links are open, but the records are too many for the time."""
    topic = a_topic(cluster, "late")
    produce = {"records": 1_000_000, "recordsPerSecond": 1_000}
    asked = {"produce": produce, "deadlineSeconds": 60, "verify": {"timeoutSeconds": 45}}
    with Driver(tmp_path, spark_jars, cluster, topic=topic, **asked) as driver:
        driver.start()
        assert driver.end() == 0, driver.log.read_text()[-3000:]
    verdict = driver.read("verdict.json")
    counts = verdict["counts"]
    assert verdict["reason"] == "DriveIncomplete", verdict
    assert f"all {counts['acked']} acknowledged records were read back" in verdict["message"]
    assert counts["acked"] == counts["read"] > 0


def test_killed_driver_is_judged_from_its_bucket(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    topic = a_topic(cluster, "bucket")
    with S3Server(tmp_path / "buckets") as server:
        login = server.login(tmp_path / "login")
        place = {"s3": {"bucket": BUCKET, "prefix": "nightly", "endpoint": server.endpoint}}
        with Driver(tmp_path, spark_jars, cluster, topic=topic, evidence=place) as driver:
            driver.evidence = server.files / "nightly"
            driver.start("--bucket-login", str(login))
            driver.wait_acked(RECORDS // 2)
            driver.kill_group()
            driver.start("--bucket-login", str(login), "--resume", "check")
            assert driver.end() == 0, driver.log.read_text()[-3000:]
        verdict = driver.read("verdict.json")
        assert verdict["reason"] == "DriveIncomplete", verdict
        assert verdict["counts"]["read"] >= verdict["counts"]["acked"] > 0
        assert verdict["evidence"]["place"] == f"s3://{BUCKET}/nightly/check"
        kept = driver.evidence / "check"
        results = {f"results/000002/{name}" for name in ("verdict.json", "report.html")}
        assert {"runs/000001.json", *results} <= {
            path.relative_to(kept).as_posix() for path in kept.rglob("*")
        }
        said = driver.log.read_text() + (driver.report / "report.html").read_text()
        assert SECRET not in said + json.dumps(verdict)


def test_missing_run_is_refused(cluster: LocalCluster, spark_jars: Path, tmp_path: Path) -> None:
    with Driver(tmp_path, spark_jars, cluster, topic="any") as driver:
        driver.start("--resume", "yesterday")
        assert driver.end() == 2
    verdict = driver.read("verdict.json")
    assert verdict["reason"] == "NothingKept", verdict
    assert "yesterday" in verdict["message"]
