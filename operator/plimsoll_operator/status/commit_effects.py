"""Effects of a batch of committed records on ISRs, leaders and brokers, for counters. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from msgspec import UNSET

from plimsoll_core.cluster.isr_shrinks import Left, cause_of_record, covered_by
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.records import BrokerFenced, PartitionsChanged, Record
from plimsoll_core.controller.partitions.unclean_recovery import is_loss_certain
from plimsoll_core.ids import BrokerId


class LeaderChange(Enum):
    """Cause of a leader change, as a metric label."""

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
    """Cause of a fencing, as a metric label."""

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
    ("fenced at its own wish", Fencing.OWN_WISH),
    ("shutdown", Fencing.SHUTDOWN),
)


class FencedBroker(NamedTuple):
    broker_id: BrokerId
    why: Fencing


@dataclass(slots=True, kw_only=True)
class IsrChanges:
    """Changes of records to the ISRs of all partitions."""

    shrinks: Counter[Left] = field(default_factory=Counter)
    """Number of ISRs each broker left, by cause."""
    joined: int = 0
    """Number of replicas that joined an ISR."""


def isr_changes(old: ClusterImage, new: ClusterImage, records: Iterable[Record]) -> IsrChanges:
    """Return the ISR changes by `records`, which turn `old` into `new`."""
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


def leader_changes(old: ClusterImage, records: Iterable[Record]) -> Counter[LeaderChange]:
    """Count the partitions of `old` that got another leader, by cause."""
    found: Counter[LeaderChange] = Counter()
    for record, key in _changed(records):
        if record.leader is UNSET or record.leader is None:
            continue
        partition = old.partitions.get(key)
        if partition is not None:
            found[_why_led(old, partition, record.cause)] += 1
    return found


def elected_anew(cause: str) -> LeaderChange | None:
    """Return the cause of an election without a departure, by the record's own text. Return None if
    a replica left."""
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
    """Count the partitions on which the new leader may lack acknowledged records."""
    return sum(is_unclean(record) for record, _ in _changed(records))


def certain_losses(records: Iterable[Record]) -> int:
    """Count the partitions on which the new leader certainly lacks records that another replica
    reported."""
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
    """Yield one row per partition of each record."""
    for record in records:
        if isinstance(record, PartitionsChanged):
            for first, last in record.ranges:
                for index in range(first, last + 1):
                    yield _Change(record, PartitionKey(record.topic_id, index))
