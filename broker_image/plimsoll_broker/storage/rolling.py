"""The rule for rolling a log to its next segment.

Called by `Log` before each append.  A segment has files and memory of its own, and whoever
may write to a topic says how far its times are apart, who declares one in a namespace of his own
what its configs are: a log that has many segments begins no small ones.
Source: Kafka's segment.bytes, segment.ms and segment.index.bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import POSITION_MAX, Segment
from plimsoll_wire.batches import BatchHeader

SEGMENTS_MANY = 1_000
SMALL_BYTES = 2**19
"""In a log that has so many segments the last one is not full for its size, its age or its index
before it has so many bytes."""


def is_full(
    segments: Sequence[Segment],
    config: LogConfig,
    size: int,
    last: BatchHeader,
) -> bool:
    """Whether batches of `size` bytes, of which `last` is the last, belong into another segment
    than the last one."""
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
    """By its index or its age."""
    if len(segment.time_index) >= config.segment_index_bytes // 12:
        return True
    first_ms = segment.first_timestamp
    if first_ms is None or first_ms < 0:
        return False
    return last.max_timestamp - first_ms > config.segment_ms
