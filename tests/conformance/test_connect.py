"""Kafka Connect, distributed: two workers keep offsets, configs and statuses in Plimsoll's topics,
and lose nothing when one of them is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.applications import Connect, connect
from tests.conformance.conftest import Peer

FILE = "org.apache.kafka.connect.file.FileStream"
EACH = 200


def write(file: Path, first: int, last: int) -> None:
    with file.open("a") as lines:
        lines.writelines(f"line {number}\n" for number in range(first, last))


def read(file: Path) -> set[str]:
    return set(file.read_text().splitlines()) if file.exists() else set()


def lines(last: int) -> set[str]:
    return {f"line {number}" for number in range(last)}


def a_worker_of(running: Connect, connector: str) -> str:
    return str(running.wait_for(f"{connector} runs", lambda: running.runs(connector)))


@pytest.mark.long
@pytest.mark.client("Kafka Connect 4.1", "member killed")
@pytest.mark.parametrize("killed", ["sink", pytest.param("source", marks=pytest.mark.full)])
def test_connect_copies_every_line_despite_killed_worker(
    peer: Peer, tmp_path: Path, killed: str
) -> None:
    source, sink, topic = tmp_path / "source", tmp_path / "sink", f"lines-{killed}"
    replicas = str(peer.replicas)
    configs = {"group.id": f"workers-{killed}"}
    for kind in ("config", "offset", "status"):
        configs[f"{kind}.storage.topic"] = f"connect-{killed}-{kind}s"
        configs[f"{kind}.storage.replication.factor"] = replicas
    write(source, 0, EACH)
    with connect(tmp_path / "workers", peer.bootstrap, **configs) as running:
        running.create(
            "source",
            {
                "connector.class": f"{FILE}SourceConnector",
                "tasks.max": "1",
                "topic": topic,
                "file": str(source),
                "topic.creation.default.replication.factor": replicas,
                "topic.creation.default.partitions": "3",
            },
        )
        running.create(
            "sink",
            {
                "connector.class": f"{FILE}SinkConnector",
                "tasks.max": "1",
                "topics": topic,
                "file": str(sink),
                "consumer.override.auto.offset.reset": "earliest",
            },
        )
        running.wait_for("all lines", lambda: read(sink) == lines(EACH))
        wanted = a_worker_of(running, killed)
        (doomed,) = [one for one in running.workers if one.id == wanted]
        write(source, EACH, EACH + EACH // 2)
        running.kill_worker(doomed)
        write(source, EACH + EACH // 2, 2 * EACH)
        running.wait_for("all lines", lambda: read(sink) == lines(2 * EACH))
