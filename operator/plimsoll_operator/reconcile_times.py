"""Measures the passes of a reconcile queue over objects, and counts objects that must be retried.

One cluster's reconcile queue writes the figures, and the metrics read them. They reveal a pass that
hangs and an object that is never finished, both of which look healthy otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ReconcileCounters:
    """Metrics about finished passes, summed over all clusters of the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "plimsoll_reconcile_seconds",
            "Duration of a reconcile pass",
            ("task",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.retries = Counter(
            "plimsoll_reconcile_retries",
            "Passes that are retried",
            ("task",),
            registry=registry,
        )


@dataclass(slots=True)
class ReconcileTimes:
    """Figures about the passes of one reconcile queue: how many keys wait (the queue sets
    `waiting`), since when each running pass runs, and since when each failing key fails. `now_s`: a
    monotonic clock in seconds."""

    counters: ReconcileCounters
    now_s: Callable[[], float]
    waiting: int = 0
    # The start of each running pass.
    _running: dict[Hashable, float] = field(default_factory=dict)
    # Keys whose last pass must be retried, with the start of the first such pass.
    _failing: dict[Hashable, float] = field(default_factory=dict)

    def begun(self, key: Hashable) -> None:
        self._running[key] = self.now_s()

    def ended(self, key: Hashable, task: str, *, retried: bool) -> None:
        """Record the end of the pass over `key` that `begun` recorded: its duration under the label
        `task`, and, if `retried`, a retry. A key counts as failing from the start of its first
        retried pass until a pass over it is not retried."""
        began_s, now_s = self._running.pop(key), self.now_s()
        self.counters.seconds.labels(task).observe(now_s - began_s)
        if retried:
            self.counters.retries.labels(task).inc()
            self._failing.setdefault(key, began_s)
        else:
            self._failing.pop(key, None)

    def abandoned(self, key: Hashable) -> None:
        """Forget, without counting a pass, when the running pass over `key` began and since when
        `key` fails. Called if the pass was cancelled or the object was deleted; does nothing for an
        unknown key."""
        self._running.pop(key, None)
        self._failing.pop(key, None)

    @property
    def longest_running_s(self) -> float:
        return self._longest(self._running)

    @property
    def longest_failing_s(self) -> float:
        return self._longest(self._failing)

    def _longest(self, since: dict[Hashable, float]) -> float:
        return self.now_s() - min(since.values()) if since else 0.0
