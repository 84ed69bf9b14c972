"""A verification whose work is done by executors: real processes, which share nothing with the
driver but the network."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.integration.local_cluster import LocalCluster, runs, wait_for
from tests.plimsoll_spark.test_verification import Job

from plimsoll_spark import session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 6
RECORDS = 40_000
RATE = 2_000
RUN_S = 500
BACKEND = b"CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("executed") / "data", brokers=3) as local:
        yield local


def executors(job: Job) -> list[int]:
    """The pids of the executors' JVMs that the job's driver has started, the oldest first."""
    started = {job.process.pid}
    found = []
    for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent in started:
            pid = int(stat.parent.name)
            started.add(pid)
            if BACKEND in command:
                found.append(pid)
    return [pid for pid in found if runs(pid)]


def in_the_log(cluster: LocalCluster, topic: str) -> int:
    """The number of all records in the topic."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "nobody's"}
    consumer = confluent_kafka.Consumer(settings)
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, timeout=20)[1] for place in places]
    consumer.close()
    return sum(ends)


def kill_one(job: Job) -> None:
    """A lost executor, which Spark replaces."""
    (first, *_) = wait_for("both executors", lambda: len(executors(job)) == 2 and executors(job))
    os.kill(first, signal.SIGKILL)
    wait_for("its end", lambda: not runs(first))


def test_killed_executors_change_no_verdict(
    cluster: LocalCluster, spark_jars: Path, tmp_path: Path
) -> None:
    """One is killed while it produces, another one while the topic is read."""
    cluster.create_topic("far", PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr("far", 3)
    asked = {"records": RECORDS, "recordsPerSecond": RATE, "recordBytes": 100, "keys": 50}
    with Job(
        tmp_path,
        spark_jars,
        name="far",
        bootstrap=cluster.bootstrap,
        topic="far",
        produce=asked,
        runner={"executors": 2},
    ) as job:
        wait_for("the first parts", lambda: job.acked() >= RECORDS // 2, RUN_S, 0.2)
        some = in_the_log(cluster, "far") + 1_000
        wait_for("more records", lambda: in_the_log(cluster, "far") > some, RUN_S, 0.2)
        kill_one(job)
        wait_for("reading", lambda: job.read("progress.json")["phase"] == "Verifying", RUN_S, 0.05)
        kill_one(job)
        assert job.end() == 0, job.log.read_text()[-3000:]
    verdict = job.read("verdict.json")
    counts = verdict["counts"]
    assert (verdict["verdict"], verdict["reason"]) == ("Passed", "AllChecksPassed"), verdict
    assert counts["sent"] == counts["acked"] == RECORDS
    assert counts["unreported"] > 0
    assert counts["read"] == RECORDS + counts["unreported"]
    assert (counts["duplicated"], counts["outOfOrder"], counts["lost"]) == (0, 0, 0)
    assert "lost before they reported" in verdict["message"]
    assert "Lost executor" in job.log.read_text()
    assert not (session.spark_home() / "work").exists(), "the installed package stays as it is"
