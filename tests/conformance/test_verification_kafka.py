"""A Verification writes to Apache Kafka, and finds there what is lost or damaged on its disk."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.local_cluster import wait_for
from tests.plimsoll_spark.conftest import spark_jars
from tests.plimsoll_spark.test_evidence import RECORDS, Driver

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

__all__ = ["spark_jars"]
TOPIC = "orders"


def change(path: Path, edit: Callable[[list[bytes]], list[bytes]]) -> tuple[int, int]:
    """Change the topic's only segment. Return the first and the last offset of its fourth batch."""
    content, held, at = path.read_bytes(), [], 0
    while at < len(content):
        size = struct.unpack_from(">i", content, at + 8)[0] + 12
        held.append(content[at : at + size])
        at += size
    with path.open("wb") as file:
        file.write(b"".join(edit(held)))
        os.fsync(file.fileno())
    (first,), (more,) = struct.unpack_from(">q", held[3]), struct.unpack_from(">i", held[3], 23)
    return first, first + more


def cut(held: list[bytes]) -> list[bytes]:
    return [*held[:3], *held[4:]]


def flipped(held: list[bytes]) -> list[bytes]:
    fourth = bytearray(held[3])
    fourth[-3] ^= 1
    return [*held[:3], bytes(fourth), *held[4:]]


def served(bootstrap: str) -> Callable[[], bool]:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def probe() -> bool:
        try:
            known = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        except (KafkaException, KeyError):
            return False
        return bool(known) and known[0].leader == 0

    return probe


def test_loss_and_damage_in_kafka_are_found(tmp_path: Path, spark_jars: Path) -> None:
    with ApacheKafka(tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        segment = kafka.data_dir(0) / f"{TOPIC}-0" / f"{0:020d}.log"
        place: Any = kafka
        with Driver(tmp_path, spark_jars, place, topic=TOPIC) as driver:

            def judged() -> dict[str, Any]:
                driver.start("--resume", "check")
                assert driver.end() == 0, driver.log.read_text()[-3000:]
                return driver.read("verdict.json")

            driver.start()
            driver.wait_acked(RECORDS // 4)
            driver.kill_group()
            healthy = judged()
            counts = healthy["counts"]
            assert healthy["reason"] == "DriveIncomplete", healthy
            assert counts["read"] >= counts["acked"] > counts["lost"] == counts["gaps"] == 0

            kafka.kill(0)
            first, last = change(segment, cut)
            kafka.restart(0)
            wait_for("Kafka", served(kafka.bootstrap), 180, 0.5)
            lossy = judged()
            assert (lossy["verdict"], lossy["reason"]) == ("Violated", "RecordsLost"), lossy
            assert lossy["counts"]["lost"] == last - first + 1
            places = {(one["kind"], one["offset"]) for one in lossy["examples"]}
            assert {("lost", first), ("gap", first)} <= places

            change(segment, flipped)
            unreadable = judged()
            found = (unreadable["verdict"], unreadable["reason"])
            assert found == ("Violated", "RecordsUnreadable"), unreadable
            assert unreadable["examples"][0]["offset"] == last + 1
