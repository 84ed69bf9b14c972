"""Committed offsets with real clients: they outlive the broker that coordinates their group."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.kafka_python import left_sockets

PARTITIONS = 3
CLUSTER = log_cluster(config={"offsets.topic.num.partitions": 7})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("offsets")
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as running:
        running.create_topic("orders", PARTITIONS, {"min.insync.replicas": "2"})
        running.wait_isr("orders", 3)
        yield running


def a_consumer(cluster: LocalCluster, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "socket.timeout.ms": 10_000,
        }
    )


def commit(cluster: LocalCluster, group: str, *offsets: int) -> None:
    """One for each partition, from the first."""
    consumer = a_consumer(cluster, group)
    asked = [confluent_kafka.TopicPartition("orders", i, o) for i, o in enumerate(offsets)]
    try:
        done = consumer.commit(offsets=asked, asynchronous=False)
        assert [one.error for one in done] == [None] * len(offsets)
    finally:
        consumer.close()


def committed(cluster: LocalCluster, group: str) -> list[int]:
    consumer = a_consumer(cluster, group)
    asked = [confluent_kafka.TopicPartition("orders", index) for index in range(PARTITIONS)]
    try:
        return [one.offset for one in consumer.committed(asked, timeout=20)]
    finally:
        consumer.close()


def test_first_group_creates_internal_offsets_topic(
    cluster: LocalCluster,
) -> None:
    commit(cluster, "first", 1, 2, 3)
    assert committed(cluster, "first") == [1, 2, 3]
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        (told,) = admin.describe_topics(["__consumer_offsets"])
        assert told["is_internal"]
        assert len(told["partitions"]) == 7
        assert all(len(one["replica_nodes"]) == 3 for one in told["partitions"])
    finally:
        admin.close()
    deleting = cluster.admin()
    refused = deleting.delete_topics(["__consumer_offsets"])["__consumer_offsets"]
    with pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"):
        refused.result(10)


def test_offsets_survive_a_coordinator_that_is_killed(cluster: LocalCluster) -> None:
    commit(cluster, "killed", 10, 20, 30)
    admin = cluster.admin()
    described = admin.describe_consumer_groups(["killed"])["killed"].result(10)
    coordinator = described.coordinator.id
    old = cluster.kill_broker(coordinator)
    wait_for("the offsets", lambda: _told_at_last(cluster, "killed") == [10, 20, 30], timeout_s=60)
    cluster.wait_rejoined(coordinator, old)
    commit(cluster, "killed", 11)
    assert committed(cluster, "killed") == [11, 20, 30]


def test_offsets_survive_the_kill_of_all_brokers(cluster: LocalCluster) -> None:
    commit(cluster, "all", 5, 6, 7)
    for pid in cluster.broker_pids:
        os.kill(pid, signal.SIGKILL)
    wait_for("the offsets", lambda: _told_at_last(cluster, "all") == [5, 6, 7], timeout_s=60)


def _told_at_last(cluster: LocalCluster, group: str) -> list[int] | None:
    """Return None if the client was told an error: librdkafka passes on the errors of a
    coordinator that has just changed."""
    try:
        return committed(cluster, group)
    except confluent_kafka.KafkaException:
        return None


@left_sockets()
def test_kafka_python_commits_for_assigned_partitions(
    cluster: LocalCluster,
) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id="python", enable_auto_commit=False
    )
    try:
        partition = kafka.TopicPartition("orders", 1)
        consumer.assign([partition])
        consumer.commit({partition: kafka.OffsetAndMetadata(42, "mine", -1)})
        assert consumer.committed(partition) == 42
        assert consumer.committed(kafka.TopicPartition("orders", 0)) is None
    finally:
        consumer.close()


def test_admin_manages_groups_and_offsets(
    cluster: LocalCluster,
) -> None:
    commit(cluster, "admin", 1, 2)
    admin: AdminClient = cluster.admin()
    listed = admin.list_consumer_groups().result(10)
    assert "admin" in [one.group_id for one in listed.valid]
    assert listed.errors == []
    described = admin.describe_consumer_groups(["admin"])["admin"].result(10)
    assert described.state.name == "EMPTY"
    moved = ConsumerGroupTopicPartitions(
        "admin", [confluent_kafka.TopicPartition("orders", 0, 100)]
    )
    admin.alter_consumer_group_offsets([moved])["admin"].result(10)
    asked = ConsumerGroupTopicPartitions("admin")
    told = admin.list_consumer_group_offsets([asked])["admin"].result(10)
    assert [(one.partition, one.offset) for one in told.topic_partitions] == [(0, 100), (1, 2)]
    admin.delete_consumer_groups(["admin"])["admin"].result(10)
    assert committed(cluster, "admin") == [-1001] * PARTITIONS
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups(["admin"])["admin"].result(10)


def test_recreated_topic_has_no_committed_offsets(cluster: LocalCluster) -> None:
    cluster.create_topic("again", 1, {})
    consumer = a_consumer(cluster, "again")
    at = confluent_kafka.TopicPartition("again", 0, 9)
    consumer.commit(offsets=[at], asynchronous=False)
    admin = cluster.admin()
    admin.delete_topics(["again"])["again"].result(20)
    cluster.create_topic("again", 1, {})
    (told,) = consumer.committed([confluent_kafka.TopicPartition("again", 0)], timeout=20)
    consumer.close()
    assert told.offset == confluent_kafka.OFFSET_INVALID
