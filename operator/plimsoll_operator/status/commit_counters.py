"""Counters of ISR, leader and broker changes by commits, since the process started.

The series of every known cluster begin at 0 in every process, leading or not. Prometheus then sees
the first shrink after a failover as an increase. A broker that has left its cluster has no series.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from plimsoll_core.cluster.isr_shrinks import PLANNED, Left, ShrinkCause
from plimsoll_core.cluster.state_changes import KINDS as STATE_CHANGES
from plimsoll_core.cluster.state_changes import StateChangeKind
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.commit_effects import FencedBroker, Fencing, LeaderChange
from plimsoll_operator.status.metric_rows import TABLE

SHRINK_SERIES = (
    *((cause.value, "true" if cause in PLANNED else "false") for cause in ShrinkCause),
    # Evictions by the Eviction API (`kubectl drain`), which can be refused.
    (ShrinkCause.EVICTED.value, "true"),
)
"""(cause, planned) of each broker's series."""


class RequestedChange(NamedTuple):
    """A kind of state change and the broker that it was requested of."""

    broker_id: BrokerId
    kind: StateChangeKind


class CommitCounters:
    """Commit counters of all clusters. Only series begun by `begin` and not removed by `keep`
    exist."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._begun: dict[Key, set[BrokerId]] = {}  # brokers with series
        self._shrinks = TABLE.counting("plimsoll_isr_shrinks", registry)
        self._expands = TABLE.counting("plimsoll_isr_expands", registry)
        self._elections = TABLE.counting("plimsoll_leader_elections", registry)
        self._unclean = TABLE.counting("plimsoll_unclean_elections", registry)
        self._fencings = TABLE.counting("plimsoll_fencings", registry)
        self._requested = TABLE.counting("plimsoll_state_changes_requested", registry)

    def begin(self, key: Key, brokers: Iterable[BrokerId]) -> None:
        """Create every series at 0: a series that first appears with a value shows no increase."""
        if key not in self._begun:
            self._begun[key] = set()
            self._unclean.labels(*key)
            self._expands.labels(*key)
            for change in LeaderChange:
                self._elections.labels(*key, change.value)
        for broker in set(brokers) - self._begun[key]:
            self._begun[key].add(broker)
            for pair in SHRINK_SERIES:
                self._shrinks.labels(*key, str(broker), *pair)
            for reason in Fencing:
                self._fencings.labels(*key, str(broker), reason.value)
            for kind in STATE_CHANGES:
                self._requested.labels(*key, str(broker), kind)

    def keep(self, known: Mapping[Key, frozenset[BrokerId]]) -> None:
        """Drop the series of clusters and brokers not in `known`, so that no alert fires for a
        removed cluster."""
        for key, brokers in known.items():
            self.begin(key, brokers)
        for key in [key for key in self._begun if key not in known]:
            self._drop(key, set(self._begun[key]))
            del self._begun[key]
            self._unclean.remove(*key)
            self._expands.remove(*key)
            for change in LeaderChange:
                self._elections.remove(*key, change.value)
        for key, begun in self._begun.items():
            self._drop(key, begun - known[key])

    def _drop(self, key: Key, brokers: set[BrokerId]) -> None:
        for broker in brokers:
            self._begun[key].discard(broker)
            for pair in SHRINK_SERIES:
                self._shrinks.remove(*key, str(broker), *pair)
            for reason in Fencing:
                self._fencings.remove(*key, str(broker), reason.value)
            for kind in STATE_CHANGES:
                self._requested.remove(*key, str(broker), kind)

    # --- what happened --------------------------------------------------------------------------

    def left_isrs(self, key: Key, left: Left, count: int, *, asked_for: bool = False) -> None:
        """Count replicas that left an ISR. `asked_for`: a person requested the eviction."""
        self.begin(key, (left.broker_id,))
        planned = "true" if asked_for or left.cause in PLANNED else "false"
        labels = (*key, str(left.broker_id), left.cause.value, planned)
        self._shrinks.labels(*labels).inc(count)

    def joined_isrs(self, key: Key, count: int) -> None:
        self.begin(key, ())
        self._expands.labels(*key).inc(count)

    def elected(self, key: Key, changes: Tally[LeaderChange], unclean: int) -> None:
        self.begin(key, ())
        for change, count in changes.items():
            self._elections.labels(*key, change.value).inc(count)
        self._unclean.labels(*key).inc(unclean)

    def requested(self, key: Key, changes: Tally[RequestedChange]) -> None:
        self.begin(key, {change.broker_id for change in changes})
        for change, count in changes.items():
            self._requested.labels(*key, str(change.broker_id), change.kind).inc(count)

    def fenced(self, key: Key, fenced: FencedBroker) -> None:
        self.begin(key, (fenced.broker_id,))
        self._fencings.labels(*key, str(fenced.broker_id), fenced.why.value).inc()
