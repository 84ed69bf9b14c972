"""A topic of Apache Kafka with transactions: their markers are neither gaps nor lost records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.test_mirror_check import AGES_MS, compared, write
from tests.integration.local_cluster import LocalCluster

from plimsoll_spark.audit import audit_items, summed
from plimsoll_spark.audit_range import AuditJob, audit_some
from plimsoll_spark.audit_settings import AUDIT_CHECKS
from plimsoll_spark.audit_verdict import judge_audit
from plimsoll_spark.batch_source import BatchSourceReader
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.markers import markers_of, without_markers
from plimsoll_spark.partition_reader import Reader
from plimsoll_spark.range_check import Span, gaps_in

EACH = 40
ABORTED = 1


def transactions(bootstrap: str, topic: str, *, stays_open: bool = False) -> Producer:
    """Three transactions with `EACH` records, the second aborted; then one that stays open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{topic}"})
    producer.init_transactions(60)
    for number in range(4 if stays_open else 3):
        producer.begin_transaction()
        for at in range(number * EACH, (number + 1) * EACH):
            produce(producer, topic, at)
        producer.flush(60)
        if number == ABORTED:
            producer.abort_transaction(60)
        elif number < 3:
            producer.commit_transaction(60)
    return producer


def produce(producer: Producer, topic: str, number: int) -> None:
    header, key = [("n", b"%d" % number)], b"k%d" % number
    producer.produce(topic, b"%064d" % number, key, 0, timestamp=AGES_MS + number, headers=header)


def offsets_read(bootstrap: str, topic: str, end: int) -> np.ndarray:
    reader = Reader(
        bootstrap=bootstrap, topic=topic, login={}, salt=b"", keys=1, until_s=time.time() + 60
    )
    rows, unreadable = reader.read(Span(partition=0, first=0, end=end), lambda _: None)
    reader.close()
    assert unreadable is None
    return rows.offset


def check_audit(bootstrap: str, topic: str, results: Path) -> None:
    results.mkdir()
    partitions = ExistingTopics(bootstrap, {}).partitions([topic]).partitions
    job = AuditJob(
        login={},
        until_s=time.time() + 120,
        bytes_per_second=None,
        own_copies=True,
        results=results,
    )
    found = list(audit_some(job, audit_items(partitions, set(), 1)))
    told = judge_audit(AUDIT_CHECKS, summed(partitions, found))
    assert told.verdict == "Passed", told.message
    assert f"{3 * EACH} records and 3 markers of transactions" in told.message


def check_rows(options: Mapping[str, str]) -> None:
    reader = BatchSourceReader(options)
    rows = [row for span in reader.partitions() for part in reader.read(span)
            for row in part.to_pylist()]  # fmt: skip
    assert sum(row["records"] for row in rows) == 3 * EACH
    assert sum(row["isControl"] for row in rows) == 3
    assert all(row["isTransactional"] for row in rows)


@pytest.mark.timeout(600)
def test_transactions_of_kafka_leave_no_gaps(tmp_path: Path, cluster: LocalCluster) -> None:
    names = ("ended", "open")
    with ApacheKafka(tmp_path / "kafka", brokers=1) as kafka:
        for bootstrap, made in ((kafka.bootstrap, names), (cluster.bootstrap, ("there.open",))):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for one in admin.create_topics([NewTopic(name, 1, 1) for name in made]).values():
                one.result(60)
        transactions(kafka.bootstrap, "ended")
        check_audit(kafka.bootstrap, "ended", tmp_path / "audit")
        check_rows({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "ended"})
        open_one = transactions(kafka.bootstrap, "open", stays_open=True)

        # A reader of all records sees the aborted and the open ones; the markers alone are missing.
        end = 4 * EACH + 3
        offsets = offsets_read(kafka.bootstrap, "open", end)
        gaps = gaps_in(Span(partition=0, first=0, end=end), offsets)
        markers = markers_of(kafka.bootstrap, "open", {}, 0, gaps, time.time() + 60)
        assert (len(offsets), len(markers)) == (4 * EACH, 3)
        assert without_markers(gaps, markers) == ()

        # A mirror of the committed records is whole; so is one that has the aborted ones, too.
        whole = [(number, b"%064d" % number) for number in range(3 * EACH)]
        committed = whole[:EACH] + whole[2 * EACH :]
        write(cluster.bootstrap, "there.open", committed, "none")
        found, told = compared(cluster.bootstrap, "there.open", kafka.bootstrap, tmp_path / "m")
        assert (found.compared, found.behind, told[0]) == (2 * EACH, 0, "Passed"), told
        assert (found.aborted, found.markers) == (EACH, 3)
        open_one.abort_transaction(60)
