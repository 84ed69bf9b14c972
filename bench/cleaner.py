"""Plimsoll's cleaner and Apache Kafka's, in turn, on this machine: the same log, one run.

Three brokers of each on loopback.  One partition without other replicas is given batches of 16 KiB
with records of 100 bytes (a key of 10, a value of 90), of whose keys one in ten is a new one: they
are encoded once, and both systems get the same bytes.  Then the topic's `cleanup.policy` becomes
`compact`.  How much of its log a broker cleans in a second of processor time: that of its process
and those it started, JIT and garbage collector included, less what the same seconds took before.
All the while a producer writes single records of 1 KB to a topic with three replicas, acks=all, 200
a second; how long each takes with the cleaner at work, and without.  Quote the ratios.

    python -m bench.cleaner --mebibytes 256 --rounds 3
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench.movement import LIVE, Phase, Probe, after
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request
from plimsoll_wire.record_sets import KeyValue, write_batch

MIB = 2**20
KEYED = "keyed"
BROKER = 1
"""The broker with the log: not Kafka's node 0, which is its controller, too."""
KEY_BYTES, RECORD_BYTES = 10, 100
RECORDS_IN_BATCH = 145
"""About as many as in Kafka's default batch.size."""
LIVE_PART = 10
SEGMENT_BYTES = 64 * MIB
MEBIBYTES_MIN = 2 * SEGMENT_BYTES // MIB
BACKOFF_MS = 1_000
IN_FLIGHT = 32
CLEAN_S = 280.0
CHECKPOINT = "cleaner-offset-checkpoint"
PRODUCE_VERSION = 9
CLUSTER = log_cluster(storage={"size": "8Gi"}, config={"log.cleaner.backoff.ms": BACKOFF_MS})


@dataclass(frozen=True, slots=True)
class System:
    """A running system: its address, the process to measure, and the folder of its logs."""

    bootstrap: str
    port: int
    pid: int
    data: Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One system in one round.  `cleaner_thread_s`: what its one thread took of it (Kafka)."""

    system: str
    mebibytes: float
    left_mebibytes: float
    seconds: float
    processor_s: float
    cleaner_thread_s: float | None
    without: Phase
    beside: Phase

    @property
    def rate(self) -> float:
        """MiB a second of one core."""
        return self.mebibytes / self.processor_s

    @property
    def p99_ratio(self) -> float:
        return self.beside.p99 / self.without.p99

    def __str__(self) -> str:
        thread = f" ({self.cleaner_thread_s:.1f} in its thread)" if self.cleaner_thread_s else ""
        return (
            f"{self.system:8} {self.mebibytes:.0f} MiB to {self.left_mebibytes:.0f} in "
            f"{self.seconds:.1f} s, {self.processor_s:.1f} s of a core{thread}: "
            f"{self.rate:.1f} MiB per core second; p99 {self.without.p99:.2f} ms without, "
            f"{self.beside.p99:.2f} beside: {self.p99_ratio:.2f}"
        )


@contextmanager
def plimsoll(directory: Path) -> Iterator[System]:
    directory.mkdir()
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as cluster:
        pid, data = cluster.pids[str(BROKER)], cluster.directory / f"broker-{BROKER}"
        yield System(cluster.bootstrap, cluster.address(BROKER)[1], pid, data)


@contextmanager
def kafka(directory: Path) -> Iterator[System]:
    configs = {"log.cleaner.backoff.ms": str(BACKOFF_MS)}
    with ApacheKafka(directory, brokers=3, configs=configs) as cluster:
        pid, data = cluster.processes[BROKER].pid, cluster.data_dir(BROKER)
        yield System(cluster.bootstrap, cluster.ports[BROKER], pid, data)


SYSTEMS = {"plimsoll": plimsoll, "kafka": kafka}


# --- the load -------------------------------------------------------------------------------------


def make_load(path: Path, mebibytes: int) -> None:
    """Batches behind their lengths; the same ones in every run."""
    chosen = random.Random(14)
    body = bytes(33 + (n * 7919) % 90 for n in range(RECORD_BYTES - KEY_BYTES))
    keys = mebibytes * MIB // RECORD_BYTES // LIVE_PART
    now_ms, size = int(time.time() * 1000), 0
    with path.open("wb") as file:
        while size < mebibytes * MIB:
            picked = (chosen.randrange(keys) for _ in range(RECORDS_IN_BATCH))
            batch = write_batch([KeyValue(b"%010d" % key, body) for key in picked], now_ms)
            file.write(struct.pack(">i", len(batch)) + batch)
            size += len(batch)


def load_batches(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(4):
            yield file.read(struct.unpack(">i", head)[0])


class Writer:
    """Produces whole batches to one partition, acks=1, a few requests under way at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._replies = self._socket.makefile("rb")
        self._under_way = 0

    def write(self, batches: Iterator[bytes]) -> None:
        for number, batch in enumerate(batches):
            topic = {"name": KEYED, "partition_data": [{"index": 0, "records": batch}]}
            values = {"transactional_id": None, "acks": 1, "timeout": 30_000}
            body = encode_request(
                ApiKey.PRODUCE, PRODUCE_VERSION, {**values, "topic_data": [topic]}
            )
            self._socket.sendall(
                request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, number, "bench", body)
            )
            self._under_way += 1
            if self._under_way == IN_FLIGHT:
                self._take()
        while self._under_way:
            self._take()
        self._socket.close()

    def _take(self) -> None:
        size = int.from_bytes(self._replies.read(4), "big")
        reply = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, self._replies.read(size)[5:])
        code = int(reply.responses[0].partition_responses[0].error_code)
        assert code == 0, f"the batch was refused: {code}"
        self._under_way -= 1


