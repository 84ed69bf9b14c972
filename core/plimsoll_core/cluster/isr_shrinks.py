"""Classifies why a replica left an ISR, and whether that was planned. Pure.

Called for metrics: by the operator, which has the committed records, and by brokers, which have the
images before and after. A record states the cause as a sentence with numbers; metrics and alerts
need a small, fixed set of words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.ids import BrokerId


class ShrinkCause(Enum):
    """The cause of an ISR shrink. Its values are label values of metrics."""

    RESTART = "restart"
    """The broker's process stopped or restarted without a committed request: a crash, a liveness
    probe, or a pod deleted by hand."""
    ROLL = "roll"
    """A committed grant covers the restart of this broker."""
    REASSIGN = "reassign"
    """The broker is drained or no longer a member, or this partition is moved off it."""
    LAG = "lag"
    """The replica was behind its leader for longer than replica.lag.time.max.ms."""
    FENCED = "fenced"
    """The broker's session expired, or its death was proven."""
    EVICTED = "evicted"
    """Kubernetes removed the broker's pod: node pressure, preemption, a taint, or the Eviction
    API."""
    DISK = "disk"
    """The broker cannot write the partition's log: the disk failed."""
    UNKNOWN = "unknown"


PLANNED = frozenset({ShrinkCause.ROLL, ShrinkCause.REASSIGN})
"""The causes that count as planned: a committed restart, drain or move covers them. The removal of
a pod by the Eviction API may be intended too (`kubectl drain`), but only the operator can know
that."""

_PREFIXES = (
    ("fenced", ShrinkCause.FENCED),
    ("metadata it does not understand", ShrinkCause.FENCED),
    ("shutdown", ShrinkCause.RESTART),
    ("registration", ShrinkCause.RESTART),
    ("isrshrinklag", ShrinkCause.LAG),
    ("storage", ShrinkCause.DISK),
    ("reassignment", ShrinkCause.REASSIGN),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A broker that left a partition's ISR, and the cause."""

    broker_id: BrokerId
    cause: ShrinkCause


def cause_of_record(text: str) -> ShrinkCause:
    """Return the cause of a shrink by the beginning of the `cause` text of its record, UNKNOWN for
    any other text."""
    lowered = text.lower()
    return next((c for start, c in _PREFIXES if lowered.startswith(start)), ShrinkCause.UNKNOWN)


def covered_by(
    image: ClusterImage, partition: Partition, broker_id: BrokerId
) -> ShrinkCause | None:
    """Return ROLL if the broker's restart was granted, REASSIGN if the broker is being removed or
    the partition moves off it. Return None if no committed request explains why the broker left the
    ISR.

    The end of the broker's process proves no request: a node under pressure, a preemption, a
    liveness probe and a manual kill all send the same SIGTERM.
    """
    covered = covered_as_broker(image, broker_id)
    if covered is None and broker_id not in partition.target:
        return ShrinkCause.REASSIGN
    return covered


def covered_as_broker(image: ClusterImage, broker_id: BrokerId) -> ShrinkCause | None:
    """Return ROLL if the broker's restart was granted or the cluster hibernates, REASSIGN if the
    broker is drained or no longer a member, None otherwise. Moves of single partitions are not
    considered."""
    if broker_id in image.grants or image.hibernated:
        return ShrinkCause.ROLL
    gone = bool(image.members) and broker_id not in image.members
    return ShrinkCause.REASSIGN if gone or broker_id in image.leaving else None


def seen_in_images(
    old: ClusterImage, new: ClusterImage, before: Partition, after: Partition
) -> Iterator[Left]:
    """Yield the brokers that are in the ISR of `before` and not in that of `after`, with the cause.
    A broker sees only the images `old` and `new`, not the records in between, so the cause may be
    UNKNOWN. A broker that is no replica any more is left out."""
    for broker_id in before.isr:
        if broker_id in after.isr or broker_id not in after.replicas:
            continue
        cause = (
            covered_by(old, before, broker_id)
            or covered_by(new, before, broker_id)
            or _state_tells(old, new, broker_id)
        )
        yield Left(broker_id=broker_id, cause=cause)


def _state_tells(old: ClusterImage, new: ClusterImage, broker_id: BrokerId) -> ShrinkCause:
    before, after = old.brokers.get(broker_id), new.brokers.get(broker_id)
    if after is None:
        return ShrinkCause.UNKNOWN
    if after.shutting_down or (before is not None and before.broker_epoch != after.broker_epoch):
        return ShrinkCause.RESTART
    return ShrinkCause.FENCED if after.fenced else ShrinkCause.UNKNOWN
