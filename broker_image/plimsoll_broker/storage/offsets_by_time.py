"""Finds the offset of a timestamp, for ListOffsets.

Called by `Log`. A search goes in steps: the event loop finds the position in indexes, and a thread
reads a bounded number of batches there, so that a large log does not hold up others. Answers are
exact in every codec, since readers use them as bounds of a window. One batch is decompressed at a
time, to at most `OPENED_BYTES_MAX`; a batch that cannot be decompressed is an error (BatchError),
never a guess. Source: docs/protocol.md 5.5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from plimsoll_broker.storage.disk import DiskFile
from plimsoll_broker.storage.segment import Segment
from plimsoll_wire.batches import HEADER_SIZE, LOG_APPEND_TIME, BadBatch, BatchError, BatchHeader
from plimsoll_wire.compression import OPENED_BYTES_MAX, opened
from plimsoll_wire.records import BadRecords, iter_times, record_time

Found = tuple[int, int]
"""Timestamp and offset of a record."""

Step = Callable[[], Found | None]
"""Reads batches, in a thread, and returns timestamp and offset of a record or None. Raises
BatchError if the log is damaged, or was truncated meanwhile."""


class _Reading(NamedTuple):
    """A segment and its open file, for a step that reads in a thread. The file stays readable if
    the segment is removed meanwhile."""

    segment: Segment
    file: DiskFile

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        return self.segment.headers(position, self.file)


RECORDS_IN_STEP = 100_000
"""The most records visited in one step, which take some 50 ms of a thread. A single batch with more
is not split."""
OPENING_AS_RECORDS = 10_000
"""The cost of decompressing a batch, as a number of records visited."""
HEADER_AS_RECORDS = 20
"""The cost of reading a header, as a number of records visited."""


class _SegmentWalk:
    """The progress of a search through one segment; the next step continues at `position`. `best`:
    the newest record so far. `ended`: True if the segment has been read to its end."""

    __slots__ = ("best", "ended", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.ended = False
        self.best: Found | None = None


def first_at_or_after(
    segments: list[Segment], log_start_offset: int, timestamp: int
) -> Iterator[Step]:
    """Yield steps that search the first record with a timestamp of at least `timestamp`. The first
    result of a step is the answer. If no step has one, all records are older. Segments may be
    removed from `segments` between the steps."""
    for segment in _left(segments, log_start_offset):
        if segment.max_timestamp < timestamp or not segment.size or segment not in segments:
            continue
        start = max(segment.offset_before(timestamp), log_start_offset)
        walk = _SegmentWalk(segment.position_for(start))
        while not walk.ended and segment in segments:
            yield partial(
                _first, _Reading(segment, segment.file), walk, timestamp, log_start_offset
            )


def _first(reading: _Reading, walk: _SegmentWalk, timestamp: int, offset: int) -> Found | None:
    """Return timestamp and offset of the first record, from the position of `walk` on, with at
    least this timestamp and offset. Return None if this step has found none; then the walk is at
    the next position, or has ended."""
    left = RECORDS_IN_STEP
    for at, header in reading.headers(walk.position):
        if left <= 0:
            walk.position = at
            return None
        left -= HEADER_AS_RECORDS
        if header.max_timestamp < timestamp or header.last_offset < offset:
            continue
        left -= OPENING_AS_RECORDS + header.count
        for found in _times(reading, at, header, offset):
            if found[0] >= timestamp and found[1] >= offset:
                return found
    walk.ended = True
    return None


def newest(segments: list[Segment], log_start_offset: int) -> Iterator[Step]:
    """Yield steps that search the record with the greatest timestamp, and the first of several such
    records. The first result of a step is the answer. If no step has one, no record has a
    timestamp. Segments may be removed from `segments` between the steps."""
    left = _left(segments, log_start_offset)
    with_times = [segment for segment in left if segment.size and segment.max_timestamp >= 0]
    with_times.sort(key=lambda each: (-each.max_timestamp, each.base_offset))
    if with_times and with_times[0].base_offset < log_start_offset:
        # The record with its greatest time may be deleted; only this segment may be deleted in
        # part.
        begun = with_times.pop(0)
        others_ms = with_times[0].max_timestamp if with_times else 0
        walk = _SegmentWalk(begun.position_for(log_start_offset))
        while not walk.ended and begun in segments:
            reading = _Reading(begun, begun.file)
            yield partial(_newest_left, reading, walk, log_start_offset, others_ms)
    segment = next((one for one in with_times if one in segments), None)
    if segment is not None:
        offset = segment.max_timestamp_offset
        position = segment.position_for(offset)
        yield partial(_newest, _Reading(segment, segment.file), position, offset, log_start_offset)


def _left(segments: list[Segment], log_start_offset: int) -> list[Segment]:
    """Return the segments from the one that holds the log start on. Earlier segments may be in the
    list for a while, until their files are removed."""
    begun = bisect_right(segments, log_start_offset, key=lambda each: each.base_offset)
    return segments[max(begun - 1, 0) :]


def _newest_left(reading: _Reading, walk: _SegmentWalk, start: int, others_ms: int) -> Found | None:
    """Return the newest record of a segment from offset `start` on, if its timestamp is at least
    `others_ms`, the greatest of the other segments. Return None if there is none, or if the walk
    has not ended: then the next step continues it."""
    best, left = walk.best, RECORDS_IN_STEP
    for at, header in reading.headers(walk.position):
        if left <= 0:
            walk.position, walk.best = at, best
            return None
        left -= HEADER_AS_RECORDS
        newest_ms = header.max_timestamp
        if header.last_offset < start or newest_ms < others_ms:
            continue
        if best is not None and newest_ms <= best[0]:
            continue
        left -= OPENING_AS_RECORDS + header.count
        found = _newest_of(reading, at, header, start)
        if found is not None and found[0] >= (others_ms if best is None else best[0] + 1):
            best = found
            if newest_ms >= reading.segment.max_timestamp and found[0] >= newest_ms:
                break  # there is none greater
    walk.ended = True
    return best


def _newest(reading: _Reading, position: int, offset: int, log_start_offset: int) -> Found | None:
    """Return the newest record of the batch at `offset`, the batch with the segment's greatest
    timestamp. Return None if the log start lies behind that record."""
    for at, header in reading.headers(position):
        if header.last_offset < offset:
            continue
        return _newest_of(reading, at, header, log_start_offset)
    return None


def _newest_of(reading: _Reading, at: int, header: BatchHeader, start: int) -> Found | None:
    """Return timestamp and offset of a batch's newest record from offset `start` on, or None if
    there is no such record."""
    best: Found | None = None
    for found in _times(reading, at, header, start):
        if found[1] >= start and (best is None or found[0] > best[0]):
            best = found
            if found[0] >= header.max_timestamp:
                break  # there is none greater
    return best


def _times(reading: _Reading, at: int, header: BatchHeader, start: int) -> Iterator[Found]:
    """Yield timestamp and offset of every record of a batch.

    With LogAppendTime all records of a batch have its timestamp, so only the first one at or above
    `start` is yielded. Raise BatchError if the records cannot be decompressed.
    """
    base = header.base_offset
    if not header.count:
        return  # the cleaner keeps such a batch for its producer's sequence
    if header.attributes & LOG_APPEND_TIME:
        yield header.max_timestamp, max(base, start)
        return
    data = reading.file.pread(header.length - HEADER_SIZE, at + HEADER_SIZE)
    try:
        records = opened(header.codec, data, OPENED_BYTES_MAX)
        for delta, offset_delta in iter_times(records, header.count):
            if not 0 <= offset_delta <= header.last_offset_delta:
                raise BadRecords("a record has an offset outside the offsets of its batch")
            yield record_time(header.base_timestamp, delta), base + offset_delta
    except BadRecords as error:
        raise BatchError(BadBatch.RECORDS, at) from error
