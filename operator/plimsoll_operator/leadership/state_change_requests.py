"""Counts, by broker, and logs the state changes (become leader, follow, …) that commits request of
brokers.

Called after each commit. The committed record is itself the request: a broker receives it by
reading the metadata log, and reports the completion in its own log and metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import Record
from plimsoll_core.cluster.state_changes import (
    REQUESTED,
    ReachedStage,
    StateChange,
    fields,
    requested,
    sentence,
)
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.commit_counters import CommitCounters, RequestedChange
from plimsoll_process.state_change_lines import StateChangeLines


class StateChangeRequests:
    """Counts and logs the state changes that commits request of the brokers of the LogCluster
    `key`. `now_ms` is the host's monotonic clock."""

    def __init__(self, key: Key, counters: CommitCounters, now_ms: Callable[[], int]) -> None:
        self._key = key
        self._counters = counters
        self._lines = StateChangeLines(now_ms)

    def committed(self, old: ClusterImage, new: ClusterImage, records: Iterable[Record]) -> None:
        """Count the state changes that `records` request of brokers, and log them as far as the
        limit of lines allows. `old` and `new` are the images before and after the records."""
        found: Counter[RequestedChange] = Counter()
        for change in requested(old, new, records):
            found[RequestedChange(change.broker_id, change.kind)] += 1
            if self._lines.room:
                self._tell(old, new, change)
        if found:
            self._counters.requested(self._key, found)

    def _tell(self, old: ClusterImage, new: ClusterImage, change: StateChange) -> None:
        topic = new.topics.get(change.key.topic_id) or old.topics.get(change.key.topic_id)
        name = str(change.key.topic_id) if topic is None else topic.name
        told = ReachedStage(REQUESTED, change, name, new.controller_epoch)
        more = {"namespace": self._key[0], "cluster": self._key[1]}
        self._lines.write(sentence(told, leads=False), fields(told) | more)
