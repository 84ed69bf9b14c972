"""What a continuous run costs, how it outlives kills, and which injected faults it finds.

    python -m bench.continuous_run [--rate 5000] [--seconds 120] [--drills 0] [--faults] [--flip]

A local cluster of three brokers, one topic, and the driver that the operator starts. Printed: the
share of a processor that the driver's processes take once the first window has ended, the bytes of
Spark's checkpoint and of the judge's state, and each window's verdict. `--drills N`: so many times
SIGKILL of a random broker, of the driver or of its JVM, and how long the driver is away.
`--faults`: at the end a false ack, a duplicate and a reordering; `--flip`: a byte flipped below
every replica, which needs a rate that soon exceeds the brokers' memory (`--rate 5000
--record-bytes 1000 --partitions 1`); how long each takes to be told, with its place. Exit code 1
for a false alarm, a missed fault, or a driver away for over 30 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pyarrow as pa
from confluent_kafka import Producer
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_spark import ledger
from plimsoll_spark.records import Encoder, key_of
from plimsoll_spark.session import JARS_VARIABLE

TOPIC = "canary"
KEYS = 1_000
START_S = 300.0
TOLD_S = 180.0
AWAY_MAX_S = 30.0
LOOK_S = 0.25
SETTLED_S = 20.0
"""Between two kills, at least."""
STRANGER = 60_000
"""The number of the producer that injected records name: no driver of a short run gives it out."""
FIRST_SEGMENT_BYTES = 32 << 20


class Driver:
    """The process that the operator's Job runs, and its report."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.report = directory / "report"
        self.run = directory / "proofs" / settings["name"]
        config = directory / "verification.json"
        config.write_text(json.dumps({**settings, "report": {"directory": str(self.report)}}))
        (directory / "proofs").mkdir()
        words = ["--config", str(config), "--evidence", str(directory / "proofs")]
        self.log = directory / "driver.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "plimsoll_spark.verification", *words],
                stdout=log,
                stderr=log,
            )
        self._spent: dict[tuple[int, float, str], float] = {}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def progress(self) -> dict[str, Any]:
        """What was published last; empty before that."""
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.report / "progress.json").read_text())
            return found
        return {}

    @property
    def rolling(self) -> dict[str, Any]:
        found: dict[str, Any] = self.progress.get("rolling") or {}
        return found

    def judged(self) -> int:
        return int((self.progress.get("counts") or {}).get("acked", 0))

    def processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def processor_s(self) -> dict[str, float]:
        """Processor time of all its processes until now, by program; those that ended count with
        what they had when they were last seen."""
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                self._spent[one.pid, one.create_time(), kind_of(one)] = times.user + times.system
        found: dict[str, float] = {}
        for (*_, kind), spent in self._spent.items():
            found[kind] = found.get(kind, 0.0) + spent
        return found

    def files(self) -> set[tuple[int, int]]:
        """Producer and number of each file of the ledger."""
        names = (path.stem.split("-") for path in (self.run / "ledger").glob("[!_]*.parquet"))
        return {(int(producer), int(number)) for _, producer, number in names}

    def kept_bytes(self) -> tuple[int, int]:
        """Bytes of Spark's checkpoint, and of the judge's state."""
        checkpoint = sum(
            one.stat().st_size for one in self.run.glob("checkpoint-*/**/*") if one.is_file()
        )
        states = sorted((self.run / "judge").glob("[0-9]*"))
        return checkpoint, states[-1].stat().st_size if states else 0

    def ended_windows(self) -> int:
        state = self.rolling
        return sum(int(state.get(name, 0)) for name in ("passed", "violated", "inconclusive"))


