"""The rule for rolling a log to its next segment.

Called by `Log` before each append.  Source: Kafka's segment.bytes, segment.ms and
segment.index.bytes.
"""

from __future__ import annotations

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import POSITION_MAX, Segment
from plimsoll_wire.batches import BatchHeader


def is_full(segment: Segment, config: LogConfig, size: int, last: BatchHeader) -> bool:
    """Whether batches of `size` bytes, of which `last` is the last, belong into another one."""
    end = segment.size
    if not end:
        return False
    end += size
    if end > config.segment_bytes or end > POSITION_MAX:
        return True
    if last.base_offset + last.last_offset_delta - segment.base_offset > POSITION_MAX:
        return True
    if len(segment.time_index) >= config.segment_index_bytes // 12:
        return True
    first_ms = segment.first_timestamp
    if first_ms is None or first_ms < 0:
        return False
    return last.max_timestamp - first_ms > config.segment_ms
