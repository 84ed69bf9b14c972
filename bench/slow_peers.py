"""What peers that are slow, idle or send half a request cost: memory, and other clients' latency.

    python -m bench.slow_peers [--rounds 3] [--seconds 15] [--limit-mebibytes 512] [--write]

A local cluster of three brokers, each within a memory limit (a cgroup where one may be made, else
its resident memory is watched).  A producer writes one record of 1 KB at a time, acks=all, 200 a
second, to three partitions whose replicas are on all brokers; how long each takes is measured in
turns on the same cluster: alone, and beside 200 consumers that never read with 64 pipelined long
polls each, 5,000 idle connections and 50 halves of large requests, all at one broker, which come
back whenever they are closed.  It ends with an error when a broker ended, passed its limit, or left
an ISR.  Quote the ratio of the latencies: machines differ and are noisy.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench.marked import write
from bench.movement import LIVE, Phase, Probe, after
from confluent_kafka.admin import NewTopic
from tests.integration.local_cluster import WAIT_S, LocalCluster, produce
from tests.integration.strangers import Crowd, Strangers

MIB = 2**20
ALONE, BESIDE = "alone", "beside"
BACKLOG, RECORDS = "backlog", 48
TARGET = 0
SETTLE_S = 8.0
COME_S = 45.0
"""The longest wait until the broker has `OPEN_MIN` connections."""
OPEN_MIN = 3_500
MARK = "slow peers"
"""The mark of its figures in docs/benchmarks.md."""
CLUSTER = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {{name: main, namespace: kafka}}
spec:
  brokers: {{count: 3}}
  storage: {{size: 8Gi}}
  config: {{memory.limit.bytes: {limit}}}
"""
VERSION_1 = Path("/sys/fs/cgroup/memory")


