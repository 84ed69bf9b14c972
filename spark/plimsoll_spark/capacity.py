"""Searches the highest rate at which the log keeps a limit of ack latency.

Called by `run` instead of one drive. Each step is a drive of its own, with its own producers and a
steady rate, into the same ledger, so every record of all steps is verified like any other. The rate
doubles until a step fails, then the interval is halved until it is narrow (`next_rate`); the number
of steps is bounded. A step holds if every record was acked, the p99 is within the limit, and the
step did not take much longer than planned. A step that fails while producers did not run themselves
says nothing about the log: the driver is then the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from pyspark.sql import SparkSession

from plimsoll_spark import ledger
from plimsoll_spark.budget import HELD_PERCENT, joined
from plimsoll_spark.drive import Drive, held, run_drive
from plimsoll_spark.settings import FindMaxRate
from plimsoll_spark.values import Capacity, RateStep

STEPS_MAX = 12
NARROW = 0.1
"""The search ends when the interval between a rate that held and one that failed is at most this
share of the latter."""
LATE = 1.2
"""A step that takes longer than planned by this factor, beyond the latency limit, has failed."""
Measure = Callable[[int, int], RateStep]
"""Runs one step of a search, of this number (from 0) and this rate in records per second, and
returns its result."""


def search(wish: FindMaxRate, measure: Measure) -> Capacity:
    """Run steps until `next_rate` returns None, at most `STEPS_MAX`, and return the result of the
    search."""
    steps: list[RateStep] = []
    while len(steps) < STEPS_MAX and (rate := next_rate(wish, steps)) is not None:
        steps.append(measure(len(steps), rate))
    return summed(wish, steps)


def next_rate(wish: FindMaxRate, steps: Sequence[RateStep]) -> int | None:
    """Return the rate of the next step, in records per second; None if the search has ended,
    because `wish.to` held or the interval is narrow. `steps`: the results so far."""
    if not steps:
        return wish.from_
    low = max((one.records_per_second for one in steps if one.held), default=0)
    failed = [one.records_per_second for one in steps if not one.held]
    high = min((rate for rate in failed if rate > low), default=None)
    if high is None:
        return None if low >= wish.to else min(wish.to, 2 * low)
    middle = (low + high) // 2
    if middle in (low, 0) or high - low <= NARROW * high:
        return None
    return middle


def summed(wish: FindMaxRate, steps: Sequence[RateStep]) -> Capacity:
    """Return the result of a search: the highest rate that held, 0 if none did, and its bound:
    Range if no higher rate failed, Driver if producers did not run in the nearest step that failed,
    else Log."""
    kept = [one for one in steps if one.held]
    best = max(kept, key=lambda one: one.records_per_second, default=None)
    low = 0 if best is None else best.records_per_second
    above = [one for one in steps if not one.held and one.records_per_second > low]
    nearest = min(above, key=lambda one: one.records_per_second, default=None)
    bound = "Range" if nearest is None else "Driver" if nearest.starved else "Log"
    return Capacity(
        records_per_second=low,
        p99_milliseconds=None if best is None else best.p99_milliseconds,
        limit_milliseconds=wish.p99_milliseconds,
        bound=bound,
        steps=tuple(steps),
    )


def step_of(drive: Drive, number: int, rate: int, wish: FindMaxRate) -> Drive:
    """Return `drive` as the drive of one step: `wish.step_seconds` at `rate` records per second, by
    producers with numbers of their own. `number`: that of the step, from 0."""
    produce = msgspec.structs.replace(
        drive.settings.produce,
        records=max(1, rate * wish.step_seconds),
        records_per_second=rate,
        load=None,
    )
    settings = msgspec.structs.replace(drive.settings, produce=produce)
    return replace(drive, settings=settings, first_producer=number * drive.producers)


def measured(drive: Drive, wish: FindMaxRate, rate: int) -> RateStep:
    """Return the result of a step that has ended, by the ledger. `drive`: that of the step. It held
    if every record was acked in time, with a p99 within the limit."""
    first, last = drive.first_producer, drive.first_producer + drive.producers
    index = ledger.index(drive.ledger, only=range(first, last))
    rows = ledger.read(index.groups)
    planned_ms = 1000.0 * wish.step_seconds
    begin_ms = float(rows.send_ms.min()) if len(rows) else 0.0
    took_ms = float(rows.settled_ms.max()) - begin_ms if len(rows) else 0.0
    latency = (rows.settled_ms - rows.send_ms)[rows.acked]
    p99 = round(float(np.percentile(latency, 99)), 2) if len(latency) else None
    lost_ms = sum(
        max(0.0, min(end, begin_ms + took_ms) - max(begin, begin_ms))
        for begin, end in joined(held(drive.progress))
    )
    in_time = took_ms <= LATE * planned_ms + wish.p99_milliseconds
    complete = bool(rows.acked.all()) and len(rows) == drive.settings.produce.total
    return RateStep(
        records_per_second=rate,
        p99_milliseconds=p99,
        acked=int(rows.acked.sum()),
        held=complete and in_time and p99 is not None and p99 <= wish.p99_milliseconds,
        starved=100 * lost_ms > HELD_PERCENT * max(1.0, took_ms),
    )


def search_rate(spark: SparkSession, drive: Drive, wish: FindMaxRate) -> Capacity:
    """Search with Spark's tasks as producers, and return the result. A step that reaches
    `drive.stop_at_s` stops sending, and has failed."""

    def measure(number: int, rate: int) -> RateStep:
        step = step_of(drive, number, rate, wish)
        run_drive(spark, step)
        return measured(step, wish, rate)

    return search(wish, measure)
