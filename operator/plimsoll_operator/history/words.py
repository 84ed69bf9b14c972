"""A record's cause in one of a few words, and whether the change was planned.  Pure.

The words are those of the metrics of ISR shrinks and leader changes: `restart` (nothing committed
asked for it), `roll` (a granted restart), `reassign`, `lag`, `fenced`, `disk`, `preferred`,
`returned`, `unclean`, `unknown`; and `caught-up` for a replica that joined an ISR.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.ids import BrokerId

UNKNOWN = "unknown"
PROPOSED = ("lag", "caught-up")
"""What leaders ask for, by proposing another ISR."""
_PREFIXES = (
    ("recovery", "unclean"),
    ("leadership goes back", "preferred"),
    ("elected after", "returned"),
    ("fenced", "fenced"),
    ("metadata it does not understand", "fenced"),
    ("shutdown", "restart"),
    ("registration", "restart"),
    ("isrshrinklag", "lag"),
    ("isrexpand", "caught-up"),
    ("storage", "disk"),
    ("reassignment", "reassign"),
)


class CommitImages(NamedTuple):
    """Before and after a commit."""

    old: ClusterImage
    new: ClusterImage


class Why(NamedTuple):
    """`planned`: what is committed covers it."""

    word: str
    planned: bool


def why(
    images: CommitImages,
    partition: Partition | None,
    gone: Iterable[BrokerId],
    cause: str,
) -> Why:
    """`gone`: who left the ISR, or led and leads no more."""
    told = word_of(cause)
    if partition is None or told in ("unclean", "preferred", "returned"):
        return Why(told, planned=False)
    covered = [_covered(images, partition, broker) for broker in gone]
    if not covered or None in covered:
        return Why(told, planned=False)
    return Why(covered[0] or told, planned=True)


def word_of(cause: str) -> str:
    """By the record's own words alone."""
    text = cause.lower()
    return next((word for prefix, word in _PREFIXES if text.startswith(prefix)), UNKNOWN)


def _covered(images: CommitImages, partition: Partition, broker: BrokerId) -> str | None:
    """What is committed of this broker, or of this partition, that covers its leaving."""
    for image in images:
        if broker in image.grants:
            return "roll"
        removed = bool(image.members) and broker not in image.members
        if removed or broker in image.leaving or broker not in partition.target:
            return "reassign"
    return None
