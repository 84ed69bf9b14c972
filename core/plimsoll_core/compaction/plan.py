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
"""The most segments that are merged into one at a time: their files are swapped in one turn of the
event loop."""
OFFSETS_MAX = 2**31 - 1
"""The greatest distance of a record from its segment's base offset: the index stores it in four
bytes."""


class SealedSegment(NamedTuple):
    """A segment of a log that is no longer appended to, with the offsets [base_offset, end_offset).

    `size`: in bytes. `oldest_ms`, `newest_ms`: the timestamps of its first batch and of its newest
    record.
    """

    base_offset: int
    end_offset: int
    size: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """A topic's configs on compaction, in this order: `min.cleanable.dirty.ratio`,
    `min.compaction.lag.ms`, `max.compaction.lag.ms` (None if records need not be cleaned because of
    their age), and `delete.retention.ms`."""

    dirty_ratio_min: float = 0.5
    lag_min_ms: int = 0
    lag_max_ms: int | None = None
    delete_retention_ms: int = 24 * 3600 * 1000


class CleaningPlan(NamedTuple):
    """The plan of one round of cleaning: clean the offsets [first_dirty, end), and rewrite earlier
    segments without the records that these supersede. `dirty_bytes`: bytes never cleaned before;
    `dirty_ratio`: their share of all bytes to read; `overdue`: True if a record has waited longer
    than max.compaction.lag.ms."""

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
    """Return the plan of the next round for a log, or None if the log need not be cleaned now.
    `segments`: the sealed ones, oldest first. `first_dirty`: the end of the part cleaned before.
    `stable_end`: every record below it is committed (with transactions, also decided) and on disk.
    `now_ms`: None if the wall clock is not trusted; then no record counts as old."""
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
    """Return a sort key for logs that are due: the log with the greatest key is cleaned first.
    Internal topics come first, since a coordinator loads all of them, then overdue logs, then those
    with the greatest dirty ratio."""
    return internal, plan.overdue, plan.dirty_ratio


def groups(
    segments: Iterable[SealedSegment], end: int, segment_bytes: int
) -> list[list[SealedSegment]]:
    """Return runs of neighbouring segments with base offsets below `end`, each run to be merged
    into one segment. A run has at most `GROUP_MAX` segments, `segment_bytes` bytes and
    `OFFSETS_MAX` offsets; a larger segment is a run of its own."""
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
