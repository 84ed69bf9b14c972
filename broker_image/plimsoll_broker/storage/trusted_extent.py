"""Finds the extent up to which a segment is as it was written; checked at start before a file is
trusted.

Called by recovery. Indexes are hints: if they contradict the log, all of it is read and they are
rebuilt.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_broker.storage.segment import Segment, names
from plimsoll_wire.batches import HEADER_SIZE, BadBatch, BatchError, BatchHeader, peek_header


class Extent(NamedTuple):
    """The segment is valid up to this position, where this offset would follow.

    `leader_epoch`: of the last batch. `reindexed`: the indexes were rebuilt. `error`: the fault of
    the batch there; None: the file ends there.
    """

    position: int
    next_offset: int
    leader_epoch: int = -1
    reindexed: bool = False
    error: BatchError | None = None


def verify(segment: Segment, *, sealed: bool) -> Extent:
    """Return the extent by the first batch and the ends of the indexes; if these disagree, by the
    whole segment."""
    if segment.indexes_sane():
        try:
            return _ends(segment, sealed=sealed)
        except BatchError:
            pass  # a full read tells which of the two is wrong
    return reindex(segment)


def _ends(segment: Segment, *, sealed: bool) -> Extent:
    base = segment.base_offset
    extent = Extent(0, base)
    if not segment.size:
        return extent
    first = peek_header(segment.file.pread(HEADER_SIZE, 0))
    position, expected = 0, first.last_offset
    if first.base_offset != base and not (segment.holes and first.base_offset > base):
        raise BatchError(BadBatch.PLACE, 0)
    if not _newest_time_is_known(segment):
        raise BatchError(BadBatch.OFFSETS, 0)  # the wrong entry of the other index is dropped now
    if count := len(segment.offset_index):
        relative, position = segment.offset_index[count - 1]
        expected = base + relative
    for at, header in segment.headers(position):
        if at == position and header.last_offset != expected:
            raise BatchError(BadBatch.PLACE, at)
        if header.max_timestamp > segment.max_timestamp:
            if sealed:  # then the time index is complete
                raise BatchError(BadBatch.OFFSETS, at)
            segment.max_timestamp = header.max_timestamp
            segment.max_timestamp_offset = header.last_offset
        extent = Extent(at + header.length, header.next_offset, header.leader_epoch)
    segment.first_timestamp = first.max_timestamp
    return extent


def _newest_time_is_known(segment: Segment) -> bool:
    """Return True if the time index's last entry matches its batch."""
    newest = segment.time_index.last
    if newest is None:
        return not segment.size
    found = segment.find(newest[1])
    return found is not None and names(found[1], *newest)


def reindex(segment: Segment) -> Extent:
    """Read every byte and rebuild the indexes, up to the end of the valid part."""
    segment.reset_indexes()
    extent = Extent(0, segment.base_offset, reindexed=True)
    try:
        for position, header in segment.checked_headers(0, segment.base_offset):
            segment.index(position, header)
            end = position + header.length
            extent = Extent(end, header.next_offset, header.leader_epoch, reindexed=True)
    except BatchError as error:
        return extent._replace(error=error)
    return extent


def resume(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """Trust the indexes below `offset`, where a checkpoint was taken: only headers between their
    last entry and `offset` are read.

    Return the position of the batch that begins at `offset`, and the header of the one before.
    None: the indexes do not lead there; call `reset_indexes` and read everything.
    """
    try:
        return _resume(segment, offset) if segment.indexes_sane() else None
    except BatchError:
        return None


def _resume(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    offsets, times = segment.offset_index, segment.time_index
    if not offsets.grows() or not times.grows():
        return None
    count = offsets.count_until(offset - 1 - segment.base_offset, 0)
    if not count:
        return None
    relative, position = offsets[count - 1]
    offsets.truncate(count)
    times.truncate_to(offset)  # what the checkpoint synced stays as it is
    if not _newest_time_is_known(segment):
        return None
    newest = times.last
    segment.max_timestamp, segment.max_timestamp_offset = newest or (-1, segment.base_offset)
    before: BatchHeader | None = None
    for at, header in segment.headers(position):
        if before is None:
            if header.last_offset != segment.base_offset + relative:
                return None
            segment.bytes_since_index = header.length
        elif header.base_offset >= offset:
            break
        else:
            segment.index(at, header)
        before, position = header, at + header.length
    if before is None or before.next_offset != offset:
        return None
    for _, first in segment.headers():
        segment.first_timestamp = first.max_timestamp
        break
    return position, before
