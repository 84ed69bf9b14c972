"""Consumer lag as brokers show it, beside what an administrator's client works out by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for

PARTITIONS = 6
CLUSTER = log_cluster(
    config={"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 300}
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("lag")
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as running:
        # With one replica each: no coordinator has them all, so it asks their leaders.
        admin = running.admin()
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(WAIT_S)
        running.wait_isr("orders", 1)
        yield running


def produce(cluster: LocalCluster, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(records):
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def read(cluster: LocalCluster, group: str, records: int) -> None:
    """Some of them, committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    left = records
    try:
        while left:
            found = consumer.consume(left, timeout=WAIT_S)
            assert found, "no more records"
            left -= len(found)
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def shown(cluster: LocalCluster, group: str) -> dict[str, float]:
    """The last word of each series of the group, by all brokers."""
    labels = f'{{group="{group}",topic="orders"}} '
    lines = [
        line.removeprefix("plimsoll_group_")
        for broker in range(3)
        for line in cluster.http(broker, "/metrics")[1].splitlines()
        if line.startswith("plimsoll_group_") and labels in line
    ]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}


def worked_out(cluster: LocalCluster, group: str) -> int:
    """As `kafka-consumer-groups` does: the ends less what is committed."""
    admin = cluster.admin()
    asked = ConsumerGroupTopicPartitions(group)
    told = admin.list_consumer_group_offsets([asked])[group].result(WAIT_S)
    committed = {(one.topic, one.partition): one.offset for one in told.topic_partitions}
    ends = admin.list_offsets({TopicPartition(*key): OffsetSpec.latest() for key in committed})
    return sum(
        ends[TopicPartition(*key)].result(WAIT_S).offset - at for key, at in committed.items()
    )


def test_lag_matches_administrators_and_ends(
    cluster: LocalCluster,
) -> None:
    produce(cluster, 600)
    read(cluster, "behind", 600)
    wait_for("no lag", lambda: shown(cluster, "behind").get("lag_records") == 0, 60)
    assert shown(cluster, "behind") == {
        "lag_records": 0,
        "lag_seconds": 0,
        "committed_position": 600,
        "stuck_seconds": 0,
    }
    produce(cluster, 240)
    wait_for("the lag", lambda: shown(cluster, "behind")["lag_records"] == 240, 60)
    assert worked_out(cluster, "behind") == 240
    wait_for("its age", lambda: shown(cluster, "behind")["lag_seconds"] >= 5, 60)
    assert shown(cluster, "behind")["committed_position"] == 600
    read(cluster, "behind", 240)
    wait_for("no lag again", lambda: shown(cluster, "behind")["lag_records"] == 0, 60)
    assert shown(cluster, "behind")["lag_seconds"] == 0


def test_groups_and_what_they_did_are_counted(cluster: LocalCluster) -> None:
    def total(name: str) -> float:
        return sum(cluster.metric(broker, name) for broker in range(3))

    read(cluster, "counted", 100)
    wait_for("an empty group", lambda: total('groups{state="Empty"}') >= 1, 60)
    assert total("group_rebalances_total") >= 1
    assert total("committed_offsets") >= PARTITIONS
    assert total("offset_commits_total") >= PARTITIONS
    assert total("group_loads_total") == 3
    assert total("group_loading_seconds") == 0
