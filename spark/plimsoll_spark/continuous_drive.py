"""The drive of a continuous run: producers without an end, and the ledger files that they add.

Called by `continuous`. In this process each producer is a Spark task that lasts; on executors it is
a sequence of parts, of which the driver writes the ledger. A producer that a driver, an executor or
a fatal error ended is followed by one with another number, since what the ended one wrote last may
never be reported: numbers are given out once in a run.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from plimsoll_spark import drive as driving
from plimsoll_spark import ledger
from plimsoll_spark.budget import Interval
from plimsoll_spark.drive import MESSAGE_TIMEOUT_S, client_config
from plimsoll_spark.executor_drive import ATTEMPTS, PART_S, cause, produce_part
from plimsoll_spark.lanes import on_an_executor
from plimsoll_spark.login import librdkafka
from plimsoll_spark.pacing import Pace
from plimsoll_spark.producer import HELD_MAX, Plan, Sender
from plimsoll_spark.records import PRODUCER_BYTES
from plimsoll_spark.settings import Settings
from plimsoll_spark.whole_files import put_whole

CHUNK_S = 2.0
BURST_S = 0.02
"""A run without an end sends so seldom, and in larger requests, to take less processor time of
itself and of the brokers."""
BEHIND_S = 10.0
"""A producer that was held up makes up for the records of this time; it leaves out the others."""
ENDLESS = 2**46
RATE_OF_ONE = 20_000
"""Records per second for which one producer suffices."""
RETRY_S = 1.0
NUMBERS_MAX = 2 ** (8 * PRODUCER_BYTES)
NUMBERS_A_START = 64
"""Producer numbers that one driver may give out before it is to be started again."""

log = logging.getLogger(__name__)


class NumbersUsed(Exception):
    """Every producer number of the run has been given out. The text is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndlessDrive:
    """The settings of the drive of one driver. `first`: the first of its `NUMBERS_A_START` producer
    numbers; `lanes`: how many producers run at the same time."""

    run: str
    settings: Settings
    directory: Path
    first: int
    lanes: int


def first_number(attempt: int) -> int:
    """Return the first producer number of a run's driver. `attempt`: the number of the driver, from
    1. Raises `NumbersUsed`."""
    first = (attempt - 1) * NUMBERS_A_START
    if first + NUMBERS_A_START > NUMBERS_MAX:
        raise NumbersUsed(
            "the Verification cannot continue, because its driver process was restarted "
            f"{attempt - 1} times, which is the limit of one run; create the Verification again"
        )
    return first


