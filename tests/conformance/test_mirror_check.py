"""An audit compares a topic with its source in Apache Kafka, and finds what the mirror lacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.local_cluster import LocalCluster

from plimsoll_spark.audit import MirrorFindings, with_mirrors
from plimsoll_spark.audit_settings import AUDIT_CHECKS
from plimsoll_spark.audit_verdict import AuditFindings, judge_audit
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.mirror import MirrorAudit, MirrorJob, compare_some, mirror_items
from plimsoll_spark.values import Audited

RECORDS = 200
AGES_MS = 1_700_000_000_000
EVERY = (*AUDIT_CHECKS, "MirrorEqual")


def write(bootstrap: str, topic: str, records: Sequence[tuple[int, bytes]], codec: str) -> None:
    """As MirrorMaker 2 does: keys, values, headers and timestamps of the source."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number, value in records:
        header = [("n", b"%d" % number)]
        key = b"k%d" % number
        producer.produce(topic, value, key, 0, timestamp=AGES_MS + number, headers=header)
    assert producer.flush(60) == 0


def compared(here: str, topic: str, there: str, results: Path) -> tuple[MirrorAudit, tuple]:
    results.mkdir()
    mirrors, sources = (
        ExistingTopics(bootstrap, {}).partitions([name], committed=True).partitions
        for bootstrap, name in ((here, topic), (there, topic.partition(".")[2]))
    )
    items, missing = mirror_items(mirrors, sources, "there.")
    assert missing == ()
    job = MirrorJob(
        login={},
        source_login={},
        until_s=time.time() + 120,
        bytes_per_second=None,
        results=results,
    )
    (found,) = compare_some(job, items)
    findings = AuditFindings(audited=Audited(partitions=1, batches=1))
    told = judge_audit(EVERY, with_mirrors(findings, MirrorFindings((found,))))
    return found, (told.verdict, told.reason.value, told.message)


@pytest.mark.timeout(600)
def test_mirror_of_kafkas_topic_is_compared(tmp_path: Path, cluster: LocalCluster) -> None:
    records = [(number, b"%064d" % number) for number in range(RECORDS)]
    lacking = [one for one in records if one[0] not in (50, 51)]
    lacking[100] = (lacking[100][0], b"another value")
    with ApacheKafka(tmp_path / "kafka", brokers=1) as kafka:
        names = ("whole", "lacking", "late")
        for bootstrap, prefix in ((kafka.bootstrap, ""), (cluster.bootstrap, "there.")):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for made in admin.create_topics(
                [NewTopic(f"{prefix}{n}", 1, 1) for n in names]
            ).values():
                made.result(60)
        for name, held in zip(names, (records, lacking, records[:-9]), strict=True):
            write(kafka.bootstrap, name, records, "zstd")
            write(cluster.bootstrap, f"there.{name}", held, "gzip")

        whole, told = compared(cluster.bootstrap, "there.whole", kafka.bootstrap, tmp_path / "w")
        assert (whole.compared, whole.counts, told[0]) == (RECORDS, {}, "Passed")

        late, told = compared(cluster.bootstrap, "there.late", kafka.bootstrap, tmp_path / "l")
        assert (late.counts, late.behind, told[0]) == ({}, 9, "Passed")
        assert "the source's last 9 are not mirrored yet" in told[2]

        found, told = compared(cluster.bootstrap, "there.lacking", kafka.bootstrap, tmp_path / "f")
        places = [(one.kind, one.first, one.last) for one in found.differences]
        assert places == [("unmirrored", 50, 51), ("altered", 102, 102)]
        assert told[:2] == ("Violated", "MirrorDiffers")
        assert "lacking-0 at offsets 50 to 51 of the source" in told[2]
