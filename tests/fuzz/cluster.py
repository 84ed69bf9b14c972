"""A local cluster under spoilt frames: do its processes live, and do they keep what they had?

One broker and the operator's controller, as real processes; the frames go to all three ports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psutil
import uvloop
from tests.fuzz.attack import Outcome, Port, attack
from tests.fuzz.frames import Frames
from tests.integration.local_cluster import LocalCluster, consume_all, produce, wait_for

FILES = """
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec:
  brokers: {count: 1}
  storage: {size: 1Gi}
  topics: {clientCreated: Deny}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: fuzz, namespace: default}
spec:
  clusterRef: {name: main}
  partitions: 2
  replicationFactor: 1
  minInSyncReplicas: 1
  config: {retention.bytes: 4194304, segment.bytes: 1048576}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: bystander, namespace: default}
spec:
  clusterRef: {name: main}
  partitions: 2
  replicationFactor: 1
  minInSyncReplicas: 1
"""
BYSTANDER = "bystander"
SEGMENTS = ("00000000", "meta", ".index", ".timeindex", ".log", "snapshot", "tail-")


@dataclass(slots=True)
class Look:
    """One look at the processes."""

    looked_at: int
    rss: dict[str, int]
    files: dict[str, int]


@dataclass(slots=True)
class Report:
    """What came of it; `trouble` is empty when all is well."""

    outcome: Outcome
    seconds: float
    looks: list[Look] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


def run(directory: Path, frames: int, seed: int) -> Report:
    """Attack until so many frames were looked at, and judge."""
    text = directory / "fuzz.yaml"
    directory.mkdir(parents=True, exist_ok=True)
    text.write_text(FILES)
    cluster = LocalCluster(directory / "cluster", brokers=None, files=[text], restart=False)
    with cluster:
        pids = cluster.pids
        values = [b"before %d" % number for number in range(100)]
        wait_for("the topics", lambda: cluster.topic("fuzz") and cluster.topic(BYSTANDER))
        produce(cluster.bootstrap, BYSTANDER, values)
        report = _attacked(cluster, frames, seed)
        report.trouble += _judged(cluster, pids, report.looks)
        if not report.trouble:
            _still_works(cluster, values)
    return report


def _attacked(cluster: LocalCluster, frames: int, seed: int) -> Report:
    looks = [_look(cluster, 0)]
    topic_id = _topic_id(cluster)

    def look(outcome: Outcome) -> None:
        looks.append(_look(cluster, outcome.looked_at))

    made = Frames(seed, topic_id)
    own = cluster.config(0)
    ports = [
        Port("clients", cluster.address(0), made.frame, share=4),
        Port("replication", (own["replication"]["host"], own["replication"]["port"]), made.frame),
        Port("controller", cluster.controller, made.control_frame),
    ]
    began = time.monotonic()
    outcome = uvloop.run(_warm_then_all(ports, frames, look))
    seconds = time.monotonic() - began
    time.sleep(1)
    look(outcome)
    return Report(outcome, seconds, looks)


async def _warm_then_all(ports: list[Port], frames: int, look: object) -> Outcome:
    """Memory is compared with what it was after a tenth: codecs are compiled by then."""
    first = await attack(ports, max(frames // 10, 1))
    await asyncio.sleep(0.5)
    look(first)  # type: ignore[operator]
    rest = await attack(ports, frames - first.looked_at, look)  # type: ignore[arg-type]
    for name in ("sent", "answered", "closed"):
        counts = getattr(rest, name)
        for port, count in getattr(first, name).items():
            counts[port] = counts.get(port, 0) + count
    return rest


def _topic_id(cluster: LocalCluster) -> UUID:
    for record in cluster.metadata_records():
        if record.get("name") == "fuzz" and "topic_id" in record:
            return UUID(record["topic_id"])
    return UUID(int=1)


def _look(cluster: LocalCluster, looked_at: int) -> Look:
    rss, files = {}, {}
    for name, pid in cluster.pids.items():
        try:
            process = psutil.Process(pid)
            rss[name] = process.memory_info().rss
            files[name] = len(list(_descriptors(process)))
        except psutil.Error:
            continue
    return Look(looked_at, rss, files)


def _descriptors(process: psutil.Process) -> Iterator[str]:
    """All but files of logs, whose number retention changes."""
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if not any(part in target for part in SEGMENTS):
            yield target


GROWTH_MAX = 24 * 2**20
FILES_MORE_MAX = 8


def _judged(cluster: LocalCluster, pids: dict[str, int], looks: list[Look]) -> Iterator[str]:
    now = cluster.pids
    for name, pid in pids.items():
        if now.get(name) != pid or not psutil.pid_exists(pid):
            yield f"{name} ended:\n{cluster.said()}"
            return
    warm, last = looks[1], looks[-1]
    for name, rss in last.rss.items():
        if rss - warm.rss[name] > GROWTH_MAX:
            yield f"{name} grew from {warm.rss[name]} to {rss} bytes"
        if last.files[name] - looks[0].files[name] > FILES_MORE_MAX:
            yield f"{name} has {last.files[name]} descriptors open, {looks[0].files[name]} before"
    if failures := _failures(cluster):
        yield f"requests met bugs: {failures}\n{cluster.said()}"


def _failures(cluster: LocalCluster) -> list[str]:
    lines = cluster.http(0, "/metrics")[1].splitlines()
    start = "plimsoll_broker_handler_failures_total"
    return [line for line in lines if line.startswith(start) and not line.endswith(" 0.0")]


def _still_works(cluster: LocalCluster, before: list[bytes]) -> None:
    after = [b"after %d" % number for number in range(100)]
    acked = produce(cluster.bootstrap, BYSTANDER, after)
    assert not acked.errors
    assert len(acked.records) == len(after)
    found = consume_all(cluster.bootstrap, BYSTANDER, 2)
    assert sorted(found) == sorted(before + after), "what was written is there, once"
