"""A client that writes records twice is not taken for a log that does."""

import os
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
from confluent_kafka.admin import NewTopic
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for

from plimsoll_spark import checks, ledger
from plimsoll_spark.drive import client_config
from plimsoll_spark.pacing import Pace
from plimsoll_spark.producer import Plan, Sender
from plimsoll_spark.records import salt_of
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.topics import TopicClient
from plimsoll_spark.verdict import Reason, judge

TOPIC, RUN = "twice", "run"
PLACES = [[1, 2], [0, 2]]
LONG, SHORT = 1, 2
"""The brokers that are paused: for longer than a record may wait, and for less. Without the second,
the leader of the second partition appends records and cannot acknowledge them."""
RATE, KEYS = 200, 50
MESSAGE_S, REQUEST_S = 15, 2
"""After this time a record times out, and a request."""
LIMIT_S = 300.0


def a_sender(cluster: LocalCluster, directory: Path) -> Sender:
    client = client_config(cluster.bootstrap, Produce(records=1), 1) | {
        "message.timeout.ms": MESSAGE_S * 1000,
        "socket.timeout.ms": REQUEST_S * 1000,
        "request.timeout.ms": REQUEST_S * 1000,
    }
    plan = Plan(
        run=RUN,
        topic=TOPIC,
        producer=0,
        records=10**9,
        record_bytes=100,
        pace=Pace.steady(RATE),
        keys=KEYS,
        client=client,
        message_timeout_s=MESSAGE_S,
        stop_at_s=time.time() + LIMIT_S,
        progress=directory / "progress.json",
        ledger=directory / "ledger",
    )
    return Sender(plan)


def drive(cluster: LocalCluster, directory: Path) -> None:
    """Send records while one broker is paused until records of the first partition time out, and
    then another, until requests of the second do; write the ledger."""
    sender, chunks = a_sender(cluster, directory), list[pa.RecordBatch]()
    thread = threading.Thread(target=lambda: chunks.extend(sender.run()))
    counts = sender._counts
    thread.start()
    paused = []
    try:
        wait_for("acks", lambda: counts["acked"] > RATE)
        for broker, timed_out in ((LONG, 1), (SHORT, RATE * REQUEST_S)):
            paused.append(cluster.pids[str(broker)])
            os.kill(paused[-1], signal.SIGSTOP)
            enough = counts["unknown"] + timed_out
            wait_for("time-outs", lambda least=enough: counts["unknown"] >= least, LIMIT_S)
        acked = counts["acked"]
        os.kill(paused[-1], signal.SIGCONT)
        wait_for("acks again", lambda: counts["acked"] > acked, LIMIT_S)
    finally:
        for pid in paused:
            os.kill(pid, signal.SIGCONT)
        sender._stopped = "the test has seen enough"
        thread.join(LIMIT_S)
    (directory / "ledger").mkdir()
    for number, rows in enumerate(chunks):
        ledger.write_chunk(directory / "ledger" / f"producer-0-{number:06d}.parquet", rows)


def test_records_written_twice_are_not_blamed_on_log(cluster: LocalCluster, tmp_path: Path) -> None:
    """A producer times records out and raises its epoch (librdkafka's issue 4953)."""
    topic = NewTopic(TOPIC, 2, replica_assignment=PLACES, config={"min.insync.replicas": "2"})
    admin = cluster.admin()
    admin.create_topics([topic])[TOPIC].result(WAIT_S)
    cluster.wait_isr(TOPIC, 2)
    drive(cluster, tmp_path)
    cluster.wait_isr(TOPIC, 2, LIMIT_S)
    client = TopicClient(cluster.bootstrap, TOPIC)
    sent = ledger.index(tmp_path / "ledger")
    ranges = client.ranges((0, 1), WAIT_S)
    job = checks.CheckJob(
        bootstrap=cluster.bootstrap,
        topic=TOPIC,
        login={},
        salt=salt_of(RUN),
        keys=KEYS,
        order_by_key=False,
        until_s=time.time() + LIMIT_S,
        clock=checks.clock_of(sent),
        results=tmp_path / "results",
    )
    job.results.mkdir()
    items = checks.work_items(sent, ranges, ranges)
    checks.examine_some(job, items)
    counts = checks.findings(job, items, sent, checks.starts_now(client, ranges, WAIT_S)).counts
    client.close()
    assert counts.rewritten > 0
    assert (counts.duplicated, counts.lost, counts.out_of_order) == (0, 0, 0)
    settings = Settings(name="v", bootstrap="b", topic=TOPIC, produce=Produce(records=counts.sent))
    told = judge(settings, counts, stopped=None, recreated=False)
    assert (told.verdict, told.reason) == ("Inconclusive", Reason.PRODUCER_EPOCH_RAISED)
    assert str(counts.rewritten) in told.message
