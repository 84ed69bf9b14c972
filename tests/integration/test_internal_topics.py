"""The brokers' own topics: their replicas follow the brokers, and the LogCluster tells of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from tests.integration.declared import log_cluster
from tests.integration.listening import OURS
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for
from tests.integration.test_local_objects import ask

OFFSETS = "__consumer_offsets"


def declare(file: Path, brokers: int) -> Path:
    file.write_text(log_cluster(brokers, config={"offsets.topic.num.partitions": 5}))
    return file


def a_consumer(cluster: LocalCluster) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "billing",
            "enable.auto.commit": False,
            "socket.timeout.ms": 10_000,
        }
    )


def committed(cluster: LocalCluster) -> int:
    consumer = a_consumer(cluster)
    try:
        return int(consumer.committed([TopicPartition("t", 0)], timeout=WAIT_S)[0].offset)
    finally:
        consumer.close()


def status(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = ask(cluster, "GET", f"{OURS}/logclusters/main")[1].get("status") or {}
    return found


def gone(cluster: LocalCluster, broker: int) -> bool:
    """Whether a broker is no member any more."""
    last = [r for r in cluster.metadata_records() if r["type"] == "MembersChanged"][-1:]
    return bool(last) and broker not in last[0]["broker_ids"]


def test_offsets_topic_grows_to_three_brokers(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    cluster = LocalCluster(tmp_path / "c", brokers=None, files=[declare(file, 1)])
    with cluster:
        admin = cluster.admin()
        topic = confluent_kafka.admin.NewTopic("t", 1, 1)
        admin.create_topics([topic])["t"].result(WAIT_S)
        consumer = a_consumer(cluster)
        (done,) = consumer.commit(offsets=[TopicPartition("t", 0, 42)], asynchronous=False)
        assert done.error is None
        consumer.close()
        cluster.wait_isr(OFFSETS, 1)
        wait_for("it is counted", lambda: status(cluster).get("groups") == {"total": 1}, 60)
        assert status(cluster)["internalTopics"] == {"total": 1}
    declare(file, 3)
    with cluster:
        cluster.wait_isr(OFFSETS, 3, 60)
        configured = [
            record
            for record in cluster.metadata_records()
            if record["type"] == "TopicConfigured" and record["cause"] == "more brokers may hold it"
        ]
        assert configured[-1]["replication_factor"] == 3
        assert configured[-1]["min_isr"] == 2
        wait_for(
            "nothing lacks a replica",
            lambda: status(cluster).get("internalTopics") == {"total": 1},
            60,
        )
        old = cluster.kill_broker(0)
        # librdkafka gives NOT_COORDINATOR to its caller: asked once the coordinator has settled.
        cluster.wait_rejoined(0, old)
        cluster.wait_isr(OFFSETS, 3)
        assert committed(cluster) == 42
        wait_for("it is counted", lambda: status(cluster).get("groups") == {"total": 1}, 60)
    declare(file, 2)
    with cluster:
        wait_for("broker 2 has left", lambda: gone(cluster, 2), 120)
        cluster.wait_isr(OFFSETS, 2, 60)
        assert committed(cluster) == 42
