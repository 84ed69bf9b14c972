"""Retention: which segments may be removed: the oldest, as a whole, never above the high watermark.

Age removes the newest segment, too, but not while it is written to: Kafka checks every five
minutes, and clients rely on reading back recent writes with old timestamps. Called by `Log`, which
drops them. Source: Kafka's retention.ms and retention.bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import Segment


class Due(NamedTuple):
    """Records below `offset` may go. `active`: that is the whole log, including the last
    segment."""

    offset: int
    active: bool


def due(
    segments: Sequence[Segment],
    log_end_offset: int,
    config: LogConfig,
    now_ms: int | None,
    high_watermark: int,
) -> Due:
    """Return what is too old or too much. `now_ms` None: the time is unknown, and nothing is
    old."""
    offset = segments[0].base_offset
    if not config.delete:
        return Due(offset, active=False)
    size = sum(segment.size for segment in segments)
    ends = [following.base_offset for _, following in pairwise(segments)] + [log_end_offset]
    for segment, end in zip(segments, ends, strict=True):
        active = segment is segments[-1]
        surplus = config.retention_bytes is not None and (
            not active and size - segment.size >= config.retention_bytes
        )
        if end > high_watermark or not segment.size:
            break
        if not surplus and not _expired(segment, config.retention_ms, now_ms):
            break
        if active and _written_within(segment, config.active_kept_ms, now_ms):
            break
        size -= segment.size
        offset = end
        if active:
            return Due(offset, active=True)
    return Due(offset, active=False)


def note_written(segments: Sequence[Segment], since_ms: int) -> None:
    """Files written since the last check, at `since_ms`, are no older than that: records without a
    time age by their file's time, which may come from a wrong clock."""
    for segment in reversed(segments):
        if not segment.note_written(since_ms):
            break


def _written_within(segment: Segment, kept_ms: int, now_ms: int | None) -> bool:
    """Return True if it was written recently. A file time in the future tells nothing: the clock
    was set back."""
    return now_ms is not None and 0 <= now_ms - segment.modified_ms() < kept_ms


def _expired(segment: Segment, retention_ms: int | None, now_ms: int | None) -> bool:
    if retention_ms is None or now_ms is None:
        return False
    newest = segment.max_timestamp
    if newest < 0 or newest > now_ms:
        # No time, or one in the future (in microseconds, for example), which would hold up all
        # later records for ever: use the file's time.
        newest = segment.modified_ms()
    return now_ms - newest > retention_ms
