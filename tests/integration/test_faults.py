"""Processes die, freeze and talk nonsense; what was acknowledged stays."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from tests.integration.local_cluster import (
    Acked,
    LocalCluster,
    a_producer,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)
from tests.monitored import given_s, waited_s

PARTITIONS = 6
RESUME_S_MAX = 2.0
RATE_PER_S = 600
GOES_ON_S_MAX = 60
"""For so long a client asks and asks again after an outage."""


class Moment(NamedTuple):
    """A time, and by then: how long some process had waited for a processor, and by how much the
    writer had come late."""

    now_s: float
    waited_s: float
    late_s: float


class Writer:
    """A steady producer in a thread; notes when each partition was acked last and the longest
    time between two acks, of what the machine gave (`given_s`)."""

    def __init__(self, cluster: LocalCluster, topic: str, per_s: int = RATE_PER_S) -> None:
        self.acked = Acked()
        self._period_s = PARTITIONS / per_s
        self.longest_stall_s: dict[int, float] = dict.fromkeys(range(PARTITIONS), 0.0)
        self._last: dict[int, Moment] = {}
        self._late_s = 0.0
        self._topic = topic
        self._producer = a_producer(cluster.bootstrap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.dropped = False

    def start(self) -> None:
        self._thread.start()

    def finish(self, *, flush: bool = True) -> Acked:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if flush:
            assert self._producer.flush(60) == 0
        else:
            self._producer.purge()
            self._producer.flush(5)
        return self.acked

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                value = f"{partition}-{number:08d}".encode().ljust(200, b".")
                try:
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                except BufferError:
                    self._producer.poll(0.05)
                number += 1
            self._producer.poll(0)
            # A poll that waits ends with the first answer: it would bound nothing.
            began_s = time.monotonic()
            self._stop.wait(self._period_s)
            self._late_s += max(time.monotonic() - began_s - self._period_s, 0.0)

    def _delivered(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        self.acked.delivered(error, message)
        partition = message.partition()
        if error is None and partition is not None:
            now = Moment(time.monotonic(), waited_s(), self._late_s)
            last = self._last.get(partition, now)
            lost_s = max(now.waited_s - last.waited_s, now.late_s - last.late_s)
            stall = given_s(now.now_s - last.now_s, lost_s)
            self.longest_stall_s[partition] = max(self.longest_stall_s[partition], stall)
            self._last[partition] = now


@contextmanager
def writing(cluster: LocalCluster, topic: str, per_s: int = RATE_PER_S) -> Iterator[Writer]:
    """`per_s`: records a second."""
    writer = Writer(cluster, topic, per_s)
    writer.start()
    try:
        wait_for("the first acks", lambda: len(writer.acked.records) > 200)
        yield writer
    finally:
        writer._stop.set()


def more_acks(writer: Writer, count: int = 200) -> None:
    """Until that many more records were acked."""
    goal = len(writer.acked.records) + count
    wait_for("acks go on", lambda: len(writer.acked.records) >= goal)


def test_broker_killed_during_write_loses_nothing(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", forked=False) as cluster:
        broker_is_killed_in_mid_write(cluster)


def broker_is_killed_in_mid_write(cluster: LocalCluster) -> None:
    cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
    with writing(cluster, "t") as writer:
        old = cluster.kill_broker(0)
        more_acks(writer, RATE_PER_S)
        cluster.wait_rejoined(0, old)
        cluster.wait_isr("t", 3)
        more_acks(writer)
        acked = writer.finish()
    assert not acked.errors
    assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
    worst = max(writer.longest_stall_s.values())
    assert worst < RESUME_S_MAX, f"a partition could not be written for {worst:.2f} s"
    fences = [r for r in cluster.metadata_records(1) if r["type"] == "BrokerFenced"]
    assert [r["broker_id"] for r in fences] == [0]
    assert "proof" in fences[0]["cause"]


def test_consumer_during_leader_kill_reads_everything(
    cluster: LocalCluster,
) -> None:
    """It begins while metadata still name the killed broker, or no leader."""
    cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr("t", 3)
    acked = produce(cluster.bootstrap, "t", [b"%d" % number for number in range(5_000)])
    cluster.kill_broker(cluster.topic("t")[0].leader)
    assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))


def test_cluster_killed_at_once_keeps_every_acknowledged_record(tmp_path: Path) -> None:
    """Clients that were there before go on, too: the brokers' first answers are of a time in which
    all of them are fenced."""
    cluster = LocalCluster(tmp_path / "c")
    later = Acked()
    with cluster:
        cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
        clients = [a_producer(cluster.bootstrap) for _ in range(4)]
        with writing(cluster, "t") as writer:
            more_acks(writer, RATE_PER_S)
            for number, client in enumerate(clients):
                client.produce("t", b"before-%d" % number, on_delivery=later.delivered)
                assert client.flush(GOES_ON_S_MAX) == 0
            cluster.kill_everything()
            acked = writer.finish(flush=False)
    for number, client in enumerate(clients):
        client.produce("t", b"meanwhile-%d" % number, on_delivery=later.delivered)
    assert len(acked.records) > RATE_PER_S
    with cluster:
        cluster.wait_isr("t", 3)
        assert [client.flush(GOES_ON_S_MAX) for client in clients] == [0] * len(clients)
        assert len(later.records) == 2 * len(clients)
        found = consume_all(cluster.bootstrap, "t", PARTITIONS)
        assert_nothing_lost(acked, found)
        again = produce(cluster.bootstrap, "t", [b"again-%d" % n for n in range(50)])
        assert len(again.records) == 50


@pytest.mark.parametrize("seconds", [3, 12])
def test_controller_outage_stops_no_client(cluster: LocalCluster, seconds: int) -> None:
    """Longer than a session too: who was away itself may not call others silent."""
    cluster.create_topic("t", PARTITIONS)
    with writing(cluster, "t") as writer:
        before = cluster.metadata_records()
        with cluster.frozen_controller():
            frozen_until = time.monotonic() + seconds
            while time.monotonic() < frozen_until:
                more_acks(writer, 100)
        produce(cluster.bootstrap, "t", [b"after"])
        cluster.create_topic("after", 1)
        wait_for(
            "the new topic is known",
            lambda: any(r.get("name") == "after" for r in cluster.metadata_records()),
        )
        acked = writer.finish()
    new = cluster.metadata_records()[len(before) :]
    # Producer ids are handed out as ever; nothing else but the new topic was decided.
    decided = [r["type"] for r in new if r["type"] != "ProducerIdsAllocated"]
    assert decided == ["TopicCreated", "PartitionsCreated"]
    assert not acked.errors
    assert max(writer.longest_stall_s.values()) < RESUME_S_MAX


def test_frozen_broker_is_fenced_and_returns(cluster: LocalCluster) -> None:
    """No proof of death: patience first, then it is a follower like any other."""
    cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
    with writing(cluster, "t") as writer:
        pid = cluster.pids["1"]
        os.kill(pid, signal.SIGSTOP)
        try:
            cluster.wait_isr("t", 2)
            more_acks(writer)
        finally:
            os.kill(pid, signal.SIGCONT)
        cluster.wait_isr("t", 3)
        more_acks(writer)
        acked = writer.finish()
    assert cluster.pids["1"] == pid, "the same process goes on"
    assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
    fences = [r for r in cluster.metadata_records(0) if r["type"] == "BrokerFenced"]
    assert [r["broker_id"] for r in fences] == [1]
    assert "silence" in fences[0]["cause"]


def test_dead_broker_stays_dead_with_no_restart(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", restart=False, forked=False) as cluster:
        cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
        cluster.kill_broker(1)
        cluster.wait_isr("t", 2)
        assert "1" not in cluster.pids
        acked = produce(cluster.bootstrap, "t", [b"%d" % n for n in range(1_000)])
        assert len(acked.records) == 1_000
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))


def test_killed_controller_takes_its_brokers_along(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", forked=False)
    cluster.start()
    pids = cluster.broker_pids
    os.kill(cluster.controller_pid, 9)
    wait_for("the brokers are gone", lambda: not any(Path(f"/proc/{p}").exists() for p in pids))
    cluster.stop()


def nonsense() -> list[bytes]:
    noise = random.Random(7)
    return [
        b"",
        b"\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">i", 2**31 - 1) + b"x" * 100,
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">ihhi", 100, 0, 9, 1) + b"half a request",
        struct.pack(">ihhih", 10, 1000, 0, 1, 0) + b"x" * 20,
        struct.pack(">ihhih", 10, 1000, 99, 1, -7),
        *(noise.randbytes(size) for size in (3, 50, 5_000, 200_000)),
        *(struct.pack(">i", size) + noise.randbytes(size) for size in (10, 1_000)),
    ]


def send(address: tuple[str, int], data: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=5)
    try:
        connection.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        # Refused before all of it was sent: as good an answer as a closed connection.
        return connection
    return connection


def test_nonsense_on_ports_harms_nobody(
    cluster: LocalCluster,
) -> None:
    cluster.create_topic("t", PARTITIONS)
    with writing(cluster, "t") as writer:
        before = cluster.metadata_records()
        pids = cluster.pids
        open_connections = [
            send(address, data)
            for data in nonsense()
            for address in (cluster.address(0), cluster.controller)
        ]
        more_acks(writer, RATE_PER_S)
        acked = writer.finish()
        for connection in open_connections:
            connection.close()
    assert not acked.errors
    assert cluster.pids == pids
    decided = {r["type"] for r in cluster.metadata_records()[len(before) :]}
    assert decided <= {"ProducerIdsAllocated"}
    assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
