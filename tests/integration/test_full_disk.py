"""A broker's volume is really full: its logs go out of service, everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic
from tests.integration.local_cluster import (
    Acked,
    LocalCluster,
    a_producer,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)
from tests.integration.test_faults import PARTITIONS, RATE_PER_S, RESUME_S_MAX, more_acks, writing
from tests.integration.volume import Volume, mounted

LEFT_BYTES = 2 * 1024 * 1024
FILLING_PER_S = 10 * RATE_PER_S
"""Each log has to meet the end of the disk, also the last one, which has what others left free."""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    """Broker 0's, before it first starts."""
    with mounted(tmp_path / "c" / "broker-0") as found:
        yield found


@pytest.fixture
def small(tmp_path: Path, volume: Volume) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "c") as cluster:
        yield cluster


def members(cluster: LocalCluster, topic: str) -> set[int]:
    """Who is in the ISR of all or some partitions."""
    return {member for p in cluster.topic(topic).values() for member in p.isrs}


def test_full_disk_stops_one_brokers_logs_only(small: LocalCluster, volume: Volume) -> None:
    small.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
    small.wait_isr("t", 3)
    led = {index for index, p in small.topic("t").items() if p.leader == 0}
    assert led, "broker 0 leads something"
    pids = small.pids
    with writing(small, "t", FILLING_PER_S) as writer:
        volume.fill(left=LEFT_BYTES)
        wait_for("the full broker left every ISR", lambda: members(small, "t") == {1, 2}, 60, 0.2)
        more_acks(writer, RATE_PER_S)
        # Metadata that its own copy has no room for reaches it all the same.
        volume.fill(left=0)
        for number in range(5):
            small.create_topic(f"later-{number}", 1)
        assert small.pids == pids, "no process ended"
        assert small.http(0, "/healthz")[0] == 200

        killed = small.kill_broker(0)
        again = small.wait_restarted(0, killed)
        wait_for("it runs on the full volume too", lambda: is_back(small, 0), 60, 0.2)
        more_acks(writer, RATE_PER_S)
        assert small.pids["0"] == again, "it did not end"

        volume.make_room()
        small.wait_isr("t", 3)
        assert small.pids["0"] == again, "there is room again: it was not restarted"
        more_acks(writer)
        acked = writer.finish()
    assert not acked.errors
    assert max(writer.longest_stall_s.values()) < RESUME_S_MAX
    assert_nothing_lost(acked, consume_all(small.bootstrap, "t", PARTITIONS))
    records = small.metadata_records(1)
    causes = {r["cause"].split(":")[0] for r in records if r["type"] == "PartitionsChanged"}
    assert "storage" in causes
    fenced = [r for r in records if r["type"] == "BrokerFenced"]
    assert {r["broker_id"] for r in fenced} == {0}, "the others stayed"
    assert any("proof" in r["cause"] for r in fenced), "only for its being killed"
    assert_same_metadata(small)
    assert small.stop() == 0
    assert segments(small, 0) == segments(small, 1), "the once full volume holds every record"


def segments(cluster: LocalCluster, broker_id: int) -> dict[str, bytes]:
    """The records of `t`, by partition."""
    found: dict[str, bytes] = {}
    for path in sorted((cluster.directory / f"broker-{broker_id}").glob("t-*/*.log")):
        found[path.parent.name] = found.get(path.parent.name, b"") + path.read_bytes()
    return found


def is_back(cluster: LocalCluster, broker_id: int) -> bool:
    """It was fenced, and is no more.  Clients hear of it also in between."""
    fences = ("BrokerFenced", "BrokerUnfenced")
    records = [r for r in cluster.metadata_records(1) if r["type"] in fences]
    told = [r["type"] for r in records if r["broker_id"] == broker_id]
    return "BrokerFenced" in told and told[-1] == "BrokerUnfenced"


def assert_same_metadata(cluster: LocalCluster) -> None:
    """Broker 0's copy, which once had no room, is as long as another's."""
    cluster.create_topic("last", 1)

    def known(broker_id: int) -> bool:
        return any(r.get("name") == "last" for r in cluster.metadata_records(broker_id))

    wait_for("both copies have the newest topic", lambda: known(0) and known(1))


