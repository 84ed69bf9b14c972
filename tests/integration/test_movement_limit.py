"""A move under a limit between real processes, and what goes on beside it."""

from __future__ import annotations

import time
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import NewTopic
from tests.integration.declared import log_cluster
from tests.integration.listening import CLUSTER, asked
from tests.integration.local_cluster import (
    WAIT_S,
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)
from tests.integration.test_reassignment import move, moving, placed

NEARLY_NONE = 1_000
"""At this limit a batch of the copy comes, and the next one many seconds later."""
WRITES, WRITES_S_MAX = 20, 60
LIMIT = 256 * 2**10
PIECE_S = 0.125
"""At this limit a copy is fetched eight times a second."""
BATCH_BYTES = 16_000
LIMIT_METRIC = 'movement_limit_bytes_per_second{mover="cluster"}'
DECLARED = log_cluster(4, movement={"bytesPerSecond": str(NEARLY_NONE)})
VALUES = [b"%06d" % n + b"x" * 2_000 for n in range(1_000)]


def write(producer: confluent_kafka.Producer, topic: str) -> None:
    """A record, until every replica in sync has it."""
    errors: list[confluent_kafka.KafkaError | None] = []
    producer.produce(topic, b"record", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None]


def test_move_keeps_limit_and_delays_nobody(tmp_path: Path) -> None:
    """Broker 3 takes t over from 0, whose other topic it follows all the while."""
    file = tmp_path / "cluster.yaml"
    file.write_text(DECLARED)
    with LocalCluster(tmp_path / "c", brokers=None, files=(file,)) as cluster:
        admin = cluster.admin()
        topics = [
            NewTopic("t", 1, replica_assignment=[[0, 1]]),
            NewTopic("beside", 1, replica_assignment=[[0, 3]], config={"min.insync.replicas": "2"}),
        ]
        for created in admin.create_topics(topics).values():
            created.result(WAIT_S)
        for name in ("t", "beside"):
            cluster.wait_isr(name, 2)
        acked = produce(cluster.bootstrap, "t", VALUES, **{"batch.size": BATCH_BYTES})
        size = sum(map(len, VALUES))
        assert cluster.metric(3, LIMIT_METRIC) == NEARLY_NONE

        assert move(cluster, 0, {0: [0, 3]}) == [0]
        wait_for("the copy begins", lambda: cluster.metric(3, "moved_bytes_total") > 0)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0}
        )
        # Were each to wait for a piece of the copy, that would take several times as long.
        began = time.monotonic()
        for _ in range(WRITES):
            write(producer, "beside")
        assert time.monotonic() - began < WRITES_S_MAX
        assert cluster.metric(3, "moving_partitions") == 1

        moved = cluster.metric(3, "moved_bytes_total")
        began = time.monotonic()
        asked(cluster, "PATCH", CLUSTER, {"spec": {"movement": {"bytesPerSecond": str(LIMIT)}}})
        wait_for("the new limit", lambda: cluster.metric(3, LIMIT_METRIC) == LIMIT)
        wait_for("the move ends", lambda: not moving(cluster, 0))
        seconds = time.monotonic() - began

        assert seconds >= (size - moved - BATCH_BYTES) / LIMIT - PIECE_S
        assert placed(cluster)[0] == [0, 3]
        assert cluster.metric(3, "moved_bytes_total") >= size
        assert cluster.metric(3, "replication_bytes_in_total") > size
        assert [cluster.metric(b, "moved_bytes_total") for b in (0, 1, 2)] == [0, 0, 0]
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 1))