@contextlib.contextmanager
def limited(pids: dict[str, int], limit: int) -> Iterator[str]:
    """Each broker in a cgroup of its own; how it is limited, in words."""
    made: list[Path] = []
    try:
        for name, pid in pids.items():
            if name == "controller":
                continue
            group = _own_group() / f"plimsoll-{os.getpid()}-{name}"
            group.mkdir()
            made.append(group)
            version_1 = (group / "memory.limit_in_bytes").exists()
            (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(
                str(limit)
            )
            (group / "cgroup.procs").write_text(str(pid))
        how = "a cgroup each"
    except OSError:
        how = "resident memory watched"
    yield how
    for group in made:
        with contextlib.suppress(OSError):
            group.rmdir()


def _own_group() -> Path:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, group in lines:
        if "memory" in controllers.split(","):
            return VERSION_1 / group.lstrip("/")
    return Path("/sys/fs/cgroup") / lines[0][2].lstrip("/")


class Watch:
    """The most resident memory of each broker, looked at ten times a second."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.most = dict.fromkeys((name for name in pids if name != "controller"), 0)
        self._processes = {name: psutil.Process(pids[name]) for name in self.most}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for name, process in self._processes.items():
                with contextlib.suppress(psutil.Error):
                    self.most[name] = max(self.most[name], process.memory_info().rss)


def prepare(cluster: LocalCluster) -> None:
    topics = [
        NewTopic(BACKLOG, 1, replica_assignment=[[TARGET, 1, 2]]),
        NewTopic(LIVE, 3, replica_assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]]),
    ]
    admin = cluster.admin()
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    cluster.wait_isr(LIVE, 3)
    cluster.wait_isr(BACKLOG, 3)
    acked = produce(cluster.bootstrap, BACKLOG, (bytes(500_000) for _ in range(RECORDS)))
    assert not acked.errors


def measured(cluster: LocalCluster, rounds: int, seconds: float) -> list[Phase]:
    probe, phases = Probe(cluster.bootstrap), []
    probe.run("warm up", after(3))

    def keep(phase: Phase) -> None:
        phases.append(phase)
        print(phase, flush=True)

    for _ in range(rounds):
        keep(probe.run(ALONE, after(seconds)))
        topic = (BACKLOG, 1, RECORDS)
        with Strangers(Crowd(), topic, cluster.address(TARGET)) as strangers:
            probe.run("coming", come(cluster))
            probe.run("settling", after(SETTLE_S))
            keep(probe.run(BESIDE, after(seconds)))
            assert strangers.alive, "those who disturb were there"
            print(f"  {counts(cluster)}", flush=True)
        probe.run("leaving", after(SETTLE_S))
    keep(probe.run(ALONE, after(seconds)))
    return phases


def come(cluster: LocalCluster) -> Callable[[], bool]:
    """Return a function that is True once the broker is full, or the time for that is over."""
    late, asked = after(COME_S), [0.0]

    def there() -> bool:
        now = time.monotonic()
        if now - asked[0] < 1:
            return False
        asked[0] = now
        found = cluster.metric(TARGET, 'listener_connections{listener="clients"}')
        return found >= OPEN_MIN or late()

    return there


def counts(cluster: LocalCluster) -> str:
    """Return the broker's own figures of its connections."""
    open_now = cluster.metric(TARGET, 'listener_connections{listener="clients"}')
    start = 'plimsoll_broker_connections_closed_total{listener="clients",reason="'
    closed = {
        line.removeprefix(start).partition('"')[0]: int(float(line.rpartition(" ")[2]))
        for line in cluster.http(TARGET, "/metrics")[1].splitlines()
        if line.startswith(start)
    }
    named = ", ".join(f"{reason} {count}" for reason, count in closed.items() if count)
    return f"{open_now:.0f} connections open; closed so far: {named}"


def table(phases: list[Phase], most: dict[str, int], how: str, limit: int) -> list[str]:
    lines = ["| | p50, ms: median (min – max) | p99, ms |", "|---|---|---|"]
    middle: dict[str, tuple[float, float]] = {}
    for name, text in ((ALONE, "alone"), (BESIDE, "beside the strangers")):
        found = [phase for phase in phases if phase.name == name]
        p50, p99 = [one.p50 for one in found], [one.p99 for one in found]
        middle[name] = (statistics.median(p50), statistics.median(p99))
        lines.append(f"| {text} | {_spread(p50)} | {_spread(p99)} |")
    ratios = [middle[BESIDE][at] / middle[ALONE][at] for at in (0, 1)]
    memory = ", ".join(f"broker {name} {rss / MIB:.0f}" for name, rss in sorted(most.items()))
    return [
        *lines,
        "",
        f"Ratio of the medians: **{ratios[0]:.2f}** (p50), **{ratios[1]:.2f}** (p99). "
        f"Most resident memory, MiB, of a limit of {limit // MIB} ({how}): {memory}. "
        "No process ended, every ISR is full.",
    ]


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} – {max(values):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--limit-mebibytes", type=int, default=512)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    arguments = parser.parse_args()
    limit = arguments.limit_mebibytes * MIB
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(CLUSTER.format(limit=limit))
        files = (file,)
        with LocalCluster(Path(folder) / "c", brokers=None, files=files, restart=False) as cluster:
            pids = cluster.pids
            with limited(pids, limit) as how:
                prepare(cluster)
                with Watch(pids) as watch:
                    phases = measured(cluster, arguments.rounds, arguments.seconds)
                assert cluster.pids == pids, cluster.said()
                assert max(watch.most.values()) < limit, watch.most
                cluster.wait_isr(LIVE, 3)
                cluster.wait_isr(BACKLOG, 3)
                load = os.getloadavg()[0]
                lines = table(phases, watch.most, how, limit)
    print("\n".join(lines))
    if arguments.write:
        said = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, 2 cores, load {load:.0f}"
        write(
            MARK,
            [f"`{' '.join(['python -m bench.slow_peers', *sys.argv[1:]])}`, {said}:", "", *lines],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
