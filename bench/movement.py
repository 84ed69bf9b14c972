"""What a move under a throttle costs clients, and whether it keeps to the throttle for a minute.

    python -m bench.movement [--mebibytes 16] [--rounds 2] [--quiet-s 20]

A local cluster of four brokers.  A producer writes one record of 1 KB at a time, acks=all, 200 a
second, to three partitions whose replicas are on all brokers; how long each takes is measured in
turns on the same cluster: without a move, with one, and while a process that is no part of the
cluster writes as many bytes a second to the same disk, which tells what the move costs from what
the disk does.  What moves is another topic, without replicas, that holds a little more than a
minute's worth: onto broker 3, and in the next round back onto broker 0.  What came there is its own
count of moved bytes.  Quote the ratio of the latencies: machines differ and are noisy.  Ends by
itself, after four minutes by default.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import confluent_kafka
from confluent_kafka.admin import NewTopic
from tests.integration.local_cluster import WAIT_S, LocalCluster
from tests.integration.test_reassignment import ask

from plimsoll_wire.api_versions import ApiKey

MIB = 2**20
MOVED, LIVE = "moved", "live"
WITHOUT, WITH, DISK = "without", "with", "disk"
PIECE = 128 * 2**10
"""A batch of the moved topic, and what the stranger writes at once."""
PARTITIONS = 6
SOURCES = (1, 2)
"""The first leaders of the moved partitions."""
MINUTE_S = 60
MOVE_S = 64
"""The seconds of writes: a minute is measured in the middle."""
PERIOD_S = 0.005
CLUSTER = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {{name: main, namespace: kafka}}
spec:
  brokers: {{count: 4}}
  storage: {{size: 8Gi}}
  movement: {{bytesPerSecond: {mebibytes}Mi}}
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase: the producer's latencies in milliseconds, and the data moved in MiB/s."""

    name: str
    count: int
    p50: float
    p99: float
    rate: float = 0.0

    def __str__(self) -> str:
        rate = f", {self.rate:.2f} MiB/s moved" if self.rate else ""
        return f"{self.name:8} {self.count:6} acks, p50 {self.p50:.2f} ms, p99 {self.p99:.2f}{rate}"


