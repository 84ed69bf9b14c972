"""The network between brokers and controller fails for less than a session: nothing changes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import confluent_kafka
import pytest
from tests.integration.link import Link
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    wait_for,
)
from tests.integration.test_faults import PARTITIONS, RESUME_S_MAX, more_acks, writing

CUT_S = 3.0
BROKERS = 3


@pytest.fixture
def linked(cluster: LocalCluster) -> Iterator[Link]:
    """All brokers of `cluster` reach their controller through this link only."""
    with Link(cluster.controller) as link:
        before = cluster.pids
        for broker_id in range(BROKERS):
            through(cluster.directory / f"broker-{broker_id}.json", link.port)
            os.kill(before[str(broker_id)], signal.SIGTERM)
        for broker_id in range(BROKERS):
            cluster.wait_restarted(broker_id, before[str(broker_id)])
            wait_for(
                f"broker {broker_id} is ready", lambda b=broker_id: is_ready(cluster, b), poll_s=0.1
            )
        assert link.passed >= BROKERS
        yield link


def through(config: Path, port: int) -> None:
    content = json.loads(config.read_text())
    content["controllers"] = [f"127.0.0.1:{port}"]
    config.write_text(json.dumps(content))


def is_ready(cluster: LocalCluster, broker_id: int) -> bool:
    try:
        return cluster.http(broker_id, "/readyz")[0] == 200
    except OSError:
        return False


def made(cluster: LocalCluster, topic: str) -> bool:
    """A request on a connection that its broker gives up for a newer one has an unknown outcome:
    its client is told to look whether it happened."""
    if not cluster.topic(topic):
        try:
            cluster.create_topic(topic, 1)
        except confluent_kafka.KafkaException:
            return False
    return True


def failing(link: Link, how: str) -> AbstractContextManager[None]:
    return link.hold() if how == "silent" else link.cut(reset=how == "reset")


@pytest.mark.parametrize("how", [pytest.param("closed", marks=pytest.mark.long), "reset", "silent"])
def test_briefly_cut_controller_fences_nobody(
    cluster: LocalCluster, linked: Link, how: str
) -> None:
    cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr("t", BROKERS)
    with writing(cluster, "t") as writer:
        before, connected = cluster.metadata_records(), linked.passed
        with failing(linked, how):
            until = time.monotonic() + CUT_S
            while time.monotonic() < until:
                more_acks(writer, 100)
            assert how == "silent" or linked.now_open == 0
        wait_for("all brokers are connected", lambda: linked.now_open >= BROKERS)
        # The controller hears of all brokers again: a new topic's replicas join.
        wait_for("a new topic", lambda: made(cluster, "after"), poll_s=0.2)
        cluster.wait_isr("after", BROKERS)
        more_acks(writer)
        acked = writer.finish()
    assert how == "silent" or linked.passed >= connected + BROKERS
    new = cluster.metadata_records()[len(before) :]
    decided = [r["type"] for r in new if r["type"] != "ProducerIdsAllocated"]
    assert decided == ["TopicCreated", "PartitionsCreated"], "no fence, no ISR change, no new term"
    assert not acked.errors
    assert max(writer.longest_stall_s.values()) < RESUME_S_MAX
    assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
