"""An audit of a local cluster names each file that was damaged, and nothing else."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_spark.session import JARS_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUN_S = 300
OURS = "/apis/plimsoll.dev/v1alpha1/namespaces/default"
BATCHES = 6
RECORDS = 5
"""A batch."""
TOPICS = ("fine", "flip-one", "flip-all", "cut", "swap", "truncate")


def write(cluster: LocalCluster, topic: str) -> None:
    """Batches of the same number of records, so that offsets are known."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5_000})
    for number in range(BATCHES):
        for record in range(RECORDS):
            producer.produce(topic, b"v" * 50, key=b"%d" % (number * RECORDS + record), partition=0)
        assert producer.flush(60) == 0


def leader(cluster: LocalCluster, topic: str) -> int:
    return int(cluster.topic(topic)[0].leader)


def damage(
    cluster: LocalCluster, topic: str, brokers: list[int], change: Callable[[list[bytes]], bytes]
) -> None:
    """Change the file of the topic's only segment, below a broker that runs."""
    for broker in brokers:
        (path,) = (cluster.directory / f"broker-{broker}" / f"{topic}-0").glob("*.log")
        content = change(batches(path.read_bytes()))
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
            os.fsync(file.fileno())


def batches(content: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(content):
        size = struct.unpack_from(">i", content, at + 8)[0] + 12
        found.append(content[at : at + size])
        at += size
    return found


def flipped(held: list[bytes]) -> bytes:
    third = bytearray(held[2])
    third[-3] ^= 1
    return b"".join([*held[:2], bytes(third), *held[3:]])


def audited(cluster: LocalCluster, name: str, pattern: str) -> Any:
    body = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Verification",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterRef": {"name": "local"},
            "source": {"existingTopics": {"matchPattern": pattern}},
        },
    }
    path = f"{OURS}/verifications/{name}"
    cluster.api.ask("POST", f"{OURS}/verifications", body)
    wait_for(
        "the verdict",
        lambda: (cluster.api.ask("GET", path)[1].get("status") or {}).get("verdict"),
        RUN_S,
        0.5,
    )
    return cluster.api.ask("GET", path)[1]["status"]


def places(status: Any) -> set[tuple[Any, ...]]:
    return {
        (one["topic"], one["kind"], one["offset"], one["lastOffset"], tuple(one["brokers"]))
        for one in status["evidence"].get("examples") or ()
    }


def test_damaged_files_are_named_with_broker_and_offset(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(spark_jars))
    with LocalCluster(tmp_path / "data") as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, 1)
            write(cluster, topic)
        led = {topic: leader(cluster, topic) for topic in TOPICS}
        other = {topic: (led[topic] + 1) % 3 for topic in TOPICS}
        damage(cluster, "flip-one", [led["flip-one"]], flipped)
        damage(cluster, "flip-all", [0, 1, 2], flipped)
        damage(cluster, "cut", [other["cut"]], lambda held: b"".join(held[:2] + held[3:]))
        damage(
            cluster,
            "swap",
            [other["swap"]],
            lambda held: b"".join([*held[:2], held[3], held[2], *held[4:]]),
        )
        damage(cluster, "truncate", [other["truncate"]], lambda held: b"".join(held[:5]))
        status = audited(cluster, "damaged", ".*")
        assert status["verdict"] == "Violated", cluster.said()
        third = (2 * RECORDS, 3 * RECORDS - 1)
        found = places(status)
        assert found >= {
            ("flip-one", "unreadable", *third, (led["flip-one"],)),
            ("flip-all", "unreadable", *third, (0, 1, 2)),
            ("cut", "missing", *third, (other["cut"],)),
            ("swap", "missing", *third, (other["swap"],)),
            ("truncate", "unreadable", 5 * RECORDS, 6 * RECORDS - 1, (other["truncate"],)),
        }
        assert not [one for one in found if one[0] == "fine"]
        assert all(brokers == (other["swap"],) for topic, *_, brokers in found if topic == "swap")
        assert status["audited"]["replicas"] == 3 * len(TOPICS)
        healthy = audited(cluster, "healthy", "fine")
        assert (healthy["verdict"], healthy["audited"]["records"]) == ("Passed", BATCHES * RECORDS)
