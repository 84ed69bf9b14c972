"""Which segments of a log retention lets go: the oldest ones, whole, never above what is committed.

Age takes the newest segment, too, but not while it is written to: Kafka looks every five minutes,
and clients rely on reading back what they have just written with times of long ago.

Called by `Log`, which drops them.  Source: Kafka's retention.ms and retention.bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import Segment


class Due(NamedTuple):
    """Everything below `offset` may go; `active`: that is the whole log, the last segment too."""

    offset: int
    active: bool


def due(
    segments: Sequence[Segment],
    log_end_offset: int,
    config: LogConfig,
    now_ms: int | None,
    high_watermark: int,
) -> Due:
    """What is too old or too much; `now_ms` None: the time is not known, so nothing is old."""
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
    """What was appended since the last look at its age, at `since_ms`, is no older than that: files
    whose records have no time are looked at by their own, whatever clock gave it."""
    for segment in reversed(segments):
        if not segment.note_written(since_ms):
            break


def _written_within(segment: Segment, kept_ms: int, now_ms: int | None) -> bool:
    """A file of the future tells nothing: the clock was set back."""
    return now_ms is not None and 0 <= now_ms - segment.modified_ms() < kept_ms


def _expired(segment: Segment, retention_ms: int | None, now_ms: int | None) -> bool:
    if retention_ms is None or now_ms is None:
        return False
    newest = segment.max_timestamp
    if newest < 0 or newest > now_ms:
        # No time, or one of the future (a record in microseconds, say), which would hold up all
        # that follows for ever: as old as the file, then.
        newest = segment.modified_ms()
    return now_ms - newest > retention_ms
