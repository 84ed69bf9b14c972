"""A broker comes back with records that the metadata log no longer has; a person gives them up."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
)
from tests.integration.test_kubectl_plimsoll import Plugin
from tests.integration.test_volumes import refusal_of

PARTITIONS = 3
KEEPER = 2
CHOICE = re.compile(
    r"To keep the log up to offset \d+, and give up ([^:]*):"
    r" start again with --restore-metadata (\S+)\."
)


def values(word: str, count: int) -> list[bytes]:
    return [f"{word}-{number}".encode() for number in range(count)]


def test_returned_history_is_given_up_on_confirmation(tmp_path: Path) -> None:
    """All is put back to an earlier state but one disk. It returns when the others have gone on:
    its history has records at the same offsets and in the same leader epochs as the kept one."""
    directory = tmp_path / "c"
    parts = ["metadata", *(f"broker-{broker_id}" for broker_id in range(3))]
    cluster = LocalCluster(directory, restart=False)
    with cluster:
        cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "2"})
        acked = produce(cluster.bootstrap, "t", values("first", 500))
    for name in parts:
        shutil.copytree(directory / name, tmp_path / "earlier" / name)
    with cluster:
        cluster.wait_isr("t", 3)
        cluster.create_topic("lost", 1)
        assert not produce(cluster.bootstrap, "t", values("lost", 500)).errors
    (directory / f"broker-{KEEPER}").rename(tmp_path / "away")
    for name in parts:
        shutil.rmtree(directory / name, ignore_errors=True)
        (tmp_path / "earlier" / name).rename(directory / name)
    with cluster:
        cluster.wait_isr("t", 3)
        later = produce(cluster.bootstrap, "t", values("later", 700))
        acked.records |= later.records
    shutil.rmtree(directory / f"broker-{KEEPER}")
    (tmp_path / "away").rename(directory / f"broker-{KEEPER}")

    found = CHOICE.search(refusal_of(cluster))
    assert found is not None, cluster.said()
    assert "topics with their records lost" in found.group(1)
    cluster.arguments = ["--restore-metadata", found.group(2)]
    with cluster:
        cluster.wait_isr("t", 3)
        assert "lost" not in cluster.admin().list_topics(timeout=10).topics
        plugin = Plugin(cluster)
        assert plugin.condition("MetadataRestored")["reason"] == "Confirmed"
        assert plugin.condition("Stalled")["status"] == "False"
        assert "so there is nothing to confirm." in plugin.text("restore-metadata")
        for broker_id in range(3):
            if broker_id != KEEPER:
                cluster.kill_broker(broker_id)
        cluster.wait_isr("t", 1)
        read = consume_all(cluster.bootstrap.split(",")[KEEPER], "t", PARTITIONS)
        assert_nothing_lost(acked, read)
        assert not [value for value in read if value.startswith(b"lost")]
