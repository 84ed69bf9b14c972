"""The values of a verification's result; their JSON is the interface to the operator.

Written by `checks`, `verdict` and `verification`; read by `report`. msgspec spells the fields in
the file's camelCase.
"""

from __future__ import annotations

import msgspec


class _Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spelt in camelCase in files."""


class Counts(_Camel, frozen=True):
    """Records by fate."""

    sent: int = 0
    acked: int = 0
    failed: int = 0  # certainly not appended
    unknown: int = 0  # may be there or not
    read: int = 0  # records of this run in the log
    lost: int = 0  # acked, and not in the log
    misplaced: int = 0  # acked at one offset, found at another
    mismatched: int = 0  # their offset holds something else
    duplicated: int = 0
    out_of_order: int = 0
    gaps: int = 0
    expired: int = 0  # acked, and below the log's present start
    foreign: int = 0  # not written by this run


class Stall(_Camel, frozen=True):
    """The longest time in which a partition had waiting records and no ack."""

    partition: int
    milliseconds: float
    from_ms: float
    to_ms: float


class Latency(_Camel, frozen=True):
    """Time from `produce` to ack, in ms."""

    p50: float = 0
    p90: float = 0
    p99: float = 0
    p999: float = 0
    worst: float = 0


class Bin(_Camel, frozen=True):
    """Acks in one time span."""

    start_ms: float
    acked: int
    p50: float
    p99: float
    worst: float


class Timing(_Camel, frozen=True):
    """Times of the run, latency, and stalls."""

    start_time: str
    completion_time: str | None = None
    ack_milliseconds: Latency | None = None
    longest_stall_milliseconds: float | None = None
    stall_milliseconds_by_partition: dict[str, float] = {}
    stalls: tuple[Stall, ...] = ()


class Example(_Camel, frozen=True):
    """One violating record."""

    topic: str
    partition: int
    offset: int
    kind: str


class Findings(_Camel, frozen=True):
    """The results of all checks."""

    counts: Counts
    latency: Latency
    stalls: tuple[Stall, ...]
    pace: tuple[Bin, ...]
    bin_ms: int
    examples: tuple[Example, ...]
    unreadable: bool = False
    """The log holds batches that no consumer can read (`examples`), so no check could run."""


class Progress(_Camel, frozen=True):
    """The content of `progress.json`."""

    phase: str
    counts: Counts
    timing: Timing


class Outcome(_Camel, frozen=True):
    """The content of `verdict.json`."""

    verdict: str
    reason: str
    message: str
    counts: Counts
    timing: Timing
    examples: tuple[Example, ...] = ()
