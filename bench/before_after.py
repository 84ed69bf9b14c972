"""Two checkouts of Plimsoll, in turn, on this machine: what a change costs those who write.

Three brokers of each on loopback, all of them up all the time; one topic (RF 3, min ISR 2); kcat
writes with acks=all, now to one cluster, now to the other.  Beside the time it takes it prints the
brokers' processor time for each megabyte, which says more on a machine that others use too.  After
each round a producer writes one record of 1 KB at a time, 200 a second: how long each takes.
Two clusters of one commit may differ by a tenth and more for as long as they run, so each pair of
them is measured for a few rounds only, and then another pair is made.

    git worktree add /tmp/before COMMIT
    python -m bench.before_after --before /tmp/before --pairs 4 --codec none --record-bytes 1000
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench.intervals import ratios
from bench.movement import LIVE, Probe, after
from bench.side_by_side import TOPIC, create_topic
from tests.integration.local_cluster import LocalCluster

SOURCES = ("core", "operator", "broker_image", "spark", "sim")
HERE = Path(__file__).parents[1]
PROBED_S = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One round of one checkout."""

    megabytes_per_second: float
    processor_ms_per_megabyte: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


@contextmanager
def cluster_of(checkout: Path, directory: Path) -> Iterator[LocalCluster]:
    """Start a cluster. Its brokers run the code of `checkout`."""
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(checkout / name) for name in SOURCES)
    cluster = LocalCluster(directory, brokers=3)
    try:
        cluster.start()
    finally:
        os.environ.pop("PYTHONPATH")
        if kept is not None:
            os.environ["PYTHONPATH"] = kept
    try:
        create_topic(cluster.bootstrap, TOPIC)
        create_topic(cluster.bootstrap, LIVE)
        yield cluster
    finally:
        cluster.stop()


def make_lines(path: Path, megabytes: int, record_bytes: int) -> None:
    """Numbered lines of words: text that a codec makes about a quarter of."""
    words = [b"%x" % (n * 2654435761 % 2**32) for n in range(997)]
    with path.open("wb") as file:
        for n in range(megabytes * 1_000_000 // record_bytes):
            line = b"%010d " % n
            while len(line) < record_bytes:
                line += words[(n * 31 + len(line)) % 97] + b" "
            file.write(line[: record_bytes - 1] + b"\n")


def write(cluster: LocalCluster, lines: Path, megabytes: int, codec: str) -> Figure:
    brokers = [psutil.Process(cluster.ready["pids"][str(broker)]) for broker in range(3)]

    def processor_s() -> float:
        return sum(sum(broker.cpu_times()[:2]) for broker in brokers)

    before, began = processor_s(), time.perf_counter()
    subprocess.run(
        ["kcat", "-P", "-b", cluster.bootstrap, "-t", TOPIC, "-l", str(lines), "-z", codec,
         "-X", "acks=all", "-X", "batch.size=131072", "-X", "linger.ms=5",
         "-X", "queue.buffering.max.kbytes=131072", "-X", "message.timeout.ms=120000"],
        check=True,
        capture_output=True,
        timeout=300,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    return Figure(megabytes / seconds, (processor_s() - before) * 1000 / megabytes)


def measured(arguments: argparse.Namespace, lines: Path, pair: int) -> Iterator[tuple[str, Figure]]:
    """A cluster of each checkout, in turns; now the one is first, now the other."""
    checkouts = [("before", arguments.before), ("after", HERE)]
    with TemporaryDirectory() as directory, ExitStack() as stack:
        clusters = {
            name: stack.enter_context(cluster_of(checkout, Path(directory) / name))
            for name, checkout in (checkouts if pair % 2 else checkouts[::-1])
        }
        probes = {name: Probe(cluster.bootstrap) for name, cluster in clusters.items()}
        for number in range(arguments.rounds + 1):
            for name, cluster in clusters.items():
                figure = write(cluster, lines, arguments.megabytes, arguments.codec)
                phase = probes[name].run(name, after(PROBED_S))
                if number:  # the first is the warm-up
                    yield name, replace(figure, p50_ms=phase.p50, p99_ms=phase.p99)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} - {max(values):.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="of each pair")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--codec", default="none")
    arguments = parser.parse_args()
    figures: dict[str, list[Figure]] = {"before": [], "after": []}
    with TemporaryDirectory() as temporary:  # what a pair wrote goes with the pair
        lines = Path(temporary) / "lines"
        make_lines(lines, arguments.megabytes, arguments.record_bytes)
        for pair in range(arguments.pairs):
            for name, figure in measured(arguments, lines, pair):
                figures[name].append(figure)
                print(f"pair {pair + 1} {name:6} {figure}", flush=True)
    for what in ("megabytes_per_second", "processor_ms_per_megabyte", "p50_ms", "p99_ms"):
        values = {name: [getattr(f, what) for f in found] for name, found in figures.items()}
        print(
            f"{what}: before {spread(values['before'])}, after {spread(values['after'])}, "
            + ratios(values["before"], values["after"])
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
