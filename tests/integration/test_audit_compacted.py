"""An audit tells compaction and deleted records from loss on real logs."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_spark.audit import audit_items, whole_partition
from plimsoll_spark.audit_range import AuditJob, RangeAudit, audit_some
from plimsoll_spark.existing_topics import ExistingTopics

KEYS, ROUNDS = 10, 60
CONFIGS = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}


def write(cluster: LocalCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for number in range(ROUNDS):
        for key in range(KEYS):
            producer.produce(topic, b"%010000d" % number, key=b"%d" % key)
        assert producer.flush(60) == 0


def bytes_on(cluster: LocalCluster, broker: int, topic: str) -> int:
    """While a cleaner swaps files one may just be gone."""
    files = (cluster.directory / f"broker-{broker}" / f"{topic}-0").glob("*.log")
    return sum(path.stat().st_size for path in files if path.exists())


def audited(cluster: LocalCluster, topic: str, results: Path) -> list[RangeAudit]:
    """What `audit` does, in this process."""
    results.mkdir()
    topics = ExistingTopics(cluster.bootstrap, {})
    sparse = {name for name, known in topics.compacted([topic]).items() if known}
    found = topics.partitions([topic]).partitions
    job = AuditJob(
        login={}, until_s=time.time() + 120, bytes_per_second=None, own_copies=True, results=results
    )
    ranges = list(audit_some(job, audit_items(found, sparse, 1)))
    if sparse:
        ranges += audit_some(job, map(whole_partition, found))
    return ranges


def test_compacted_and_shortened_topics_have_no_findings(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data") as cluster:
        cluster.create_topic("compacted", 1, {**CONFIGS, "cleanup.policy": "compact"})
        cluster.create_topic("shortened", 1)
        for topic in ("compacted", "shortened"):
            write(cluster, topic)
        written = bytes_on(cluster, 0, "compacted")
        wait_for(
            "a cleaned log on every broker",
            lambda: all(bytes_on(cluster, b, "compacted") < written / 2 for b in range(3)),
            120,
        )
        (by_batch, by_record) = audited(cluster, "compacted", tmp_path / "compacted")
        assert (by_batch.findings, by_record.findings) == ((), ())
        assert (by_batch.unread, by_record.unread) == ((), ())
        assert 0 < by_batch.records < KEYS * ROUNDS
        start = TopicPartition("shortened", 0, KEYS * ROUNDS // 2)
        admin = cluster.admin()
        for answer in admin.delete_records([start]).values():
            answer.result(60)
        for found in audited(cluster, "shortened", tmp_path / "shortened"):
            assert (found.findings, found.unread) == ((), ())
