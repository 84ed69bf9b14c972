"""Metrics that count the effects of committed records on ISRs, leaders and brokers, since the
process started.

The series of every known cluster begin at 0 in every operator process, whether it leads the cluster
or not. Prometheus then sees the first shrink after a failover as an increase. A broker that has
left its cluster has no series.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from msgspec import UNSET
from prometheus_client import CollectorRegistry, Counter

from plimsoll_core.cluster.isr_shrinks import (
    PLANNED,
    Left,
    ShrinkCause,
    cause_of_record,
    covered_by,
)
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.records import BrokerFenced, PartitionsChanged, Record
from plimsoll_core.cluster.state_changes import KINDS as STATE_CHANGES
from plimsoll_core.cluster.state_changes import StateChangeKind
from plimsoll_core.controller.partitions.unclean_recovery import is_loss_certain
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.metric_rows import TABLE


class LeaderChange(Enum):
    """Causes of a leader change: values of a metric label."""

    FENCED = "fenced"
    RESTART = "restart"
    ROLL = "roll"
    REASSIGN = "reassign"
    DISK = "disk"
    LAG = "lag"
    PREFERRED = "preferred"
    RETURNED = "returned"
    UNCLEAN = "unclean"
    UNKNOWN = "unknown"


class Fencing(Enum):
    """Causes of a fencing: values of a metric label."""

    PROOF = "proof"
    SILENCE = "silence"
    OWN_WISH = "own-wish"
    SHUTDOWN = "shutdown"
    UNKNOWN = "unknown"


_LEADER_PREFIXES = (
    ("recovery", LeaderChange.UNCLEAN),
    ("leadership goes back", LeaderChange.PREFERRED),
    ("elected after", LeaderChange.RETURNED),
)
_FENCING_PREFIXES = (
    ("fenced on proof", Fencing.PROOF),
    ("fenced after", Fencing.SILENCE),
    ("fenced at the broker's own request", Fencing.OWN_WISH),
    ("shutdown", Fencing.SHUTDOWN),
)


class FencedBroker(NamedTuple):
    broker_id: BrokerId
    why: Fencing


@dataclass(slots=True, kw_only=True)
class IsrChanges:
    """Changes that some records make to the ISRs of partitions."""

    shrinks: Tally[Left] = field(default_factory=Tally)
    """Number of ISRs that each broker left, by cause. Removed replicas do not count."""
    joined: int = 0
    """Number of replicas that joined an ISR."""


def isr_changes(old: ClusterImage, new: ClusterImage, records: Iterable[Record]) -> IsrChanges:
    """Return the changes that `records` make to ISRs. The records turn the image `old` into
    `new`."""
    current: dict[PartitionKey, tuple[BrokerId, ...]] = {}
    found = IsrChanges()
    for record, key in _changed(records):
        if record.isr is UNSET:
            continue
        partition = old.partitions.get(key)
        before = current.get(key, partition.isr if partition is not None else ())
        current[key] = record.isr
        found.joined += len(set(record.isr) - set(before))
        if partition is None:
            continue
        stay = partition.replicas if record.replicas is UNSET else record.replicas
        told = cause_of_record(record.cause)
        for broker in (set(before) - set(record.isr)) & set(stay):  # a removed replica is no shrink
            covered = covered_by(old, partition, broker) or covered_by(new, partition, broker)
            found.shrinks[Left(broker_id=broker, cause=covered or told)] += 1
    return found


def leader_changes(old: ClusterImage, records: Iterable[Record]) -> Tally[LeaderChange]:
    """Return the numbers of partitions of `old` that get another leader by `records`, by cause. One
    that only loses its leader is not counted."""
    found: Tally[LeaderChange] = Tally()
    for record, key in _changed(records):
        if record.leader is UNSET or record.leader is None:
            continue
        partition = old.partitions.get(key)
        if partition is not None:
            found[_why_led(old, partition, record.cause)] += 1
    return found


def elected_anew(cause: str) -> LeaderChange | None:
    """Return the cause of a leader change that the departure of no broker caused (unclean,
    preferred, or a returned replica). `cause`: the text in the record. Return None for any other
    text."""
    text = cause.lower()
    return next((found for start, found in _LEADER_PREFIXES if text.startswith(start)), None)


def _why_led(old: ClusterImage, partition: Partition, cause: str) -> LeaderChange:
    if (found := elected_anew(cause)) is not None:
        return found
    before = partition.leader
    covered = None if before is None else covered_by(old, partition, before)
    return LeaderChange((covered or cause_of_record(cause)).value)


def fencings(records: Iterable[Record]) -> Iterator[FencedBroker]:
    for record in records:
        if isinstance(record, BrokerFenced):
            text = record.cause.lower()
            words = (word for prefix, word in _FENCING_PREFIXES if text.startswith(prefix))
            yield FencedBroker(record.broker_id, next(words, Fencing.UNKNOWN))


def unclean_elections(records: Iterable[Record]) -> int:
    """Return the number of partitions that get a leader which may lack acknowledged records."""
    return len(partitions_elected(records))


def partitions_elected(records: Iterable[Record]) -> list[PartitionKey]:
    """Return these partitions."""
    return [key for record, key in _changed(records) if is_unclean(record)]


def certain_losses(records: Iterable[Record]) -> int:
    """Return the number of partitions that get a leader which certainly lacks records that another
    replica reported."""
    return sum(
        is_unclean(record) and is_loss_certain(record.cause) for record, _ in _changed(records)
    )


def is_unclean(record: PartitionsChanged) -> bool:
    # Not `record.recovery`: a second recovery before the end of the first does not repeat it.
    return record.cause.lower().startswith("recovery") and record.leader is not UNSET


class _Change(NamedTuple):
    record: PartitionsChanged
    key: PartitionKey


def _changed(records: Iterable[Record]) -> Iterator[_Change]:
    """Yield each partition that the records change, with its record."""
    for record in records:
        if isinstance(record, PartitionsChanged):
            for first, last in record.ranges:
                for index in range(first, last + 1):
                    yield _Change(record, PartitionKey(record.topic_id, index))


SHRINK_SERIES = (
    *((cause.value, "true" if cause in PLANNED else "false") for cause in ShrinkCause),
    # Evictions by the Eviction API (`kubectl drain`), which can be refused.
    (ShrinkCause.EVICTED.value, "true"),
)
"""Label values (cause, planned) of the ISR shrink series of each broker."""


class RequestedChange(NamedTuple):
    """A kind of state change, and the broker that a commit requests it of."""

    broker_id: BrokerId
    kind: StateChangeKind


class CommitCounters:
    """Counters of all clusters in the operator's metrics. `begin` creates the series of a cluster
    and its brokers, and `keep` removes those of clusters and brokers that no longer exist."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._begun: dict[Key, set[BrokerId]] = {}  # brokers with series
        self._shrinks = TABLE.counting("plimsoll_isr_shrinks", registry)
        self._expands = TABLE.counting("plimsoll_isr_expands", registry)
        self._elections = TABLE.counting("plimsoll_leader_elections", registry)
        self._unclean = TABLE.counting("plimsoll_unclean_elections", registry)
        self._fencings = TABLE.counting("plimsoll_fencings", registry)
        self._requested = TABLE.counting("plimsoll_state_changes_requested", registry)

    def begin(self, key: Key, brokers: Iterable[BrokerId]) -> None:
        """Create the series of a cluster and its brokers that do not exist yet, with the value 0: a
        series that first appears with another value shows no increase."""
        if key not in self._begun:
            self._begun[key] = set()
            for counter, labels in self._of_cluster(key):
                counter.labels(*labels)
        for broker in set(brokers) - self._begun[key]:
            self._begun[key].add(broker)
            for counter, labels in self._of_broker(key, broker):
                counter.labels(*labels)

    def keep(self, known: Mapping[Key, frozenset[BrokerId]]) -> None:
        """Create the series of all clusters and brokers in `known`, and remove all others, so that
        no alert fires for a removed cluster."""
        for key, brokers in known.items():
            self.begin(key, brokers)
        for key, begun in list(self._begun.items()):
            for broker in begun - known.get(key, frozenset()):
                begun.discard(broker)
                for counter, labels in self._of_broker(key, broker):
                    counter.remove(*labels)
            if key not in known:
                del self._begun[key]
                for counter, labels in self._of_cluster(key):
                    counter.remove(*labels)

    def _of_cluster(self, key: Key) -> Iterator[tuple[Counter, tuple[str, ...]]]:
        yield from ((self._unclean, key), (self._expands, key))
        yield from ((self._elections, (*key, change.value)) for change in LeaderChange)

    def _of_broker(self, key: Key, broker: BrokerId) -> Iterator[tuple[Counter, tuple[str, ...]]]:
        of_broker = (*key, str(broker))
        yield from ((self._shrinks, (*of_broker, *pair)) for pair in SHRINK_SERIES)
        yield from ((self._fencings, (*of_broker, reason.value)) for reason in Fencing)
        yield from ((self._requested, (*of_broker, kind)) for kind in STATE_CHANGES)

    # --- what happened --------------------------------------------------------------------------

    def left_isrs(self, key: Key, left: Left, count: int, *, asked_for: bool = False) -> None:
        """Count `count` replicas of one broker that left an ISR. `asked_for`: True for an eviction
        by the Eviction API, which counts as planned."""
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