# --- processor time -------------------------------------------------------------------------------


def processor_s(pid: int) -> float:
    """Return the processor time of a process, its ended children and its running ones."""
    found = 0.0
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system
            found += times.children_user + times.children_system
    return found


def cleaner_thread_s(pid: int) -> float | None:
    """Return the processor time of Kafka's one cleaner thread; None if there is none."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("kafka-log-clean"):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


# --- one round ------------------------------------------------------------------------------------


def prepare(system: System, load: Path) -> None:
    kept = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
    kept |= {"min.insync.replicas": "1", "min.cleanable.dirty.ratio": "0.01"}
    topics = [
        NewTopic(KEYED, 1, replica_assignment=[[BROKER]], config=kept),
        NewTopic(LIVE, 3, replica_assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]]),
    ]
    client = admin(system)
    for created in client.create_topics(topics).values():
        created.result(WAIT_S)
    wait_for("a leader", lambda: _leads(system), poll_s=0.1)
    Writer(system.port).write(load_batches(load))


def admin(system: System) -> AdminClient:
    return AdminClient({"bootstrap.servers": system.bootstrap})


def _leads(system: System) -> bool:
    metadata = admin(system).list_topics(timeout=10)
    found = [metadata.topics[name].partitions for name in (KEYED, LIVE) if name in metadata.topics]
    return len(found) == 2 and all(
        one.leader >= 0 and len(one.isrs) == len(one.replicas)
        for partitions in found
        for one in partitions.values()
    )


def sealed(system: System) -> dict[int, int]:
    """Sizes of the segments, by base offset, without the active one."""
    found = {int(path.stem): path.stat().st_size for path in _log_directory(system).glob("*.log")}
    found.pop(max(found))
    return found


def _log_directory(system: System) -> Path:
    """Kafka names it by topic and partition, Plimsoll by the topic's id, too."""
    return next(path.parent for path in system.data.rglob("*.log") if KEYED in str(path.parent))


def compact(system: System) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, KEYED, incremental_configs=[entry])
    client = admin(system)
    for altered in client.incremental_alter_configs([topic]).values():
        altered.result(WAIT_S)


def cleaned(system: System, end: int) -> Callable[[], bool]:
    """Return a function that is True once the broker reports that it has cleaned up to `end`."""
    deadline = time.monotonic() + CLEAN_S

    def done() -> bool:
        assert time.monotonic() < deadline, f"{KEYED} is not cleaned to {end}"
        with suppress(FileNotFoundError):
            for line in next(system.data.rglob(CHECKPOINT), Path("none")).read_text().splitlines():
                words = line.split()
                if words[0] == KEYED and int(words[-1]) >= end:
                    return True
        return False

    return done


def measure(name: str, directory: Path, load: Path, quiet_s: float) -> Figure:
    with SYSTEMS[name](directory) as system:
        prepare(system, load)
        probe = Probe(system.bootstrap)
        probe.run("warm up", after(quiet_s))
        segments = sealed(system)
        end = max(int(path.stem) for path in _log_directory(system).glob("*.log"))
        before, began = processor_s(system.pid), time.monotonic()
        without = probe.run("without", after(quiet_s))
        a_second = (processor_s(system.pid) - before) / (time.monotonic() - began)
        thread, before, began = (
            cleaner_thread_s(system.pid),
            processor_s(system.pid),
            time.monotonic(),
        )
        compact(system)
        beside = probe.run("beside", cleaned(system, end))
        seconds = time.monotonic() - began
        spent = processor_s(system.pid) - before - a_second * seconds
        in_thread = None if thread is None else (cleaner_thread_s(system.pid) or 0.0) - thread
        left = sum(sealed(system).values())
    size = sum(segments.values())
    return Figure(name, size / MIB, left / MIB, seconds, spent, in_thread, without, beside)


def show(figures: list[Figure]) -> None:
    by_system = {name: [f for f in figures if f.system == name] for name in SYSTEMS}
    for name, found in by_system.items():
        print(
            f"{name:8} MiB per core second {spread([f.rate for f in found])}, "
            f"p99 beside / without {spread([f.p99_ratio for f in found])}"
        )
    pairs = zip(by_system["plimsoll"], by_system["kafka"], strict=True)
    print(f"ratio of the rates {spread([ours.rate / theirs.rate for ours, theirs in pairs])}")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quiet-s", type=float, default=5)
    arguments = parser.parse_args()
    if arguments.mebibytes < MEBIBYTES_MIN:
        parser.error(f"with less than {MEBIBYTES_MIN} MiB no segment is sealed")
    figures = []
    with TemporaryDirectory() as temporary:
        load = Path(temporary, "load")
        make_load(load, arguments.mebibytes)
        for number in range(arguments.rounds):
            for name in SYSTEMS:
                with TemporaryDirectory(dir=temporary) as directory:
                    figure = measure(name, Path(directory, name), load, arguments.quiet_s)
                figures.append(figure)
                print(f"round {number + 1}: {figure}", flush=True)
    show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
