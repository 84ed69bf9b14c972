"""Kafka's own tools on committed offsets: what they set, list and delete, and what they decode."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.conformance.conftest import Peer
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.local_cluster import LocalCluster, wait_for

TOOL_S = 120


def tool(jars: KafkaJars, main_class: str, *arguments: str) -> str:
    """What it printed; a failure is the test's."""
    done = subprocess.run(
        jars.command(main_class, *arguments), capture_output=True, text=True, timeout=TOOL_S
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def groups(jars: KafkaJars, cluster: LocalCluster | Peer, *arguments: str) -> str:
    own = ("--bootstrap-server", cluster.bootstrap)
    return tool(jars, jars.consumer_groups, *own, *arguments)


@pytest.mark.client("Java {jars}", "offsets")
def test_consumer_groups_tool_resets_describes_lists_and_deletes(
    peer: Peer, peer_topic: str, jars: KafkaJars
) -> None:
    topic, group = peer_topic, f"group-of-{peer_topic}"
    named = ("--group", group)
    groups(jars, peer, *named, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    described = groups(jars, peer, *named, "--describe")
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sorted((row[1], row[2], row[3]) for row in rows) == [
        (topic, str(index), "0") for index in range(3)
    ]
    assert group in groups(jars, peer, "--list")
    state = groups(jars, peer, *named, "--describe", "--state")
    assert "Empty" in state
    groups(jars, peer, *named, "--delete-offsets", "--topic", f"{topic}:1")
    described = groups(jars, peer, *named, "--describe")
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sorted(row[2] for row in rows) == ["0", "2"]
    groups(jars, peer, *named, "--delete")
    assert group not in groups(jars, peer, "--list")


def test_kafka_decoder_prints_commits_and_tombstones(
    cluster: LocalCluster, topic: str, jars: KafkaJars
) -> None:
    group = f"decoded-{topic}"
    named = ("--group", group)
    groups(
        jars, cluster, *named, "--topic", topic, "--reset-offsets", "--to-offset", "0", "--execute"
    )
    groups(jars, cluster, *named, "--delete-offsets", "--topic", f"{topic}:2")

    def segments() -> list[Path]:
        files = cluster.directory.glob("broker-*/__consumer_offsets-*/*.log")
        return [path for path in files if group.encode() in path.read_bytes()]

    found = wait_for("the commit in a segment", segments)
    printed = tool(jars, jars.dump_log_segments, "--offsets-decoder", "--files", str(found[0]))
    lines = [line for line in printed.splitlines() if group in line]
    assert len(lines) == 4, printed  # three commits and a tombstone
    assert all(topic in line for line in lines)
    assert sum(line.rstrip().endswith(("<DELETE>", "null")) for line in lines) == 1, printed
