"""Which offset belongs to a time: what ListOffsets by timestamp asks of a log.

Called by `Log`.  A search comes in steps: where to look is found on the event loop, in indexes;
looking there reads batches, which may be many and large, and is a thread's.  Records of batches
that are not compressed, or with gzip, are looked at one by one up to the first that answers, as
long as `OpenedBytes` allows; any other batch is answered from its header with its first offset:
earlier than need be, never later, and never below the log's start.  Source: the protocol's
ListOffsets rules.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial

from plimsoll_broker.storage.segment import Segment
from plimsoll_wire.batches import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from plimsoll_wire.records import BadRecords, iter_times, record_time

Found = tuple[int, int]
"""Timestamp and offset."""

Step = Callable[[], Found | None]
"""Reads batches: for a thread.  Raises BatchError where a log is damaged, or was cut meanwhile."""

OPENED_BYTES_MAX = 16 * 1024 * 1024
"""By one request, over all its partitions."""

_UNCOMPRESSED = 0
_GZIP = 1


class OpenedBytes:
    """How many bytes of records one request may still have looked at."""

    __slots__ = ("left",)

    def __init__(self, left: int = OPENED_BYTES_MAX) -> None:
        self.left = left


def first_at_or_after(
    segments: list[Segment], log_start_offset: int, timestamp: int, opened: OpenedBytes
) -> Iterator[Step]:
    """The first record whose time is at least `timestamp` is what the first step finds that finds
    one; no step does: all are older.  `segments` may lose some between the steps."""
    for segment in _left(segments, log_start_offset):
        if segment.max_timestamp < timestamp or not segment.size or segment not in segments:
            continue
        start = max(segment.offset_before(timestamp), log_start_offset)
        position = segment.position_for(start)
        yield partial(_first, segment, position, timestamp, log_start_offset, opened)


def _first(
    segment: Segment, position: int, timestamp: int, offset: int, opened: OpenedBytes
) -> Found | None:
    """The first record whose time and offset are at least these."""
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp or header.last_offset < offset:
            continue
        for found in _times(segment, at, header, offset, opened):
            if found[0] >= timestamp and found[1] >= offset:
                return found
    return None


def newest(segments: list[Segment], log_start_offset: int, opened: OpenedBytes) -> Iterator[Step]:
    """The record with the greatest time, the first of several; no step finds one: none has a
    time.  `segments` may lose some between the steps."""
    left = _left(segments, log_start_offset)
    with_times = [segment for segment in left if segment.size and segment.max_timestamp >= 0]
    with_times.sort(key=lambda each: (-each.max_timestamp, each.base_offset))
    if with_times and with_times[0].base_offset < log_start_offset:
        # What has its greatest time may be deleted; it is the only one of which a part is.
        begun = with_times.pop(0)
        others_ms = with_times[0].max_timestamp if with_times else 0
        start = begun.position_for(log_start_offset)
        yield partial(_newest_left, begun, start, log_start_offset, others_ms, opened)
    segment = next((one for one in with_times if one in segments), None)
    if segment is not None:
        offset = segment.max_timestamp_offset
        position = segment.position_for(offset)
        yield partial(_newest, segment, position, offset, log_start_offset, opened)


def _left(segments: list[Segment], log_start_offset: int) -> list[Segment]:
    """Those of which something is left: files of what was deleted may stay for a while."""
    begun = bisect_right(segments, log_start_offset, key=lambda each: each.base_offset)
    return segments[max(begun - 1, 0) :]


def _newest_left(
    segment: Segment, position: int, start: int, others_ms: int, opened: OpenedBytes
) -> Found | None:
    """The newest record from `start` on, if no other segment has one of a greater time."""
    best: Found | None = None
    for at, header in segment.headers(position):
        newest_ms = header.max_timestamp
        if header.last_offset < start or newest_ms < others_ms:
            continue
        if best is not None and newest_ms <= best[0]:
            continue
        found = _newest_of(segment, at, header, start, opened)
        if found is not None and found[0] >= (others_ms if best is None else best[0] + 1):
            best = found
            if newest_ms >= segment.max_timestamp and found[0] >= newest_ms:
                break  # there is none greater
    return best


def _newest(
    segment: Segment, position: int, offset: int, log_start_offset: int, opened: OpenedBytes
) -> Found | None:
    """`offset`: one of the batch that has the greatest time."""
    for at, header in segment.headers(position):
        if header.last_offset < offset:
            continue
        return _newest_of(segment, at, header, log_start_offset, opened)
    return None


def _newest_of(
    segment: Segment, at: int, header: BatchHeader, start: int, opened: OpenedBytes
) -> Found | None:
    """A batch's newest record from `start` on; None: it has none there."""
    best: Found | None = None
    for found in _times(segment, at, header, start, opened):
        if found[1] >= start and (best is None or found[0] > best[0]):
            best = found
            if found[0] >= header.max_timestamp:
                break  # there is none greater
    return best


def _times(
    segment: Segment, at: int, header: BatchHeader, start: int, opened: OpenedBytes
) -> Iterator[Found]:
    """Timestamp and offset of every record, as far as the batch tells: of one that is answered from
    its header the first offset, or `start`, where the log begins within it."""
    base = header.base_offset
    first = max(base, start)
    if header.attributes & LOG_APPEND_TIME:
        yield header.max_timestamp, first
        return
    records = _opened(segment, at, header, opened)
    if records is not None:
        try:
            for delta, offset_delta in iter_times(records, header.count):
                if not 0 <= offset_delta <= header.last_offset_delta:
                    raise BadRecords("a record is outside of its batch")
                yield record_time(header.base_timestamp, delta), base + offset_delta
            return
        except BadRecords:
            pass  # what is left to tell is the header's
    if header.delete_horizon_ms is None:
        yield header.base_timestamp, first
    if header.delete_horizon_ms is not None or header.max_timestamp > header.base_timestamp:
        yield header.max_timestamp, first


def _opened(segment: Segment, at: int, header: BatchHeader, opened: OpenedBytes) -> bytes | None:
    """The batch's records, or None when they are compressed in a way we do not open, or too many.

    What is left to open is less afterwards by what was opened, and by what was tried in vain.
    """
    size = header.length - HEADER_SIZE
    if header.codec not in (_UNCOMPRESSED, _GZIP) or size > opened.left:
        return None
    data = segment.file.pread(size, at + HEADER_SIZE)
    if header.codec == _GZIP:
        unpacking = zlib.decompressobj(wbits=31)
        try:
            data = unpacking.decompress(data, opened.left + 1)
        except zlib.error:
            opened.left -= size
            return None
        if len(data) > opened.left:
            opened.left = 0
            return None
    opened.left -= len(data)
    return data