def lanes_for(settings: Settings, tasks: int) -> int:
    """Return how many producers run at the same time. `tasks`: how many tasks can."""
    wanted = math.ceil((settings.produce.records_per_second or 1) / RATE_OF_ONE)
    return max(1, min(wanted, tasks - 1, NUMBERS_A_START // (2 * ATTEMPTS)))


def write_endlessly(plan: Plan) -> None:
    """Run a producer in a Spark task, and another one when it gives up, until its numbers are used
    up or `stop_at_s` has come."""
    for number in range(plan.producer, plan.producer + 2 * ATTEMPTS):
        if time.time() >= plan.stop_at_s:
            return
        mine = replace(plan, producer=number, progress=plan.progress.with_name(f"{number}.json"))
        for chunk, rows in enumerate(Sender(mine).run()):
            ledger.write_chunk(plan.ledger / chunk_name(number, chunk), rows)
    raise RuntimeError(
        "this driver process of the Verification ends, because its producers failed too often; a "
        "new process starts by itself and continues the run"
    )


def chunk_name(producer: int, chunk: int) -> str:
    """Return the name of a file of the ledger."""
    return f"producer-{producer}-{chunk:09d}.parquet"


class Driving:
    """Runs the drive in threads of the driver. `failure`: why it ended, None while it runs."""

    def __init__(self, spark: SparkSession, drive: EndlessDrive) -> None:
        self._spark = spark
        self._drive = drive
        self._stop = threading.Event()
        self.failure: str | None = None
        self._held: list[Interval] = []  # of executors
        self._threads: list[threading.Thread] = []

    def start(self, stop_at_s: float) -> None:
        """Start the producers; they send nothing after `stop_at_s`."""
        for part in (self._drive.directory / "ledger", self._drive.directory / "progress"):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        plans = list(self._plans(stop_at_s))
        if self._drive.settings.runner.executors:
            works = [partial(self._lane, plan) for plan in plans]
        else:
            works = [partial(self._local, plans)]
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works
        ]
        for thread in self._threads:
            thread.start()

    def held(self, since_ms: float) -> list[Interval]:
        """Return the times, from `since_ms` on, in which a producer did not run although it had
        work, in milliseconds since 1970."""
        found = [*driving.held(self._drive.directory / "progress"), *self._held]
        return [(begin, end) for begin, end in found if end > since_ms]

    def stop(self) -> None:
        """Begin no further part. Tasks end with their `stop_at_s`, or when Spark stops."""
        self._stop.set()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Py4JError as error:
            java = getattr(error, "java_exception", None)
            said = str(error) if java is None else str(java.getMessage())
            self.failure = self.failure or cause(said)
        except (OSError, RuntimeError, AttributeError) as error:
            # PySpark raises the last when Spark is stopped below it.
            self.failure = self.failure or str(error)

    def _local(self, plans: list[Plan]) -> None:
        self._spark.sparkContext.parallelize(plans, len(plans)).foreach(write_endlessly)

    def _lane(self, plan: Plan) -> None:
        """Run one producer as parts on executors, each where the last one ended."""
        rate = self._rate / self._drive.lanes
        number, first, chunk = plan.producer, 0, 0
        last = plan.producer + ATTEMPTS  # a part may use ATTEMPTS numbers
        due_s = time.monotonic()
        while not self._stop.is_set() and time.time() < plan.stop_at_s:
            now_s = time.monotonic()
            due_s = max(due_s, now_s - BEHIND_S)
            records = max(1, int(rate * (now_s + PART_S - due_s)))
            sent = on_an_executor(
                self._spark, produce_part, replace(plan, producer=number, first=first,
                                                   records=records)
            )  # fmt: skip
            self._held = [*self._held, *sent.held][-HELD_MAX:]
            due_s += records / rate
            for _, content in sent.chunks:
                name = chunk_name(number + sent.attempt, chunk)
                put_whole(plan.ledger / name, content)
                chunk += 1
            first += records
            if sent.attempt or sent.stopped or sent.counts["unknown"]:
                # What it wrote may still be appended, or was never reported.
                number, first = number + sent.attempt + 1, 0
                if number > last:
                    raise RuntimeError(
                        "this driver process of the Verification ends, because Spark lost the "
                        "tasks of a producer too often; a new process starts by itself and "
                        "continues the run"
                    )

    @property
    def _rate(self) -> float:
        return float(self._drive.settings.produce.records_per_second or 1)

    def _plans(self, stop_at_s: float) -> Iterator[Plan]:
        drive, settings = self._drive, self._drive.settings
        rate = self._rate / drive.lanes
        for lane in range(drive.lanes):
            number = drive.first + lane * 2 * ATTEMPTS
            yield Plan(
                run=drive.run,
                topic=settings.topic,
                producer=number,
                records=ENDLESS,
                record_bytes=settings.produce.record_bytes,
                pace=Pace.steady(rate),
                keys=settings.produce.keys,
                client=client_config(settings.bootstrap, settings.produce, drive.lanes)
                | librdkafka(settings.login),
                message_timeout_s=MESSAGE_TIMEOUT_S,
                stop_at_s=stop_at_s,
                progress=drive.directory / "progress" / f"{number}.json",
                ledger=drive.directory / "ledger",
                behind_max=max(1, int(rate * BEHIND_S)),
                chunk_s=CHUNK_S,
                burst_s=BURST_S,
            )
