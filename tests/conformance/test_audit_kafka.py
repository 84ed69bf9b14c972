"""An audit reads the replicas of Apache Kafka's brokers too, and finds the same damage there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.local_cluster import wait_for

from plimsoll_spark.audit import audit_items
from plimsoll_spark.audit_range import AuditJob, RangeAudit, audit_some
from plimsoll_spark.existing_topics import ExistingTopics

RECORDS = 300


def audited(bootstrap: str, results: Path) -> RangeAudit:
    results.mkdir()
    topics = ExistingTopics(bootstrap, {})
    items = audit_items(topics.partitions(["orders"]).partitions, set(), 1)
    job = AuditJob(
        login={}, until_s=time.time() + 120, bytes_per_second=None, own_copies=True, results=results
    )
    (found,) = audit_some(job, items)
    return found


@pytest.mark.timeout(600)
def test_flipped_byte_on_kafkas_follower_is_found(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka", brokers=3) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.size": 2_000})
        for number in range(RECORDS):
            producer.produce("orders", b"%064d" % number)
        assert producer.flush(60) == 0

        def in_sync() -> bool:
            return (
                len(admin.list_topics("orders", timeout=10).topics["orders"].partitions[0].isrs)
                == 3
            )

        wait_for("three replicas in sync", in_sync)
        healthy = audited(kafka.bootstrap, tmp_path / "healthy")
        assert (healthy.findings, healthy.unread) == ((), ())
        assert (healthy.records, healthy.is_equal) == (RECORDS, True)
        leader = admin.list_topics("orders", timeout=10).topics["orders"].partitions[0].leader
        follower = next(node for node in range(3) if node != leader)
        path = kafka.data_dir(follower) / "orders-0" / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        with path.open("r+b") as file:
            file.write(content)
            os.fsync(file.fileno())
        damaged = audited(kafka.bootstrap, tmp_path / "damaged")
        assert [(one.kind, one.brokers) for one in damaged.findings] == [
            ("unreadable", (follower,))
        ]
