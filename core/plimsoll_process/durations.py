"""A histogram of durations. One observation costs one binary search in a short tuple.

Hot paths fill it, and metrics read it. Pure.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Durations:
    """A histogram of durations in seconds, for metrics; its counts only grow. `counts`: the number
    of durations up to each of `BOUNDS_S` and above the one before, and last those above all
    bounds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration, in seconds."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def add(self, other: Durations) -> None:
        """Add the counts of another histogram."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s

    def buckets(self) -> list[tuple[str, float]]:
        """Return Prometheus' cumulative buckets: each upper bound with its count, the last one
        `+Inf`."""
        total, found = 0, []
        for bound, count in zip((*BOUNDS_S, "+Inf"), self.counts, strict=True):
            total += count
            found.append((str(bound), float(total)))
        return found
