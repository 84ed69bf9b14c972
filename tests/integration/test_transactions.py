"""A real transactional producer against real brokers: commits, aborts, fencing, and a coordinator
that is killed in between. Transactions are switched on for these clusters alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for

from plimsoll_core.coordination.hashing import partition_of

PARTITIONS = 3
TOPIC = "paid"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIMSOLL_TRANSACTIONS", "true")
        with LocalCluster(tmp_path_factory.mktemp("transactions") / "c") as running:
            running.create_topic(TOPIC, PARTITIONS)
            running.wait_isr(TOPIC, 3)
            yield running


def a_writer(cluster: LocalCluster, name: str, **more: Any) -> confluent_kafka.Producer:
    """A transactional producer that has fenced all earlier ones of its name."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "linger.ms": 0, **more}
    )
    producer.init_transactions(WAIT_S)
    return producer


def write(producer: confluent_kafka.Producer, name: str) -> None:
    """One record to each partition, in the log of each."""
    for index in range(PARTITIONS):
        producer.produce(TOPIC, f"{name}/{index}".encode(), partition=index)
    assert producer.flush(WAIT_S) == 0


def seen(cluster: LocalCluster, isolation: str) -> set[str]:
    """The names of all records that a reader of this isolation level gets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found, ends = set(), 0
    while ends < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, "a reader waits for ever"
        error = message.error()
        if error is None:
            found.add((message.value() or b"").decode().partition("/")[0])
        elif error.code() == KafkaError._PARTITION_EOF:
            ends += 1
    consumer.close()
    return found


def coordinator(cluster: LocalCluster, name: str) -> int:
    """The broker that coordinates this transactional id."""
    partitions = cluster.topic("__transaction_state")
    return partitions[partition_of(name, len(partitions))].leader


def test_committed_records_alone_are_read_committed(cluster: LocalCluster) -> None:
    producer = a_writer(cluster, "till")
    producer.begin_transaction()
    write(producer, "kept")
    producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    write(producer, "dropped")
    producer.abort_transaction(WAIT_S)
    wait_for("all is decided", lambda: "kept" in seen(cluster, "read_committed"))
    assert "dropped" not in seen(cluster, "read_committed")
    assert {"kept", "dropped"} <= seen(cluster, "read_uncommitted")


def test_newer_instance_fences_older_one(cluster: LocalCluster) -> None:
    older = a_writer(cluster, "same")
    older.begin_transaction()
    write(older, "older")
    newer = a_writer(cluster, "same")
    newer.begin_transaction()
    write(newer, "newer")
    newer.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    wait_for("all is decided", lambda: "newer" in seen(cluster, "read_committed"))
    assert "older" not in seen(cluster, "read_committed")


def test_overdue_transaction_is_aborted(cluster: LocalCluster) -> None:
    late = a_writer(cluster, "late", **{"transaction.timeout.ms": 1_000})
    late.begin_transaction()
    write(late, "late")
    other = a_writer(cluster, "other")
    other.begin_transaction()
    write(other, "other")
    other.commit_transaction(WAIT_S)
    wait_for("readers go on", lambda: "other" in seen(cluster, "read_committed"))
    with pytest.raises(KafkaException):
        late.commit_transaction(WAIT_S)
    assert "late" not in seen(cluster, "read_committed")


def test_killed_coordinator_loses_no_transaction(cluster: LocalCluster) -> None:
    producer = a_writer(cluster, "survivor")
    for number in range(4):
        producer.begin_transaction()
        write(producer, f"survived-{number}")
        victim = coordinator(cluster, "survivor")
        pid = cluster.kill_broker(victim)
        if number % 2 == 0:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        cluster.wait_rejoined(victim, pid)
        cluster.wait_isr(TOPIC, 3)
        cluster.wait_isr("__transaction_state", 3)
    wanted = {"survived-0", "survived-2"}
    wait_for("all is decided", lambda: wanted <= seen(cluster, "read_committed"))
    assert not {"survived-1", "survived-3"} & seen(cluster, "read_committed")


def test_transactions_are_switched_off_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLIMSOLL_TRANSACTIONS", raising=False)
    with LocalCluster(tmp_path / "plain", brokers=1) as plain:
        with pytest.raises(KafkaException) as refused:
            a_writer(plain, "nowhere")
        assert "does not support transactions" in str(refused.value)
