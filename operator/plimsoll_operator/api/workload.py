"""The fields of a `Verification` about its load over time, and about limits on what the run may
cost writers.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from plimsoll_operator.api.durations import Duration, seconds
from plimsoll_operator.api.meta import Api, Short, described

SEARCH_STEPS_MAX, STEP_SECONDS_DEFAULT = 12, 10
"""Of the driver (`plimsoll_spark.capacity`)."""


class LoadStep(Api, frozen=True, kw_only=True):
    """One rate of the load, and for how long it lasts."""

    for_: Annotated[Duration, described("Duration of the step, such as 90s or 5m.")] = (
        msgspec.field(name="for")
    )
    records_per_second: Annotated[int, Meta(ge=0, le=10_000_000)]


class FindMaxRate(Api, frozen=True, kw_only=True):
    """A search for the highest rate: it doubles until the limit is exceeded, then halves the
    interval; at most 12 steps. Not with runner.executors."""

    p99_milliseconds: Annotated[int, Meta(ge=1, le=86_400_000)]
    from_: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        described("Records per second of the first step; default 1000."),
    ] = msgspec.field(name="from", default=None)
    to: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        described("Highest rate to try, in records per second; default 1000000."),
    ] = None
    step_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=3_600)] | None, described("Length of a step; default 10.")
    ] = None


class Load(Api, frozen=True, kw_only=True):
    """A load that changes over time: either a profile or a search."""

    profile: Annotated[
        Annotated[tuple[LoadStep, ...], Meta(min_length=1, max_length=50)] | None,
        described("Steps of the load, one after the other."),
    ] = None
    find_max_rate: FindMaxRate | None = None


class Capacity(Api, frozen=True, kw_only=True):
    """The highest rate that kept the limit, 0 if none did. bound: what keeps it from being higher:
    the Log, the Driver, or the Range of the search."""

    records_per_second: Annotated[int, Meta(ge=0)] = 0
    p99_milliseconds: float | None = None
    bound: Short = ""


class Budget(Api, frozen=True, kw_only=True):
    """Limits on the effects of the run on writers. If one is exceeded, the verdict is Violated
    (BudgetExceeded)."""

    max_stall_milliseconds: Annotated[
        Annotated[int, Meta(ge=1, le=86_400_000)] | None,
        described("Longest time in which records of a partition wait and none is acked."),
    ] = None
    p99_milliseconds: Annotated[
        Annotated[int, Meta(ge=1, le=86_400_000)] | None,
        described("99th percentile of the time from sending a record to its ack."),
    ] = None
    isr_full_within_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=86_400)] | None,
        described("Longest time for which an ISR of the topic lacks a replica."),
    ] = None


def profile_seconds(load: Load) -> int:
    """Return how long the load lasts, in seconds; for a search, how long it lasts at most."""
    wish = load.find_max_rate
    if wish is not None:
        return SEARCH_STEPS_MAX * (wish.step_seconds or STEP_SECONDS_DEFAULT)
    return sum(seconds(one.for_) for one in load.profile or ())


def profile_records(load: Load) -> int:
    """Return the total number of records that a profile writes; 0 for a search."""
    return sum(seconds(one.for_) * one.records_per_second for one in load.profile or ())
