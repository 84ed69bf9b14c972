"""Plimsoll and Apache Kafka, in turn, on this machine: the same load, the same producer, one run.

Three brokers on loopback, one topic (RF 3, min ISR 2), 1 KB records, 128 KB batches, acks=all,
written by kcat (librdkafka).  Quote the ratio, not the absolute figures: machines differ and are
noisy.  Prints each round, then medians with spread, and the resident memory of a broker.

    python -m bench.side_by_side --rounds 3 --megabytes 400
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import confluent_kafka.admin
import psutil
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.local_cluster import LocalCluster

RECORD_BYTES = 1024
PARTITIONS = 12
TOPIC = "bench"


@dataclass(frozen=True, slots=True)
class Load:
    """The data that is written in one round."""

    megabytes: int
    lines: Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One system in one round."""

    system: str
    megabytes_per_second: float
    resident_megabytes_max: float


@contextmanager
def plimsoll(directory: Path) -> Iterator[tuple[str, list[int]]]:
    with LocalCluster(directory / "data", brokers=3) as cluster:
        yield cluster.bootstrap, [cluster.ready["pids"][str(b)] for b in range(3)]


@contextmanager
def kafka(directory: Path) -> Iterator[tuple[str, list[int]]]:
    with ApacheKafka(directory / "kafka", brokers=3) as cluster:
        yield cluster.bootstrap, [process.pid for process in cluster.processes.values()]


SYSTEMS = {"plimsoll": plimsoll, "kafka": kafka}


def create_topic(bootstrap: str, name: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    wanted = confluent_kafka.admin.NewTopic(
        name, PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"}
    )
    for future in admin.create_topics([wanted]).values():
        future.result(30)


def write(bootstrap: str, lines: Path) -> float:
    """Seconds until every line of the file is acknowledged by all in-sync replicas."""
    began = time.perf_counter()
    subprocess.run(
        ["kcat", "-P", "-b", bootstrap, "-t", TOPIC, "-l", str(lines),
         "-X", "acks=all", "-X", "batch.size=131072", "-X", "linger.ms=5",
         "-X", "queue.buffering.max.kbytes=131072", "-X", "message.timeout.ms=120000"],
        check=True,
        capture_output=True,
        timeout=300,
    )  # fmt: skip
    return time.perf_counter() - began


def measure(system: str, load: Load, warm_up: Load) -> Figure:
    with TemporaryDirectory() as directory, SYSTEMS[system](Path(directory)) as (bootstrap, pids):
        create_topic(bootstrap, TOPIC)
        write(bootstrap, warm_up.lines)
        seconds = write(bootstrap, load.lines)
        resident = max(psutil.Process(pid).memory_info().rss for pid in pids) / 1e6
    return Figure(system, load.megabytes / seconds, resident)


def make_load(directory: Path, megabytes: int) -> Load:
    """Lines of 1 KB that do not compress to nothing, though nothing here compresses."""
    path = directory / f"{megabytes}.lines"
    body = bytes(33 + (n * 7919) % 90 for n in range(RECORD_BYTES - 12))
    with path.open("wb") as file:
        for n in range(megabytes * 1_000_000 // RECORD_BYTES):
            file.write(b"%011d" % n + body + b"\n")
    return Load(megabytes, path)


def show(figures: list[Figure]) -> float:
    """The medians with their spread; returns the median of the ratios, round by round."""
    by_system = {name: [f for f in figures if f.system == name] for name in SYSTEMS}
    print(f"\n{'':10}{'MB/s median':>14}{'min':>8}{'max':>8}{'resident MB':>14}")
    for name, found in by_system.items():
        speeds = [f.megabytes_per_second for f in found]
        resident = max(f.resident_megabytes_max for f in found)
        median = statistics.median(speeds)
        print(f"{name:10}{median:14.0f}{min(speeds):8.0f}{max(speeds):8.0f}{resident:14.0f}")
    ratios = [
        ours.megabytes_per_second / theirs.megabytes_per_second
        for ours, theirs in zip(by_system["plimsoll"], by_system["kafka"], strict=True)
    ]
    ratio = statistics.median(ratios)
    print(f"ratio {ratio:.1f} (rounds: {', '.join(f'{r:.1f}' for r in ratios)})")
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    with TemporaryDirectory() as directory:
        load = make_load(Path(directory), arguments.megabytes)
        warm_up = make_load(Path(directory), max(1, arguments.megabytes // 4))
        for number in range(arguments.rounds):
            for system in SYSTEMS:
                figure = measure(system, load, warm_up)
                figures.append(figure)
                print(f"round {number + 1}: {figure}", flush=True)
    ratio = show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps({"ratio": ratio, "figures": [*map(asdict, figures)]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
