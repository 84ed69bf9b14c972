"""A real broker whose volume holds many times the offsets that it has room for: it starts within
its memory, and the groups can be deleted."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import psutil
from confluent_kafka.admin import AdminClient
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster, wait_for

MIB = 2**20
GROUPS, PARTITIONS = 60, 100
TEXT = "x" * 4_000
LITTLE = 16 * MIB
"""Groups have an eighth of it: 2 MiB, where 24 MB were committed."""


def start(directory: Path, memory: int) -> LocalCluster:
    file = directory / f"{memory}.yaml"
    config = {
        "offsets.topic.num.partitions": 1,
        "memory.limit.bytes": memory,
        "queued.max.request.bytes": 64 * MIB,
        "queued.max.response.bytes": 64 * MIB,
    }
    file.write_text(log_cluster(config=config))
    return LocalCluster(directory / "data", brokers=None, files=[file], restart=False)


def commit(cluster: LocalCluster, group: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    rows = [
        confluent_kafka.TopicPartition("orders", index, 7, metadata=TEXT)
        for index in range(PARTITIONS)
    ]
    try:
        done = consumer.commit(offsets=rows, asynchronous=False)
        assert not any(one.error for one in done)
    finally:
        consumer.close()


def most_resident(cluster: LocalCluster) -> int:
    return max(psutil.Process(pid).memory_info().rss for pid in cluster.broker_pids)


def test_broker_starts_within_its_memory_whatever_was_committed(tmp_path: Path) -> None:
    with start(tmp_path, 4_096 * MIB) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        before = most_resident(cluster)
        for number in range(GROUPS):
            commit(cluster, f"g{number}")
    with start(tmp_path, LITTLE) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 60_000})
        wait_for("the groups", lambda: unloaded(cluster) > 0, timeout_s=60)
        assert most_resident(cluster) - before < GROUPS * PARTITIONS * len(TEXT)
        names = [f"g{number}" for number in range(GROUPS)]
        for future in admin.delete_consumer_groups(names, request_timeout=60).values():
            future.result(90)
        wait_for("room", lambda: unloaded(cluster) == 0, timeout_s=60)
        commit(cluster, "after")


def unloaded(cluster: LocalCluster) -> float:
    return sum(cluster.metric(broker, "groups_unloaded") for broker in range(3))
