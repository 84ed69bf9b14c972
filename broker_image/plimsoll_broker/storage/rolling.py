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
    if not segment.size:
        return False
    entries_max = config.segment_index_bytes // 12
    return (
        segment.size + size > min(config.segment_bytes, POSITION_MAX)
        or last.last_offset - segment.base_offset > POSITION_MAX
        or len(segment.time_index) >= entries_max
        or _too_old(segment, config, last.max_timestamp)
    )


def _too_old(segment: Segment, config: LogConfig, timestamp: int) -> bool:
    first = segment.first_timestamp
    return first is not None and first >= 0 and timestamp - first > config.segment_ms
