"""Why a partition changed, in one of a few words, and whether that was planned.  Pure.

The words of the metrics: `isr_shrinks.ShrinkCause` for who left, `commit_effects.LeaderChange` for
another leader although nobody left; and `caught-up` for a replica that joined an ISR.  An eviction
is in no record: it counts here as the restart or the fencing that it brought.
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
"""What leaders ask for, by proposing another ISR."""


class CommitImages(NamedTuple):
    """Before and after a commit."""

    old: ClusterImage
    new: ClusterImage


class Why(NamedTuple):
    """`planned`: what is committed covers it."""

    word: str
    planned: bool


def why(
    images: CommitImages, partition: Partition | None, gone: Iterable[BrokerId], cause: str
) -> Why:
    """`gone`: who left the ISR, or led and leads no more."""
    told = word_of(cause)
    if partition is None or elected_anew(cause) is not None:
        return Why(told, planned=False)
    covered = [_covered(images, partition, broker) for broker in gone]
    if not covered or None in covered:
        return Why(told, planned=False)
    return Why(covered[0].value if covered[0] else told, planned=set(covered) <= PLANNED)


def word_of(cause: str) -> str:
    """By the record's own words alone."""
    if cause.lower().startswith("isrexpand"):
        return CAUGHT_UP
    word: str = (elected_anew(cause) or cause_of_record(cause)).value
    return word


def _covered(images: CommitImages, partition: Partition, broker: BrokerId) -> ShrinkCause | None:
    return covered_by(images.old, partition, broker) or covered_by(images.new, partition, broker)
