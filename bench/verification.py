"""How long a Verification takes to check what it wrote, with how much memory and processor time.

    python -m bench.verification [--records 1000000 ...] [--record-bytes 200] [--write]

Each run has a local cluster of its own: three brokers, twelve partitions, acks=all, no limit of the
rate. The job is the one that the operator starts. Measured: the time from the last ack to the
verdict, processor time of the job's processes per record in that time, and the greatest memory of
all its processes together, shared pages counted once. Quote microseconds a record: machines differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil
from bench.marked import write
from tests.integration.local_cluster import LocalCluster

MARK = "verification"
"""The mark of its figures in docs/benchmarks.md."""
PARTITIONS = 12
DEADLINE_S = 6 * 3600
LOOK_EVERY_S = 0.3


class Use(NamedTuple):
    """What the job's processes use together."""

    processor_s: float
    memory_bytes: int


class Measured(NamedTuple):
    """One run."""

    records: int
    verdict: str
    total_s: float
    check_s: float
    check_us_a_record: float
    memory_bytes: int


def use_of(job: subprocess.Popen[bytes]) -> Use:
    """Sum over the job and its descendants; a process that ends meanwhile counts as 0."""
    processor_s, memory_bytes = 0.0, 0
    with contextlib.suppress(psutil.Error):
        for process in (root := psutil.Process(job.pid), *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                processor_s += times.user + times.system
                memory_bytes += process.memory_full_info().pss
    return Use(processor_s, memory_bytes)


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file that the job replaces; empty before there is one."""
    with contextlib.suppress(FileNotFoundError):
        content: dict[str, Any] = json.loads(path.read_text())
        return content
    return {}


def measure(records: int, record_bytes: int) -> Measured:
    """Run one verification on a cluster of its own."""
    with (
        TemporaryDirectory() as directory,
        LocalCluster(Path(directory, "data"), brokers=3) as local,
    ):
        local.create_topic("driven", PARTITIONS, {"min.insync.replicas": "2"})
        local.wait_isr("driven", 3)
        report, config = Path(directory, "report"), Path(directory, "verification.json")
        asked = {
            "name": "measured",
            "bootstrap": local.bootstrap,
            "topic": "driven",
            "produce": {"records": records, "recordBytes": record_bytes},
            "verify": {"timeoutSeconds": DEADLINE_S // 2},
            "deadlineSeconds": DEADLINE_S,
            "report": {"directory": str(report)},
        }
        config.write_text(json.dumps(asked))
        command = [sys.executable, "-m", "plimsoll_spark.verification", "--config", str(config)]
        began_s = time.monotonic()
        job = subprocess.Popen(command, env=os.environ)
        try:
            return watch(job, records, report, began_s)
        finally:
            if job.poll() is None:
                job.kill()
                job.wait()


def watch(job: subprocess.Popen[bytes], records: int, report: Path, began_s: float) -> Measured:
    """Follow a job to its end."""
    driven_s: float | None = None
    driven = most = Use(0.0, 0)
    while job.poll() is None:
        now = use_of(job)
        most = Use(max(most.processor_s, now.processor_s), max(most.memory_bytes, now.memory_bytes))
        if driven_s is None and read(report / "progress.json").get("phase") == "Verifying":
            driven_s, driven = time.monotonic(), now
        time.sleep(LOOK_EVERY_S)
    ended_s = time.monotonic()
    return Measured(
        records=records,
        verdict=read(report / "verdict.json").get("verdict", "none"),
        total_s=ended_s - began_s,
        check_s=ended_s - (driven_s or ended_s),
        check_us_a_record=1e6 * (most.processor_s - driven.processor_s) / records,
        memory_bytes=most.memory_bytes,
    )


def table(found: list[Measured]) -> list[str]:
    """Return the figures as lines of Markdown."""
    rows = [
        f"| {one.records:,} | {one.total_s:.0f} s | {one.check_s:.0f} s "
        f"| {one.check_us_a_record:.1f} µs | {one.memory_bytes / 1e6:.0f} MB |"
        for one in found
    ]
    head = (
        "| records | whole run | from the last ack to the verdict | processor, a record | memory |"
    )
    return [head, "|---|---|---|---|---|", *rows]


def main() -> int:
    """Return 0 if every run passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--record-bytes", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    found = []
    for records in options.records:
        found.append(measure(records, options.record_bytes))
        print(found[-1], flush=True)
    print("\n".join(table(found)))
    if options.write:
        write(MARK, table(found))
    return 0 if all(one.verdict == "Passed" for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
