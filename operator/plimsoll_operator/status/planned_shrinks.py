"""Classifies a record's cause, and tells planned shrinks of an ISR from unplanned ones.  Pure.

Records explain themselves in sentences with numbers in them; metrics and alerts need a small, fixed
set of words.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.ids import BrokerId

_PREFIXES = (
    ("fenced on proof", "fenced"),
    ("fenced after", "fenced"),
    ("fenced at its own wish", "fenced"),
    ("shutdown", "shutdown"),
    ("registration after a clean", "restart"),
    ("registration", "fenced"),
    ("isrshrinklag", "lag"),
    ("isrexpand", "caught-up"),
    ("storage", "storage"),
    ("recovery", "recovery"),
    ("reassignment", "reassignment"),
)
OTHER = "other"
WORDS = tuple(sorted({found for _, found in _PREFIXES} | {OTHER}))


def word(cause: str) -> str:
    """The word for a record's cause."""
    text = cause.lower()
    for prefix, found in _PREFIXES:
        if text.startswith(prefix):
            return found
    return OTHER


def is_planned(image: ClusterImage, partition: Partition, lost: Iterable[BrokerId]) -> bool:
    """Whether what is committed covers that these replicas leave the ISR of `partition`.

    It does when each of them is away by a granted restart, is being emptied, is no member any
    more, or is moved off this partition.  How its process ended says nothing: a node under
    pressure, a preemption, a liveness probe and a hand all send the same SIGTERM.
    """
    return all(
        broker in image.grants
        or broker in image.leaving
        or (image.members and broker not in image.members)
        or broker not in partition.target
        for broker in lost
    )