def kind_of(process: psutil.Process) -> str:
    """Return which of the driver's programs a process runs; "" if it has ended."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    if words and Path(words[0]).name == "java":
        return "jvm"
    if any("pyspark.daemon" in word for word in words):
        return "tasks"
    return "driver" if "--work" in words else "supervisor"


def cost(driver: Driver, seconds: float) -> None:
    """Print the processor time that the driver takes, and the bytes that it keeps."""
    begun_s, before = time.monotonic(), driver.processor_s()
    until_s = begun_s + seconds
    most = (0, 0)
    acked = driver.judged()
    while time.monotonic() < until_s:
        time.sleep(LOOK_S)
        after = driver.processor_s()
        checkpoint, state = driver.kept_bytes()
        most = max(most[0], checkpoint), max(most[1], state)
    took_s = time.monotonic() - begun_s
    shares = {kind: (spent - before.get(kind, 0.0)) / took_s for kind, spent in after.items()}
    parts = ", ".join(f"{kind} {share:.3f}" for kind, share in sorted(shares.items()))
    rate = (driver.judged() - acked) / took_s
    print(f"processor share in {took_s:.0f} s: {sum(shares.values()):.3f} ({parts})")
    print(f"judged: {rate:,.0f} records/s; waiting {driver.rolling.get('waiting')}")
    print(f"checkpoint {most[0] / 1e6:.2f} MB, judge's state {most[1] / 1e6:.2f} MB", flush=True)


def settled(driver: Driver, local: LocalCluster) -> None:
    """Wait until all brokers run, and a window that begins now has ended."""
    local.wait_isr(TOPIC, 3, START_S)
    count = driver.ended_windows()
    wait_for("the next window", lambda: driver.ended_windows() > count, START_S, LOOK_S)


def drills(driver: Driver, local: LocalCluster, count: int, chance: random.Random) -> float:
    """Kill a random process so many times; print and return the longest time without a driver."""
    longest_s = 0.0
    for number in range(count):
        what = chance.choice(("broker", "driver", "jvm"))
        if what == "broker":
            broker = chance.randrange(3)
            pid = local.kill_broker(broker)
            local.wait_restarted(broker, pid)
            print(f"drill {number}: SIGKILL of broker {broker}", flush=True)
        else:
            away_s = kill_driver(driver, what)
            longest_s = max(longest_s, away_s)
            load = f"load {os.getloadavg()[0]:.0f}"
            print(f"drill {number}: SIGKILL of the {what}: away for {away_s:.1f} s, {load}")
        time.sleep(SETTLED_S * chance.random())
        settled(driver, local)
        sys.stdout.flush()
    return longest_s


def kill_driver(driver: Driver, kind: str) -> float:
    """Kill a process of the driver. Return the seconds until its successor has judged records, and
    print how they are spent."""
    (pid,) = [one.pid for one in driver.processes() if kind_of(one) == kind]
    drivers, files = driver.rolling["drivers"], driver.files()
    os.kill(pid, signal.SIGKILL)
    begun_s = time.monotonic()
    wait_for("a successor", lambda: driver.rolling["drivers"] > drivers, START_S, LOOK_S)
    began_s = time.monotonic() - begun_s
    judged = driver.judged()
    newest = max(files)
    wait_for("its first acks", lambda: max(driver.files()) > newest, START_S, LOOK_S)
    wrote_s = time.monotonic() - begun_s
    wait_for("its first verdict", lambda: driver.judged() > judged, START_S, LOOK_S)
    took_s = time.monotonic() - begun_s
    print(
        f"  began after {began_s:.1f} s, wrote after {wrote_s:.1f} s, judged after {took_s:.1f} s"
    )
    return took_s


class Injector:
    """Puts faults into the log and the ledger of a run."""

    def __init__(self, driver: Driver, local: LocalCluster, record_bytes: int) -> None:
        self._driver = driver
        self._local = local
        run = json.loads(max(driver.run.glob("runs/*.json")).read_text())["id"]
        self._encoder = Encoder(run=run, producer=STRANGER, record_bytes=record_bytes)
        self._producer = Producer({"bootstrap.servers": local.bootstrap, "linger.ms": 0})

    def write(self, sequence: int) -> int:
        """Append a record of the run to partition 0; its offset."""
        found: list[int] = []
        self._producer.produce(
            TOPIC,
            self._encoder.value(sequence),
            key_of(STRANGER, sequence, KEYS),
            0,
            on_delivery=lambda _, message: found.append(message.offset()),
        )
        assert self._producer.flush(60) == 0
        return found[0]

    def lose(self) -> int:
        """Enter into the ledger an ack of a record that the log never held; its offset."""
        offset = self.write(1)
        now_ms = time.time() * 1000
        row = {
            "partition": 0,
            "offset": offset,
            "producer": STRANGER,
            "sequence": 2**40,
            "outcome": ledger.ACKED,
            "send_ms": now_ms,
            "settled_ms": now_ms,
        }
        name = f"producer-{STRANGER}-{offset:09d}.parquet"
        batch = pa.RecordBatch.from_pylist([row], schema=ledger.SCHEMA)
        ledger.write_chunk(self._driver.run / "ledger" / name, batch)
        return offset

    def duplicate(self) -> int:
        """Append a record twice; the offset of the second one."""
        self.write(10)
        return self.write(10)

    def reorder(self) -> int:
        """Append a record behind a later one; its offset."""
        self.write(21)
        return self.write(20)


def faults(driver: Driver, local: LocalCluster, record_bytes: int) -> int:
    """Inject one fault after another. Print how long each took to be told; the number of those that
    were not told with topic, partition and offset."""
    injector, missed = Injector(driver, local, record_bytes), 0
    for kind, inject in (
        ("mismatched", injector.lose),
        ("duplicated", injector.duplicate),
        ("outOfOrder", injector.reorder),
    ):
        begun_s = time.monotonic()
        offset = inject()
        missed += not told(driver, kind, offset, begun_s)
    return missed


def told(driver: Driver, kind: str, offset: int | None, begun_s: float) -> bool:
    """Print how long a fault took to be told. `offset`: where it is, None if only its kind is
    known."""

    def found() -> dict[str, Any] | None:
        for name in ("window", "lastViolation"):
            for one in (driver.rolling.get(name) or {}).get("examples", ()):
                there = one["topic"] == TOPIC and one["kind"] == kind and one["partition"] == 0
                if there and offset in (None, one["offset"]):
                    return dict(one)
        return None

    with contextlib.suppress(AssertionError):
        place = wait_for(kind, found, TOLD_S, LOOK_S)
        took_s = time.monotonic() - begun_s
        brokers = f", read from broker {place['brokers'][0]}" if place["brokers"] else ""
        where = f"{TOPIC}-{place['partition']} at offset {place['offset']}{brokers}"
        print(f"injected {kind}: told after {took_s:.1f} s: {where}", flush=True)
        return True
    print(f"injected {kind} at offset {offset}: NOT told within {TOLD_S:.0f} s", flush=True)
    return False


def flip(driver: Driver, local: LocalCluster) -> bool:
    """Flip a byte below every replica, in a batch that no driver has read: the driver is stopped
    while the log grows beyond what brokers keep in memory. Return True if it is told."""
    driver_pids = [one for one in driver.processes() if kind_of(one) == "driver"]
    begun_s = time.monotonic()
    for one in driver_pids:
        one.suspend()
    try:
        logs = sorted(local.directory.glob(f"broker-*/{TOPIC}-0/*.log"))
        newest = [max(found) for found in by_broker(logs).values()]
        size = min(path.stat().st_size for path in newest)
        wait_for(
            "records that are on the disk alone",
            lambda: min(path.stat().st_size for path in newest) > size + FIRST_SEGMENT_BYTES,
            TOLD_S,
            LOOK_S,
        )
        for path in newest:
            with path.open("r+b") as file:
                file.seek(size + (1 << 20))
                (value,) = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes((value ^ 1,)))
    finally:
        for one in driver_pids:
            one.resume()
    return told(driver, "unreadable", None, begun_s)


def by_broker(paths: list[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path.parent.parent.name, []).append(path)
    return found


@contextlib.contextmanager
def running(rate: int, record_bytes: int, partitions: int) -> Iterator[tuple[Driver, LocalCluster]]:
    """A cluster, and a driver that has ended its first window."""
    with TemporaryDirectory() as name:
        local = LocalCluster(Path(name, "data"), brokers=3)
        local.start(START_S)
        try:
            local.create_topic(TOPIC, partitions, {"min.insync.replicas": "2"})
            local.wait_isr(TOPIC, 3, START_S)
            settings = {
                "name": "canary",
                "bootstrap": local.bootstrap,
                "topic": TOPIC,
                "mode": "Continuous",
                "deadlineSeconds": 0,
                "produce": {
                    "recordsPerSecond": rate,
                    "recordBytes": record_bytes,
                    "keys": KEYS,
                },
                "evidence": {},
            }
            driver = Driver(Path(name), settings)
            try:
                wait_for("a window", driver.ended_windows, START_S, LOOK_S)
                yield driver, local
            except AssertionError:
                print(driver.log.read_text()[-6000:], file=sys.stderr)
                raise
            finally:
                driver.stop()
        finally:
            local.stop()


def windows(driver: Driver) -> int:
    """Print the windows by verdict; the number of those that did not pass."""
    state = driver.rolling
    numbers = {name: state.get(name, 0) for name in ("passed", "violated", "inconclusive")}
    print(f"windows: {numbers}; drivers: {state.get('drivers')}", flush=True)
    if state.get("lastViolation"):
        print(f"last violation: {state['lastViolation']['message']}")
    return int(numbers["violated"] + numbers["inconclusive"])


def main() -> int:
    """Return 0 without a false alarm, a missed fault or a long absence of the driver."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--record-bytes", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--drills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--flip", action="store_true")
    parser.add_argument("--report", type=Path, help="where to copy the report")
    options = parser.parse_args()
    os.environ.setdefault(JARS_VARIABLE, str(Path(".cache/spark-jars").absolute()))
    wrong = 0
    with running(options.rate, options.record_bytes, options.partitions) as (driver, local):
        if options.seconds:
            cost(driver, options.seconds)
        away_s = drills(driver, local, options.drills, random.Random(options.seed))
        wrong += windows(driver) + (away_s > AWAY_MAX_S)
        if options.faults:
            wrong += faults(driver, local, options.record_bytes)
        if options.flip:
            wrong += not flip(driver, local)
        if options.report is not None:
            shutil.copy(driver.report / "report.html", options.report)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
