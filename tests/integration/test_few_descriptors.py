"""A real broker with few descriptors and more partitions than it has: it goes on, and starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.local_cluster import LocalCluster

DESCRIPTORS = 400
PARTITIONS = 900
TOPICS = 9
LOGS_MAX = DESCRIPTORS // 2 + 50
"""With files that a thread is syncing."""


class WithFewDescriptors(LocalCluster):
    """Its processes may have so many."""

    @property
    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *super().command]


def open_files(cluster: LocalCluster) -> tuple[int, int]:
    """Descriptors of broker 0's process, and of them those of logs."""
    broker = psutil.Process(cluster.pids["0"])
    logs = 0
    names = os.listdir(f"/proc/{broker.pid}/fd")
    for name in names:
        try:
            logs += os.readlink(f"/proc/{broker.pid}/fd/{name}").endswith((".log", "index"))
        except FileNotFoundError:
            continue
    return len(names), logs


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, PARTITIONS // TOPICS) for name in topics]
    for made in admin.create_topics(new, request_timeout=60).values():
        made.result()


def produce(bootstrap: str, topic: str) -> None:
    """One record into each partition, by a client of its own."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for index in range(PARTITIONS // TOPICS):
        producer.produce(topic, b"x", partition=index)
    assert producer.flush(60) == 0


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="util-linux is not installed")
def test_broker_with_more_partitions_than_descriptors_serves(tmp_path: Path) -> None:
    """All descriptors were logs': no client could connect, no metrics were told, and the topics
    could be deleted by nobody, after a restart either."""
    topics = [f"t{number}" for number in range(TOPICS)]
    with LocalCluster(tmp_path / "c", brokers=1) as cluster:
        create(cluster.bootstrap, *topics)
    with WithFewDescriptors(tmp_path / "c", brokers=1, forked=False) as cluster:
        for name in topics:
            produce(cluster.bootstrap, name)
        used, logs = open_files(cluster)
        assert logs <= LOGS_MAX
        assert used < DESCRIPTORS * 3 // 4, "some are left for everybody else"
        assert cluster.http(0, "/metrics")[0] == 200
        with pytest.raises(confluent_kafka.KafkaException, match="descriptors for at most 200"):
            create(cluster.bootstrap, "one-more")

        killed = cluster.kill_broker(0)
        cluster.wait_rejoined(0, killed)
        produce(cluster.bootstrap, "t3")
        assert open_files(cluster)[1] <= LOGS_MAX
        assert cluster.http(0, "/metrics")[0] == 200
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for deleted in admin.delete_topics(topics, request_timeout=60).values():
            deleted.result()
