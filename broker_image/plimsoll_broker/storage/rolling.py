"""The rule for rolling a log to its next segment.

Called by `Log` before each append. Segments cost files and memory, and clients determine timestamps
and topic configs. So a log with many segments starts no small ones. Source: Kafka's segment.bytes,
segment.ms and segment.index.bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import POSITION_MAX, Segment
from plimsoll_wire.batches import BatchHeader

SEGMENTS_MANY = 1_000
SMALL_BYTES = 2**19
"""In a log with SEGMENTS_MANY segments, the last one is not full by size, age or index below this
many bytes."""


def is_full(
    segments: Sequence[Segment],
    config: LogConfig,
    size: int,
    last: BatchHeader,
) -> bool:
    """Return True if batches of `size` bytes, the last of which is `last`, belong into a new
    segment."""
    segment = segments[-1]
    end = segment.size
    if not end:
        return False
    end += size
    if end > POSITION_MAX:
        return True
    if last.base_offset + last.last_offset_delta - segment.base_offset > POSITION_MAX:
        return True
    if len(segments) >= SEGMENTS_MANY and segment.size < SMALL_BYTES:
        return False
    return end > config.segment_bytes or _is_due(segment, config, last)


def _is_due(segment: Segment, config: LogConfig, last: BatchHeader) -> bool:
    """Return True if the segment is full by its index or its age."""
    if len(segment.time_index) >= config.segment_index_bytes // 12:
        return True
    first_ms = segment.first_timestamp
    if first_ms is None or first_ms < 0:
        return False
    return last.max_timestamp - first_ms > config.segment_ms
