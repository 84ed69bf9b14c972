"""A whole verification, as the operator's Job runs it, against a local cluster."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.admin import KafkaAdminClient, NewPartitions
from tests.integration.local_cluster import LocalCluster, produce, wait_for

from plimsoll_spark.session import JARS_VARIABLE
from plimsoll_spark.values import Example

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 6
RECORDS = 10_000
RUN_S = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("verified") / "data", brokers=3) as local:
        yield local


class Job:
    """`python -m plimsoll_spark.verification` with a directory for its report."""

    def __init__(self, directory: Path, jars: Path, **asked: Any) -> None:
        self.report = directory / "report"
        self.log = directory / "job.log"
        config = directory / "verification.json"
        config.write_text(json.dumps({**asked, "report": {"directory": str(self.report)}}))
        command = [sys.executable, "-m", "plimsoll_spark.verification", "--config", str(config)]
        environment = {**os.environ, JARS_VARIABLE: str(jars)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def read(self, name: str) -> dict[str, Any]:
        path = self.report / name
        content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return content

    def acked(self) -> int:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return int(self.read("progress.json").get("counts", {}).get("acked", 0))

    def end(self) -> int:
        return self.process.wait(RUN_S)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_partitions({topic: NewPartitions(total)})


def test_verification_survives_a_killed_broker(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    cluster.create_topic("driven", PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr("driven", 3)
    asked = {"records": RECORDS, "recordsPerSecond": 1_000, "recordBytes": 256, "keys": 100}
    with Job(
        tmp_path,
        spark_jars,
        name="small",
        bootstrap=cluster.bootstrap,
        topic="driven",
        produce=asked,
    ) as job:
        wait_for("the first acks", lambda: job.acked() > 500, RUN_S, 0.2)
        add_partitions(cluster.bootstrap, "driven", PARTITIONS + 1)
        cluster.kill_broker(0)
        assert job.end() == 0, job.log.read_text()[-3000:]
    verdict = job.read("verdict.json")
    counts, timing = verdict["counts"], verdict["timing"]
    assert (verdict["verdict"], verdict["reason"]) == ("Passed", "AllChecksPassed"), verdict
    assert counts["sent"] == RECORDS
    assert counts["acked"] + counts["unknown"] == RECORDS
    assert counts["acked"] <= counts["read"] <= RECORDS
    assert set(timing["stallMillisecondsByPartition"]) == {str(p) for p in range(PARTITIONS + 1)}
    assert timing["longestStallMilliseconds"] == max(
        timing["stallMillisecondsByPartition"].values()
    )
    assert job.read("progress.json")["phase"] == "Completed"
    assert "</html>" in (job.report / "report.html").read_text()


def test_budget_that_no_log_keeps_is_violated(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """Producers wait 5 ms for more records, so acks take longer than the budget."""
    cluster.create_topic("slow", 2)
    cluster.wait_isr("slow", 3)
    steps = [{"for": "2s", "recordsPerSecond": 200}, {"for": "2s", "recordsPerSecond": 600}]
    with Job(
        tmp_path,
        spark_jars,
        name="slow",
        bootstrap=cluster.bootstrap,
        topic="slow",
        produce={"load": {"profile": steps}, "recordBytes": 64},
        budget={"p99Milliseconds": 1, "isrFullWithinSeconds": 60},
    ) as job:
        assert job.end() == 0, job.log.read_text()[-3000:]
    verdict = job.read("verdict.json")
    assert verdict["counts"]["sent"] == 1_600
    assert verdict["timing"]["recordsPerSecond"] > 0
    # A machine without processors makes no violation.
    judged = ("Violated", "BudgetExceeded"), ("Inconclusive", "DriverStarved")
    assert (verdict["verdict"], verdict["reason"]) in judged, verdict
    assert "exceeds budget.p99Milliseconds (1)" in verdict["message"]
    assert "2s at 200, 2s at 600 a second" in (job.report / "report.html").read_text()


def test_search_finds_a_rate_and_verifies_every_step(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    cluster.create_topic("searched", 2)
    cluster.wait_isr("searched", 3)
    wish = {"p99Milliseconds": 1_000, "from": 100, "to": 200, "stepSeconds": 2}
    with Job(
        tmp_path,
        spark_jars,
        name="searched",
        bootstrap=cluster.bootstrap,
        topic="searched",
        produce={"load": {"findMaxRate": wish}, "recordBytes": 64},
    ) as job:
        assert job.end() == 0, job.log.read_text()[-3000:]
    verdict = job.read("verdict.json")
    assert verdict["verdict"] == "Passed", verdict
    found = verdict["facts"]["capacity"]
    assert found["steps"][0]["recordsPerSecond"] == 100
    assert verdict["counts"]["sent"] == sum(2 * s["recordsPerSecond"] for s in found["steps"])
    # A machine without processors may keep neither rate.
    assert 0 <= found["recordsPerSecond"] <= 200
    assert "Highest rate with a p99" in (job.report / "report.html").read_text()


def test_topic_with_records_of_others_is_refused(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    cluster.create_topic("taken", 1)
    cluster.wait_isr("taken", 3)
    produce(cluster.bootstrap, "taken", [b"somebody's"])
    asked = {"records": 10}
    with Job(
        tmp_path,
        spark_jars,
        name="rude",
        bootstrap=cluster.bootstrap,
        topic="taken",
        produce=asked,
    ) as job:
        assert job.end() == 2
    verdict = job.read("verdict.json")
    assert (verdict["verdict"], verdict["reason"]) == ("Inconclusive", "TopicNotEmpty")
    assert "allowExisting" in verdict["message"]
    assert "create the Verification again" in verdict["message"]
    assert job.read("progress.json")["phase"] == "Failed"


def flip_byte(segment: Path, at: int) -> None:
    """In the middle of a batch, whose CRC is wrong from then on."""
    with segment.open("r+b") as file:
        file.seek(at)
        (value,) = file.read(1)
        file.seek(at)
        file.write(bytes((value ^ 0xFF,)))


def test_batch_that_no_replica_can_show_is_violated(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """Old enough to be read from the disk: the newest 4 MiB of a log are in memory."""
    cluster.create_topic("spoilt", 1)
    cluster.wait_isr("spoilt", 3)
    asked = {"records": 8_000, "recordsPerSecond": 1_000, "recordBytes": 2_000, "keys": 10}
    with Job(
        tmp_path,
        spark_jars,
        name="spoilt",
        bootstrap=cluster.bootstrap,
        topic="spoilt",
        produce=asked,
    ) as job:
        wait_for("the first acks", lambda: job.acked() > 2_000, RUN_S, 0.2)
        segments = sorted(cluster.directory.glob("broker-*/spoilt-0/00000000000000000000.log"))
        assert len(segments) == 3
        for segment in segments:
            flip_byte(segment, at=500)
        assert job.end() == 0, job.log.read_text()[-3000:]
    verdict = job.read("verdict.json")
    assert (verdict["verdict"], verdict["reason"]) == ("Violated", "RecordsUnreadable"), verdict
    place = Example(topic="spoilt", partition=0, offset=0, kind="unreadable")
    assert verdict["examples"] == [json.loads(msgspec.json.encode(place))]


def test_run_without_acks_is_not_violated(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """librdkafka numbers records that nobody acknowledged from 0; those are no offsets."""
    cluster.create_topic("unacked", 3)
    cluster.wait_isr("unacked", 3)
    with Job(
        tmp_path,
        spark_jars,
        name="unacked",
        bootstrap=cluster.bootstrap,
        topic="unacked",
        produce={"records": 3_000, "acks": "None"},
    ) as job:
        assert job.end() == 0, job.log.read_text()[-3000:]
    verdict = job.read("verdict.json")
    assert (verdict["verdict"], verdict["counts"]["acked"]) == ("Passed", 0), verdict
