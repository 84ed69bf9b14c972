"""An audit reads the replicas of Apache Kafka's brokers too, and finds the same damage there."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.local_cluster import wait_for

from plimsoll_spark.audit import audit_items
from plimsoll_spark.audit_range import AuditJob, RangeAudit, audit_some
from plimsoll_spark.existing_topics import ExistingTopics

BATCHES, RECORDS = 6, 5
THIRD = (2 * RECORDS, 3 * RECORDS - 1)
Change = Callable[[list[bytes]], list[bytes]]


def flipped(held: list[bytes]) -> list[bytes]:
    third = bytearray(held[2])
    third[-3] ^= 1
    return [*held[:2], bytes(third), *held[3:]]


def forged(held: list[bytes]) -> list[bytes]:
    """Other content under a CRC that is right."""
    third = bytearray(flipped(held)[2])
    struct.pack_into(">I", third, 17, crc32c(bytes(third[21:])))
    return [*held[:2], bytes(third), *held[3:]]


def cut(held: list[bytes]) -> list[bytes]:
    """Without the third batch. The file keeps its size, which the broker has in memory: behind the
    end of the log there is a second copy of the last one."""
    return [*held[:2], *held[3:], held[-1]]


def swapped(held: list[bytes]) -> list[bytes]:
    return [*held[:2], held[3], held[2], *held[4:]]


DAMAGES: dict[str, tuple[Change, str, str]] = {
    "flip-follower": (flipped, "follower", "unreadable"),
    "flip-leader": (flipped, "leader", "unreadable"),
    "flip-all": (flipped, "all", "unreadable"),
    "forged": (forged, "follower", "different"),
    "cut": (cut, "follower", "missing"),
    "cut-all": (cut, "all", "gap"),
    "swap": (swapped, "follower", "missing"),
}
"""By topic: the damage of its third batch, where, and the kind of finding."""


def write(bootstrap: str, topic: str) -> None:
    """Batches of one size and number of records, so that offsets are known."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5_000})
    for number in range(BATCHES):
        for record in range(RECORDS):
            producer.produce(topic, b"%064d" % (number * RECORDS + record))
        assert producer.flush(60) == 0


def audited(bootstrap: str, topic: str, results: Path) -> RangeAudit:
    results.mkdir()
    topics = ExistingTopics(bootstrap, {})
    items = audit_items(topics.partitions([topic]).partitions, set(), 1)
    job = AuditJob(
        login={}, until_s=time.time() + 120, bytes_per_second=None, own_copies=True, results=results
    )
    (found,) = audit_some(job, items)
    return found


def damage(path: Path, change: Change) -> None:
    """Change a topic's only segment below a broker that runs."""
    content, held, at = path.read_bytes(), [], 0
    while at < len(content):
        size = struct.unpack_from(">i", content, at + 8)[0] + 12
        held.append(content[at : at + size])
        at += size
    assert len({len(one) for one in held}) == 1
    changed = b"".join(change(held))
    assert len(changed) == len(content)
    with path.open("r+b") as file:
        file.write(changed)
        os.fsync(file.fileno())


@pytest.mark.timeout(600)
def test_damaged_files_of_kafka_are_named(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka", brokers=3) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = [NewTopic(name, 1, 3) for name in ("healthy", *DAMAGES)]
        for made in admin.create_topics(topics).values():
            made.result(60)

        def is_in_sync(topic: str) -> bool:
            known = admin.list_topics(topic, timeout=10).topics[topic].partitions
            return len(known[0].isrs) == 3

        for topic in ("healthy", *DAMAGES):
            write(kafka.bootstrap, topic)
            wait_for("three replicas in sync", lambda name=topic: is_in_sync(name), 60)
            found = audited(kafka.bootstrap, topic, tmp_path / f"{topic}-before")
            assert (found.findings, found.unread, found.is_equal) == ((), (), True)
            assert found.records == BATCHES * RECORDS
        for topic, (change, where, kind) in DAMAGES.items():
            leader = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
            brokers = {"leader": [leader], "follower": [(leader + 1) % 3], "all": [0, 1, 2]}[where]
            for broker in brokers:
                damage(kafka.data_dir(broker) / f"{topic}-0" / f"{0:020d}.log", change)
            found = audited(kafka.bootstrap, topic, tmp_path / topic)
            places = [(one.kind, one.first, one.last, one.brokers) for one in found.findings]
            assert (kind, *THIRD, tuple(brokers)) in places, (topic, places)
            assert {one.brokers for one in found.findings} == {tuple(brokers)}, places
