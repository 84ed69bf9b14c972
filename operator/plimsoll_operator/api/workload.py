"""The fields of a `Verification` about its load over time, and about limits on what the run may
cost writers.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from plimsoll_operator.api.durations import Duration, seconds
from plimsoll_operator.api.meta import Api, described


class LoadStep(Api, frozen=True, kw_only=True):
    """One rate of the load, and for how long it lasts."""

    for_: Annotated[Duration, described("Such as 90s or 5m.")] = msgspec.field(name="for")
    records_per_second: Annotated[int, Meta(ge=0, le=10_000_000)]


class Load(Api, frozen=True, kw_only=True):
    """A load that changes over time."""

    profile: Annotated[
        tuple[LoadStep, ...],
        Meta(min_length=1, max_length=50, description="Steps, one after the other."),
    ]


class Budget(Api, frozen=True, kw_only=True):
    """What the run may cost writers; a limit that is exceeded is Violated (BudgetExceeded)."""

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
    return sum(seconds(one.for_) for one in load.profile)


def profile_records(load: Load) -> int:
    return sum(seconds(one.for_) * one.records_per_second for one in load.profile)