def test_write_to_full_disk_gets_storage_error(small: LocalCluster, volume: Volume) -> None:
    """No other broker holds the partition: it is offline until its broker has room again."""
    topic = NewTopic("alone", 2, replica_assignment=[[0], [1]])
    admin = small.admin()
    for future in admin.create_topics([topic]).values():
        future.result(30)
    acked = produce(small.bootstrap, "alone", [b"before-%d" % n for n in range(500)])
    volume.fill(left=0)
    refused = write_until_refused(small.bootstrap, "alone", 0, acked)
    assert refused.code() == 56
    wait_for("partition 0 is offline", lambda: small.topic("alone")[0].leader == -1, poll_s=0.1)
    assert "plimsoll_broker_offline_partitions 1.0" in small.http(0, "/metrics")[1]
    other = produce_to(small.bootstrap, "alone", 1, [b"other-%d" % n for n in range(100)])
    assert len(other.records) == 100, "a partition elsewhere goes on"

    pid = small.pids["0"]
    volume.make_room()
    wait_for("partition 0 is led again", lambda: small.topic("alone")[0].leader == 0, 60, 0.1)
    causes = [r["cause"] for r in small.metadata_records(1) if r["type"] == "PartitionsChanged"]
    assert small.pids["0"] == pid, "it heals by itself"
    assert any("had room again" in cause for cause in causes)
    assert not any("data loss" in cause for cause in causes), "its log is what it was"
    again = produce_to(small.bootstrap, "alone", 0, [b"again-%d" % n for n in range(100)])
    found = consume_all(small.bootstrap, "alone", 2)
    for told in (acked, other, again):
        assert_nothing_lost(told, found)


def produce_to(bootstrap: str, topic: str, partition: int, values: list[bytes]) -> Acked:
    acked = Acked()
    producer = a_producer(bootstrap)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=acked.delivered)
    assert producer.flush(30) == 0
    return acked


def write_until_refused(
    bootstrap: str, topic: str, partition: int, acked: Acked
) -> confluent_kafka.KafkaError:
    """The first error that a producer without retries hears; what it was acked is noted."""
    producer = a_producer(bootstrap, retries=0, **{"enable.idempotence": False})
    for number in range(1_000):
        value = (b"full-%d" % number).ljust(10_000, b".")
        producer.produce(topic, value, partition=partition, on_delivery=acked.delivered)
        assert producer.flush(30) == 0
        if acked.errors:
            return acked.errors[0]
    raise AssertionError("the disk took everything")


def test_nearly_full_disk_refuses_clients_and_stays_reachable(
    tmp_path: Path, volume: Volume
) -> None:
    """One client filled the volume: nobody wrote, no group committed, the broker was not ready."""
    with LocalCluster(tmp_path / "c", brokers=1) as alone:
        alone.create_topic("t", 1)
        alone.create_topic("more", 1)
        values = [b"%d" % number for number in range(100)]
        assert not produce(alone.bootstrap, "t", values).errors
        commit(alone.bootstrap, 10)
        volume.fill(left=LEFT_BYTES)
        wait_for("the broker says so", lambda: metric(alone, "disk_short"), poll_s=0.1)
        acked = Acked()
        assert write_until_refused(alone.bootstrap, "t", 0, acked).code() == 56
        assert write_until_refused(alone.bootstrap, "more", 0, acked).code() == 56
        commit(alone.bootstrap, 20)
        assert alone.http(0, "/readyz")[0] == 200
        assert not metric(alone, "offline_partitions")
        assert metric(alone, "disk_refusals")
        admin = alone.admin()
        for future in admin.delete_topics(["more"]).values():
            future.result(30)

        volume.make_room()
        wait_for("clients may write", lambda: not metric(alone, "disk_short"), poll_s=0.1)
        assert not produce(alone.bootstrap, "t", values).errors


def metric(cluster: LocalCluster, name: str) -> float:
    """Of broker 0."""
    lines = cluster.http(0, "/metrics")[1].splitlines()
    names = (f"plimsoll_broker_{name} ", f"plimsoll_broker_{name}_total ")
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(names)]
    return float(value)


def commit(bootstrap: str, offset: int) -> None:
    """By a consumer of a group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    place = confluent_kafka.TopicPartition("t", 0, offset)
    try:
        (done,) = consumer.commit(offsets=[place], asynchronous=False)
        assert done.error is None
        (found,) = consumer.committed([place], timeout=30)
        assert found.offset == offset
    finally:
        consumer.close()