class Probe:
    """One producer for the whole run."""

    def __init__(self, bootstrap: str, config: Mapping[str, Any] | None = None) -> None:
        """`config`: what librdkafka needs beside the addresses."""
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **(config or {})}
        )
        self._value = bytes(1024)
        self._took: list[float] = []

    def run(self, name: str, until: Callable[[], bool]) -> Phase:
        """Asked about ten times a second whether it is enough."""
        self._took = []
        due = time.perf_counter()
        while not until():
            for _ in range(20):
                self._send()
                due += PERIOD_S
                while (left := due - time.perf_counter()) > 0:
                    self._producer.poll(left)
        assert self._producer.flush(WAIT_S) == 0
        cuts = statistics.quantiles(self._took, n=100)
        return Phase(name, len(self._took), cuts[49] * 1e3, cuts[98] * 1e3)

    def _send(self) -> None:
        began = time.perf_counter()

        def acked(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
            assert error is None, error
            self._took.append(time.perf_counter() - began)

        self._producer.produce(LIVE, self._value, on_delivery=acked)


def prepare(cluster: LocalCluster, size: int) -> None:
    rows = [[SOURCES[index % len(SOURCES)]] for index in range(PARTITIONS)]
    topics = [
        NewTopic(MOVED, PARTITIONS, replica_assignment=rows, config={"min.insync.replicas": "1"}),
        NewTopic(LIVE, 3, replica_assignment=[[0, 1, 3], [1, 3, 0], [2, 0, 3]]),
    ]
    admin = cluster.admin()
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    cluster.wait_isr(LIVE, 3)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "batch.size": PIECE, "linger.ms": 5}
    )
    value = bytes(33 + (n * 7919) % 90 for n in range(16 * 2**10))
    for number in range(size // len(value)):
        while True:
            try:
                producer.produce(MOVED, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def begin_move(cluster: LocalCluster, target: int) -> None:
    wanted = [{"partition_index": index, "replicas": [target]} for index in range(PARTITIONS)]
    values = {"topics": [{"name": MOVED, "partitions": wanted}], "timeout": 30_000}
    reply = ask(cluster, target, ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
    codes = [int(one.error_code) for topic in reply.responses for one in topic.partitions]
    assert codes == [0] * PARTITIONS, codes


class Minute:
    """Watches how much came within a minute from when the copy was under way."""

    def __init__(self, cluster: LocalCluster, target: int) -> None:
        self._moved: Callable[[], float] = lambda: cluster.metric(target, "moved_bytes_total")
        self._before = self._moved()
        self._first: tuple[float, float] | None = None
        self._asked = 0.0
        self.rate = 0.0

    def over(self) -> bool:
        """Asks the broker once a second: being asked costs it something, too."""
        now = time.monotonic()
        if now - self._asked < 1:
            return False
        self._asked = now
        moved = self._moved()
        if self._first is None:
            if moved > self._before:
                self._first = now, moved
            return False
        began, first = self._first
        self.rate = (moved - first) / MIB / max(now - began, 1e-9)
        return now - began >= MINUTE_S


def write(folder: Path, rate: int, seconds: float) -> None:
    """Write to the disk like a foreign process; runs in a process of its own."""
    piece, began = bytes(PIECE), time.monotonic()
    with (folder / "stranger").open("wb", buffering=0) as file:
        while (passed := time.monotonic() - began) < seconds:
            if file.tell() < passed * rate:
                file.write(piece)
            else:
                time.sleep(PIECE / rate / 4)


def show(phases: list[Phase], mebibytes: int) -> None:
    by_name = {name: [p for p in phases if p.name == name] for name in (WITHOUT, WITH, DISK)}
    print(f"\n{'':10}{'p50, ms':>24}{'p99, ms':>24}   median (min - max)")
    for name, found in by_name.items():
        print(f"{name:10}{spread([f.p50 for f in found])}{spread([f.p99 for f in found])}")
    for what, of in (("p50", lambda f: f.p50), ("p99", lambda f: f.p99)):
        middle = {name: statistics.median(map(of, found)) for name, found in by_name.items()}
        print(
            f"{what}: with a move / without {middle[WITH] / middle[WITHOUT]:.2f}, "
            f"a stranger's bytes / without {middle[DISK] / middle[WITHOUT]:.2f}"
        )
    for phase in by_name[WITH]:
        print(f"moved at {phase.rate / mebibytes:.3f} of the throttle over {MINUTE_S} s")


def spread(values: list[float]) -> str:
    text = f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"
    return f"{text:>24}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=16, help="the throttle, in MiB a second")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quiet-s", type=float, default=20)
    arguments = parser.parse_args()
    phases: list[Phase] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(CLUSTER.format(mebibytes=arguments.mebibytes))
        with LocalCluster(Path(folder) / "c", brokers=None, files=(file,)) as cluster:
            prepare(cluster, arguments.mebibytes * MIB * MOVE_S)
            probe = Probe(cluster.bootstrap)
            probe.run("warm up", after(2))

            def keep(phase: Phase) -> None:
                phases.append(phase)
                print(phase, flush=True)

            for number in range(arguments.rounds):
                keep(probe.run(WITHOUT, after(arguments.quiet_s)))
                rate = arguments.mebibytes * MIB
                stranger = multiprocessing.Process(
                    target=write, args=(Path(folder), rate, arguments.quiet_s)
                )
                stranger.start()
                keep(probe.run(DISK, after(arguments.quiet_s)))
                stranger.join(WAIT_S)
                target = (3, 0)[number % 2]
                minute = Minute(cluster, target)
                begin_move(cluster, target)
                seen = probe.run(WITH, minute.over)
                keep(Phase(seen.name, seen.count, seen.p50, seen.p99, minute.rate))
                wait_moved(cluster, target)
            keep(probe.run(WITHOUT, after(arguments.quiet_s)))
    show(phases, arguments.mebibytes)
    return 0


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def wait_moved(cluster: LocalCluster, target: int) -> None:
    """Wait for the rest of the move; a busy machine is slower than the throttle."""
    deadline = time.monotonic() + MOVE_S
    while cluster.metric(target, "moving_partitions"):
        assert time.monotonic() < deadline, "the move does not end"
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
