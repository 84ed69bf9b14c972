"""The drive on executors, which share no disk with the driver: producers return their ledger to it.

Called by `run` instead of `drive.run_drive`. Each producer's share is cut into parts of some
seconds. A part is a task, and a producer of its own; its result is its part of the ledger, which
the driver writes. If an executor is lost, so is what its parts had not returned: Spark runs those
parts again, and each attempt has a producer number of its own, so that its records are no copies of
those of the lost attempt. These stay in the log unreported, and are counted, not judged.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import SparkSession

from plimsoll_spark.budget import Interval
from plimsoll_spark.drive import Drive, plan, write_ledger
from plimsoll_spark.failures import executor_failure
from plimsoll_spark.lanes import on_an_executor, run_in_lanes
from plimsoll_spark.producer import HELD_MAX, Plan
from plimsoll_spark.records import PRODUCER_BYTES
from plimsoll_spark.whole_files import put_whole

CAUSE_MAX = 300
ATTEMPTS = 8
"""Bound on the attempts of a part, each with a producer number of its own. Spark's own bound does
not count an attempt that was lost with its pod."""
PARTS_MAX = 2 ** (8 * PRODUCER_BYTES) // ATTEMPTS
PART_RECORDS = 200_000
PART_S = 10.0
"""Length of a part, at the requested rate; without a rate it has `PART_RECORDS` records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPart:
    """The result of a part. `attempt`: number of the attempt, from 0; `counts`: numbers of records
    by outcome; `stopped`: why the producer ended early, or None; `held`: the times in which it did
    not run, in milliseconds since 1970; `chunks`: names and contents of the ledger's files."""

    attempt: int
    counts: dict[str, int]
    stopped: str | None
    held: list[Interval]
    chunks: list[tuple[str, bytes]]


class _Totals:
    """The sum of all returned parts, written to the progress file `path` at each change. `stopped`:
    why the drive stopped early, or None. Threads may call it at the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._counts = {"sent": 0, "acked": 0, "failed": 0, "unknown": 0}
        self._held: list[Interval] = []
        self.stopped: str | None = None
        self._write()

    def add(self, part: SentPart) -> None:
        with self._lock:
            self.stopped = self.stopped or part.stopped
            self._held = [*self._held, *part.held][:HELD_MAX]
            for name in self._counts:
                self._counts[name] += part.counts[name]
            self._write()

    def stop(self, why: str) -> None:
        with self._lock:
            self.stopped = self.stopped or why
            self._write()

    def _write(self) -> None:
        state = {**self._counts, "stopped": self.stopped, "held": self._held}
        put_whole(self._path, json.dumps(state).encode())


def run_drive(spark: SparkSession, drive: Drive) -> None:
    """Run all producers. Return when the outcome of every record is in the ledger, or the drive
    stopped early: the time `drive.stop_at_s` has come, or a part failed in all attempts. The file
    in `drive.progress` then says why."""
    drive.progress.mkdir(parents=True, exist_ok=True)
    drive.ledger.mkdir(exist_ok=True)
    totals = _Totals(drive.progress / "executors.json")

    def send(part: Plan) -> None:
        if totals.stopped is not None:
            return
        if time.time() >= drive.stop_at_s:
            totals.stop("the deadline of the run came before every record was sent")
            return
        try:
            sent = on_an_executor(spark, produce_part, part)
        except Py4JJavaError as error:
            totals.stop(why_failed(str(error.java_exception.getMessage())))
            return
        for name, content in sent.chunks:
            put_whole(drive.ledger / name, content)
        totals.add(sent)

    run_in_lanes(parts(drive), send, drive.producers)


def parts(drive: Drive) -> Iterator[Plan]:
    """Yield the plan of each part; together they send exactly the requested records. Parts that are
    next to each other belong to different producers."""
    shares = plan(drive)
    pace = shares[0].pace
    size = PART_RECORDS if pace is None else max(1, int(pace.highest * PART_S))
    size = max(size, -(-drive.settings.produce.total // (PARTS_MAX - len(shares))))
    number = 0
    for first in range(0, max(share.records for share in shares), size):
        for share in shares:
            records = min(size, share.records - first)
            if records > 0:
                rest = None if share.pace is None else share.pace.after(first)
                yield replace(share, producer=number * ATTEMPTS, records=records, pace=rest)
                number += 1


def produce_part(part: Plan) -> SentPart:
    """Run one part's producer, in a Spark task, and return its outcomes. Raises RuntimeError if
    this is an attempt beyond `ATTEMPTS`."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    if attempt >= ATTEMPTS:
        raise RuntimeError(
            f"the Spark executor of this producer was lost {attempt} times; if its memory did not "
            "suffice, raise runner.executorResources.limits.memory"
        )
    with tempfile.TemporaryDirectory(prefix="plimsoll-part-") as directory:
        ledger, progress = Path(directory), Path(directory, "progress.json")
        number = part.producer + attempt
        write_ledger(replace(part, producer=number, progress=progress, ledger=ledger))
        state = json.loads(progress.read_text())
        chunks = [(path.name, path.read_bytes()) for path in sorted(ledger.glob("*.parquet"))]
    stopped, held = state.pop("stopped"), [(begin, end) for begin, end in state.pop("held")]
    return SentPart(attempt=attempt, counts=state, stopped=stopped, held=held, chunks=chunks)


def why_failed(message: str) -> str:
    """Return in words why the task of a producer failed. `message`: the JVM's."""
    known = executor_failure(message)
    if known is not None:
        return known.message
    return f"the Spark task of a producer failed: {cause(message)}"


def cause(message: str) -> str:
    """Return the line of the JVM's message about a failed job that says why: the error at the end
    of a Python traceback, else the first line."""
    lines = [line for line in message.partition("\n\tat ")[0].splitlines() if line.strip()]
    at_end = len(lines) > 1 and "Traceback (most recent call last):" in message
    return (lines[-1] if at_end else lines[0])[:CAUSE_MAX] if lines else "it gave no message"
