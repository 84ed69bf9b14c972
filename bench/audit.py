"""How long an Audit of every replica takes, with how much memory, and what producers notice of it.

    python -m bench.audit [--gigabytes 1] [--rate 50Mi] [--seconds 30]

A local cluster of three brokers, twelve partitions with three replicas, records of 1,000 bytes. A
producer writes at the rate to another topic meanwhile; its p99 is measured before the audit and
during it. The load of the machine stands beside each figure, since it decides all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from bench.verification import LOOK_EVERY_S, read, use_of
from confluent_kafka import Message, Producer
from tests.integration.local_cluster import LocalCluster

PARTITIONS = 12
RECORD_BYTES, LIVE_BYTES = 1_000, 10_000
START_S = 300.0
DEADLINE_S = 3 * 3600
TICK_S = 0.01
UNITS = {"Ki": 2**10, "Mi": 2**20}


class Live:
    """A producer that writes at a rate until it is stopped, and notes how late each ack is."""

    def __init__(self, bootstrap: str, topic: str, bytes_per_second: float) -> None:
        self._topic = topic
        self._per_tick_s = bytes_per_second / LIVE_BYTES
        self._latencies: list[tuple[float, float]] = []  # when acked, and seconds
        self._stopping = threading.Event()
        self._client = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2}
        )
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        value, began_s, sent = os.urandom(LIVE_BYTES), time.monotonic(), 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - began_s) * self._per_tick_s)
            while sent < due:
                try:
                    self._client.produce(self._topic, value, on_delivery=self._acked)
                except BufferError:
                    break
                sent += 1
            self._client.poll(TICK_S)
        self._client.flush(START_S)

    def _acked(self, error: object, message: Message) -> None:
        if error is None:
            self._latencies.append((time.monotonic(), message.latency() or 0.0))

    def between(self, begin_s: float, end_s: float) -> str:
        """Return the p99 and the rate of the acks between two times, as text."""
        some = [late for at, late in self._latencies if begin_s <= at < end_s]
        if not some:
            return "no ack"
        rate = len(some) * LIVE_BYTES / (end_s - begin_s) / 2**20
        return f"p99 {1000 * np.percentile(some, 99):.0f} ms at {rate:.1f} MiB/s"

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def fill(bootstrap: str, topic: str, size: float) -> None:
    """Write so many bytes to the topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for number in range(int(size / RECORD_BYTES)):
        while True:
            try:
                producer.produce(topic, os.urandom(8) + bytes(RECORD_BYTES - 8), b"%d" % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(DEADLINE_S) == 0


def audit(bootstrap: str, directory: Path) -> tuple[dict[str, object], float, int]:
    """Audit the filled topic; return the verdict, the seconds and the greatest memory."""
    config, report = directory / "verification.json", directory / "report"
    asked = {
        "name": "measured",
        "bootstrap": bootstrap,
        "source": {"existingTopics": {"matchPattern": "filled"}},
        "deadlineSeconds": DEADLINE_S,
        "report": {"directory": str(report)},
    }
    config.write_text(json.dumps(asked))
    command = [sys.executable, "-m", "plimsoll_spark.verification", "--config", str(config)]
    began_s, most = time.monotonic(), 0
    job = subprocess.Popen(command, env=os.environ)
    try:
        while job.poll() is None:
            most = max(most, use_of(job).memory_bytes)
            time.sleep(LOOK_EVERY_S)
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    return read(report / "verdict.json"), time.monotonic() - began_s, most


def main() -> int:
    """Return 0 if the audit passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rate", default="50Mi", help="of the producer, bytes a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="without the audit")
    options = parser.parse_args()
    rate = float(options.rate[:-2]) * UNITS[options.rate[-2:]]
    with TemporaryDirectory() as name:
        local = LocalCluster(Path(name, "data"))
        local.start(START_S)
        try:
            for topic in ("filled", "live"):
                local.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2"})
                local.wait_isr(topic, 3, START_S)
            fill(local.bootstrap, "filled", options.gigabytes * 1e9)
            print(f"filled; load {os.getloadavg()[0]:.0f}", flush=True)
            live = Live(local.bootstrap, "live", rate)
            try:
                begin_s = time.monotonic()
                time.sleep(options.seconds)  # what is measured takes this time
                print(
                    f"without the audit: {live.between(begin_s, time.monotonic())},"
                    f" load {os.getloadavg()[0]:.0f}",
                    flush=True,
                )
                begin_s = time.monotonic()
                verdict, took_s, memory = audit(local.bootstrap, Path(name))
                told = live.between(begin_s, time.monotonic())
            finally:
                live.stop()
        finally:
            local.stop()
    size = verdict.get("audited", {}).get("bytes", 0)  # type: ignore[attr-defined]
    print(
        f"with it: {told}; {verdict.get('verdict')}: {size / 1e6:.0f} MB of replicas in"
        f" {took_s:.0f} s, {size / took_s / 1e6:.0f} MB/s, {memory / 1e6:.0f} MB of memory,"
        f" load {os.getloadavg()[0]:.0f}"
    )
    return 0 if verdict.get("verdict") == "Passed" else 1


if __name__ == "__main__":
    sys.exit(main())
