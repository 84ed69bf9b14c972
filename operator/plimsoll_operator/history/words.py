"""Classifies the reason of a partition's change into one of a few words, and as planned or not.
Pure.

The words are those of the metrics: `isr_shrinks.ShrinkCause` for a broker that left,
`commit_effects.LeaderChange` for a new leader although no broker left, and `caught-up` for a
replica that joined an ISR. No record names an eviction: it counts as the restart or the fencing
that it caused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plimsoll_core.cluster.isr_shrinks import (
    PLANNED,
    ShrinkCause,
    cause_of_record,
    covered_by,
)
from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.ids import BrokerId
from plimsoll_operator.status.commit_effects import elected_anew

CAUGHT_UP = "caught-up"
PROPOSED = (ShrinkCause.LAG.value, CAUGHT_UP)
"""Changes that leaders request, by proposing another ISR."""


class CommitImages(NamedTuple):
    """The images before and after a commit."""

    old: ClusterImage
    new: ClusterImage


class Why(NamedTuple):
    """`planned`: True if a committed grant or removal covers the change."""

    word: str
    planned: bool


def why(
    images: CommitImages, partition: Partition | None, gone: Iterable[BrokerId], cause: str
) -> Why:
    """Classify a change. `gone`: brokers that left the ISR, or lost the leadership."""
    told = word_of(cause)
    if partition is None or elected_anew(cause) is not None:
        return Why(told, planned=False)
    covered = [_covered(images, partition, broker) for broker in gone]
    if not covered or None in covered:
        return Why(told, planned=False)
    return Why(covered[0].value if covered[0] else told, planned=set(covered) <= PLANNED)


def word_of(cause: str) -> str:
    """Classify by the record's text alone."""
    if cause.lower().startswith("isrexpand"):
        return CAUGHT_UP
    word: str = (elected_anew(cause) or cause_of_record(cause)).value
    return word


def _covered(images: CommitImages, partition: Partition, broker: BrokerId) -> ShrinkCause | None:
    return covered_by(images.old, partition, broker) or covered_by(images.new, partition, broker)
