"""Volumes and logs that are not what they were: refused in a sentence, or taken back safely."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.integration.local_cluster import (
    DidNotStart,
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    runs,
    wait_for,
)
from tests.integration.test_kubectl_plimsoll import Plugin

PARTITIONS = 3


def values(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


def refusal_of(cluster: LocalCluster) -> str:
    with pytest.raises(DidNotStart):
        cluster.start()
    said = cluster.said()
    assert "Traceback" not in said
    return said


def test_another_brokers_volume_is_refused(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    with cluster:
        cluster.create_topic("t", PARTITIONS)
    first, second = tmp_path / "c" / "broker-0", tmp_path / "c" / "broker-1"
    aside = tmp_path / "c" / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    assert "belongs to broker" in refusal_of(cluster)


def test_another_clusters_volume_is_refused(tmp_path: Path) -> None:
    cluster, other = LocalCluster(tmp_path / "c"), LocalCluster(tmp_path / "o")
    with cluster, other:
        pass
    shutil.rmtree(tmp_path / "c" / "broker-2")
    (tmp_path / "o" / "broker-2").rename(tmp_path / "c" / "broker-2")
    assert "belongs to cluster" in refusal_of(cluster)


def test_empty_volume_is_refilled_from_others(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    with cluster:
        cluster.create_topic("t", PARTITIONS)
        acked = produce(cluster.bootstrap, "t", values(2_000))
    shutil.rmtree(tmp_path / "c" / "broker-1")
    with cluster:
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))


def test_lost_metadata_log_is_restored_from_brokers(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    with cluster:
        cluster.create_topic("t", PARTITIONS)
        acked = produce(cluster.bootstrap, "t", values(2_000))
    shutil.rmtree(tmp_path / "c" / "metadata")
    with cluster:
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
    assert "MetadataRestored" in cluster.said()


def test_metadata_log_put_back_is_restored_from_brokers(tmp_path: Path) -> None:
    """As after etcd was restored to yesterday: the brokers' copies are newer."""
    cluster = LocalCluster(tmp_path / "c")
    metadata, earlier = tmp_path / "c" / "metadata", tmp_path / "earlier"
    with cluster:
        cluster.create_topic("t", PARTITIONS)
    shutil.copytree(metadata, earlier)
    with cluster:
        cluster.create_topic("newer", PARTITIONS)
        acked = produce(cluster.bootstrap, "newer", values(2_000))
    shutil.rmtree(metadata)
    earlier.rename(metadata)
    with cluster:
        cluster.wait_isr("newer", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "newer", PARTITIONS))
        assert Plugin(cluster).condition("MetadataRestored")["reason"] == "Certain"


def test_stop_without_controller_is_clean(tmp_path: Path) -> None:
    """R26: five seconds of silence end the wait for a controlled shutdown."""
    with LocalCluster(tmp_path / "c", restart=False) as cluster:
        cluster.create_topic("t", PARTITIONS)
        acked = produce(cluster.bootstrap, "t", values(500))
        pid = cluster.pids["0"]
        with cluster.frozen_controller():
            os.kill(pid, signal.SIGTERM)
            wait_for("the broker has ended", lambda: not runs(pid), timeout_s=20)
            assert (tmp_path / "c" / "broker-0" / ".kafka_cleanshutdown").exists()
        cluster.wait_isr("t", 2)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))


def test_damaged_segments_are_replaced_from_replicas(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    with cluster:
        cluster.create_topic("t", PARTITIONS)
        acked = produce(cluster.bootstrap, "t", values(3_000), **{"batch.num.messages": 50})
        cluster.wait_isr("t", 3)
        cluster.kill_everything()
    logs = sorted((tmp_path / "c" / "broker-1").glob("t-*/*.log"))
    assert len(logs) == PARTITIONS
    for path in logs:
        data = bytearray(path.read_bytes())
        if len(data) > 200:
            data[len(data) // 2] ^= 0x40
            path.write_bytes(data[:-30])
    with cluster:
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
