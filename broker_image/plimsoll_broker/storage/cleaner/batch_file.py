"""Reads the batches of one sealed segment, by its file alone.

Called by a round of compaction, which may run in a process of its own: it touches no index and
changes nothing.  A segment that is cut or removed meanwhile is whatever it is; the round's result
is not used then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.segment import file_name
from plimsoll_wire.batches import (
    HEADER_SIZE,
    BadBatch,
    BatchError,
    BatchHeader,
    check_crc,
    peek_header,
)
from plimsoll_wire.compression import opened
from plimsoll_wire.keyed_records import KeyedRecord, iter_keyed
from plimsoll_wire.records import BadRecords

READ_BYTES = 2**20
OPENED_BYTES_MAX = 64 * 2**20
"""Of one compressed batch; a client's opens to half of that at most."""


class SegmentRange(NamedTuple):
    """Where a segment begins, and where the next one does."""

    base_offset: int
    end_offset: int


def batches(
    disk: Disk, directory: Path, extent: SegmentRange, used: Callable[[int], None]
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch, as its producer sealed it, in its place; raises BatchError at the first that is
    not.  `used` is told of every read."""
    base_offset, end_offset = extent
    next_offset, leader_epoch = base_offset, -1
    file = disk.open(directory / file_name(base_offset, ".log"), make=False)
    size = file.size()
    chunk, start, position = b"", 0, 0
    while position < size:
        if position - start + HEADER_SIZE > len(chunk):
            chunk, start = file.pread(READ_BYTES, position), position
            used(len(chunk))
        header = peek_header(chunk, position - start)
        if position + header.length > size:
            raise BatchError(BadBatch.TORN, position)
        if position - start + header.length > len(chunk):
            chunk, start = file.pread(max(READ_BYTES, header.length), position), position
            used(len(chunk))
        if not next_offset <= header.base_offset <= header.last_offset < end_offset:
            raise BatchError(BadBatch.PLACE, position)
        if header.leader_epoch < leader_epoch:
            raise BatchError(BadBatch.EPOCH, position)
        at = position - start
        if not check_crc(chunk, at, header.length):
            raise BatchError(BadBatch.CRC, position)
        yield header, chunk[at : at + header.length]
        next_offset, leader_epoch = header.next_offset, header.leader_epoch
        position += header.length
    if next_offset != end_offset:
        raise BatchError(BadBatch.TORN, position)


def keyed(header: BatchHeader, batch: bytes) -> tuple[bytes, list[KeyedRecord]] | None:
    """A batch's records, opened, and where each of them is.

    None: they cannot be told apart, or are a coordinator's: such a batch supersedes nothing, and
    stays as it is.
    """
    if header.is_control:
        return None
    try:
        records = opened(header.codec, batch[HEADER_SIZE:], OPENED_BYTES_MAX)
        found = list(iter_keyed(records, header.count))
    except BadRecords:
        return None
    if any(not 0 <= each.offset_delta <= header.last_offset_delta for each in found):
        return None
    return records, found
