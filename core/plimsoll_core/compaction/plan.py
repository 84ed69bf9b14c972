"""Decides which log is cleaned next, how far, and which of its segments are merged.

Called by the broker's cleaner, which describes the logs and carries the plans out. Cleaning never
reaches the active segment, nor records that are uncommitted or not yet on this disk: a record that
may still be truncated must not supersede another. Source: Kafka's LogCleanerManager;
docs/protocol.md §10.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

GROUP_MAX = 64
"""Most segments that are merged into one at a time: their files are swapped in one turn of the
event loop."""
OFFSETS_MAX = 2**31 - 1
"""Greatest distance of a record from its segment's base offset: the index stores it in four
bytes."""


class SealedSegment(NamedTuple):
    """A segment that is not appended to any more: offsets in [base_offset, end_offset).

    `oldest_ms` and `newest_ms`: the times of its first batch and its newest record.
    """

    base_offset: int
    end_offset: int
    size: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """A topic's configs on compaction; `lag_max_ms` None: no record has to be cleaned for its
    age."""

    dirty_ratio_min: float = 0.5
    lag_min_ms: int = 0
    lag_max_ms: int | None = None
    delete_retention_ms: int = 24 * 3600 * 1000


class CleaningPlan(NamedTuple):
    """A range to clean: [first_dirty, end). Earlier segments are read again to remove records
    that the range supersedes. `dirty_bytes`: bytes that were never cleaned; `dirty_ratio`: their
    part of all bytes to be read; `overdue`: True if a record has waited longer than
    max.compaction.lag.ms."""

    first_dirty: int
    end: int
    dirty_ratio: float
    overdue: bool
    dirty_bytes: int = 0


def plan(
    segments: Sequence[SealedSegment],
    first_dirty: int,
    stable_end: int,
    limits: CompactionLimits,
    now_ms: int | None,
) -> CleaningPlan | None:
    """Return how far the log should be cleaned now, or None.

    `segments`: the sealed ones, oldest first. `first_dirty`: the end of the cleaned part.
    `stable_end`: everything below is committed (and, with transactions, decided), and on the disk.
    `now_ms` None: the wall clock is not trusted, so nothing is old.
    """
    dirty: list[SealedSegment] = []
    for segment in segments:
        if segment.end_offset <= first_dirty:
            continue
        if segment.end_offset > stable_end or _too_young(segment, limits.lag_min_ms, now_ms):
            break
        dirty.append(segment)
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(each.size for each in segments if each.end_offset <= first_dirty)
    ratio = dirty_bytes / max(dirty_bytes + clean_bytes, 1)
    overdue = (
        limits.lag_max_ms is not None
        and now_ms is not None
        and now_ms - min(each.oldest_ms for each in dirty) > limits.lag_max_ms
    )
    if ratio <= limits.dirty_ratio_min and not overdue:
        return None
    return CleaningPlan(first_dirty, dirty[-1].end_offset, ratio, overdue, dirty_bytes)


def _too_young(segment: SealedSegment, lag_min_ms: int, now_ms: int | None) -> bool:
    if not lag_min_ms:
        return False
    return now_ms is None or segment.newest_ms > now_ms - lag_min_ms


def urgency(plan: CleaningPlan, *, internal: bool) -> tuple[bool, bool, float]:
    """Return the sort key of a log; the greatest is cleaned first. Internal topics come first,
    since a coordinator loads all of them, then overdue logs, then the dirtiest."""
    return internal, plan.overdue, plan.dirty_ratio


def groups(
    segments: Iterable[SealedSegment], end: int, segment_bytes: int
) -> list[list[SealedSegment]]:
    """Return runs of neighbouring segments below `end`, each to be merged into one segment. A run
    has at most `GROUP_MAX` segments and at most one segment's bytes."""
    found: list[list[SealedSegment]] = []
    size = 0
    for segment in segments:
        if segment.base_offset >= end:
            break
        size += segment.size
        group = found[-1] if found else []
        too_large = size > segment_bytes or len(group) == GROUP_MAX
        if not group or too_large or segment.end_offset - group[0].base_offset > OFFSETS_MAX:
            found.append([])
            size = segment.size
        found[-1].append(segment)
    return found
