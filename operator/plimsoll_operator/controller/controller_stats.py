"""Counters and durations of a controller. `operator_metrics` exposes them, and tests read them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

_LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COMMITS_TIMED = 1_000
COMMITS_REMEMBERED = 4_096
"""Number of commits of which the time is remembered. If a broker is further behind than that, the
reported age of its backlog is less than the true one."""


class Commit(NamedTuple):
    """A commit. `end` is the metadata offset after it, `at_ms` its time on the controller's
    clock."""

    end: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Committed metadata records that a broker had not applied at its last heartbeat, and the age
    of the oldest of them at that time."""

    records: int
    age_ms: int


class ControllerStats:
    """Counters and durations of one controller. Each has a metrics registry of its own, so that
    several in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.commits = Counter(
            "plimsoll_controller_commits",
            "Batches committed to the metadata log",
            registry=self.registry,
        )
        self.records = Counter(
            "plimsoll_controller_records",
            "Records committed to the metadata log",
            registry=self.registry,
        )
        self.failures = Counter(
            "plimsoll_controller_commit_failures",
            "Failed appends to the metadata log",
            registry=self.registry,
        )
        self.take_overs = Counter(
            "plimsoll_controller_take_overs",
            "Controller terms that this process began",
            registry=self.registry,
        )
        self.latency = Histogram(
            "plimsoll_controller_commit_seconds",
            "Duration of an append to the metadata log",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.lag = Histogram(
            "plimsoll_controller_loop_lag_seconds",
            "Delay of the controller's periodic step",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.take_over_ms = 0
        """Duration of the last take-over in milliseconds; 0 before the first."""
        self.append_began_ms: int | None = None
        """Time at which the append in flight began, on the controller's clock; None if there is
        none."""
        self._recent: deque[Commit] = deque(maxlen=COMMITS_REMEMBERED)
        self._elapsed_ms: deque[int] = deque(maxlen=COMMITS_TIMED)

    def committed(self, records: int, elapsed_ms: int, commit: Commit) -> None:
        self.commits.inc()
        self.records.inc(records)
        self.latency.observe(elapsed_ms / 1000)
        self._recent.append(commit)
        self._elapsed_ms.append(elapsed_ms)

    @property
    def commit_p99_ms(self) -> int | None:
        """Return the 99th percentile of the durations of the last `COMMITS_TIMED` commits, in
        milliseconds. Return None before the first commit."""
        ordered = sorted(self._elapsed_ms)
        return ordered[(len(ordered) - 1) * 99 // 100] if ordered else None

    def loop_lag(self, late_ms: int) -> None:
        self.lag.observe(late_ms / 1000)

    def took_over(self, elapsed_ms: int) -> None:
        """Note a completed take-over and its duration in milliseconds."""
        self.take_overs.inc()
        self.take_over_ms = elapsed_ms

    def backlog(self, applied: int, heard_ms: int) -> Backlog:
        """Return the committed records that a broker had not applied at its heartbeat at `heard_ms`
        (controller's clock), and their age; zeros if there are none. `applied`: the metadata offset
        up to which, exclusive, the broker had applied all records."""
        recent = list(self._recent)
        there = bisect_right(recent, heard_ms, key=lambda commit: commit.at_ms)
        if there == 0 or recent[there - 1].end <= applied:
            return Backlog(0, 0)
        oldest = bisect_right(recent, applied, hi=there, key=lambda commit: commit.end)
        return Backlog(recent[there - 1].end - applied, heard_ms - recent[oldest].at_ms)
