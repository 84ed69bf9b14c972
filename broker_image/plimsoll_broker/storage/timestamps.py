"""Which offset belongs to a time: what ListOffsets by timestamp asks of a log.

Called by `Log`.  Records of uncompressed batches are looked at one by one; a compressed batch is
never opened, so the answer may be its first offset: earlier than need be, never later.  Source: the
protocol's ListOffsets rules.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from plimsoll_broker.storage.segment import Segment
from plimsoll_wire.batches import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from plimsoll_wire.records import BadRecords, iter_times

Found = tuple[int, int]
"""Timestamp and offset."""

_UNCOMPRESSED = 0
_GZIP = 1
_OPENED_BYTES_MAX = 64 * 1024 * 1024


def first_at_or_after(
    segments: Sequence[Segment], log_start_offset: int, timestamp: int
) -> Found | None:
    """The first record whose time is at least `timestamp`; None: all are older."""
    for segment in segments:
        if segment.max_timestamp < timestamp or not segment.size:
            continue
        start = max(segment.time_index.offset_before(timestamp), log_start_offset)
        position = segment.offset_index.position_for(start)
        for at, header in segment.headers(position):
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            for found in _times(segment, at, header):
                if found[0] >= timestamp and found[1] >= log_start_offset:
                    return found
    return None


def newest(segments: Sequence[Segment], log_start_offset: int) -> Found | None:
    """The record with the greatest time, the first of several; None: no record has one."""
    with_times = [segment for segment in segments if segment.size and segment.max_timestamp >= 0]
    if not with_times:
        return None
    segment = max(with_times, key=lambda each: (each.max_timestamp, -each.base_offset))
    located = segment.find(segment.max_timestamp_offset)
    if located is None or located[1].last_offset < log_start_offset:
        return None
    at, header = located
    times = [found for found in _times(segment, at, header) if found[1] >= log_start_offset]
    return max(times, key=lambda found: (found[0], -found[1]), default=None)


def _times(segment: Segment, at: int, header: BatchHeader) -> Iterator[Found]:
    """Timestamp and offset of every record, as far as the batch tells."""
    if header.attributes & LOG_APPEND_TIME:
        yield header.max_timestamp, header.base_offset
        return
    records = _opened(segment, at, header)
    if records is None:
        yield header.base_timestamp, header.base_offset
        if header.max_timestamp > header.base_timestamp:
            yield header.max_timestamp, header.base_offset
        return
    for delta, offset_delta in iter_times(records, header.count):
        yield header.base_timestamp + delta, header.base_offset + offset_delta


def _opened(segment: Segment, at: int, header: BatchHeader) -> bytes | None:
    """The batch's records, or None when they are compressed in a way we do not open."""
    if header.codec not in (_UNCOMPRESSED, _GZIP):
        return None
    data = segment.file.pread(header.length - HEADER_SIZE, at + HEADER_SIZE)
    if header.codec == _GZIP:
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, _OPENED_BYTES_MAX)
        except zlib.error:
            return None
    try:
        for _ in iter_times(data, header.count):
            pass
    except BadRecords:
        return None
    return data
