"""The controller's counters; `operator_metrics` exposes them, tests read them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ControllerStats:
    """One registry per controller, so that several in one process do not clash."""

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
        self.latency = Histogram(
            "plimsoll_controller_commit_seconds",
            "How long one append to the metadata log took",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.lag = Histogram(
            "plimsoll_controller_loop_lag_seconds",
            "By how much a tick ran late",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )

    def committed(self, records: int, elapsed_ms: int) -> None:
        self.commits.inc()
        self.records.inc(records)
        self.latency.observe(elapsed_ms / 1000)

    def loop_lag(self, late_ms: int) -> None:
        self.lag.observe(late_ms / 1000)
