"""Reads the batches of one sealed segment, by its file alone.

Called by a round of compaction, which may run in a process of its own: it touches no index and
changes nothing.  A segment that is cut or removed meanwhile is whatever it is; the round's result
is not used then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from plimsoll_broker.storage.cleaner.newest_keys import BatchKeys
from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.segment import file_name
from plimsoll_wire.batches import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BadBatch,
    BatchError,
    BatchHeader,
    check_crc,
    iter_headers,
    peek_header,
)
from plimsoll_wire.compression import opened
from plimsoll_wire.keyed_records import SHORT_KEY_BYTES, KeyedRecord, iter_keyed, plain_keys
from plimsoll_wire.records import BadRecords

READ_BYTES = 2**20
OPENED_BYTES_MAX = 64 * 2**20
"""Of one compressed batch; a client's opens to half of that at most."""

_FIELDS = struct.Struct(">qiib6xi34x")
"""Base offset, length, leader epoch, magic and last offset delta."""


class SegmentRange(NamedTuple):
    """Where a segment begins, and where the next one does."""

    base_offset: int
    end_offset: int


class _Place(NamedTuple):
    """Where the batches so far end, and the leader epoch of the last one."""

    next_offset: int
    leader_epoch: int


class Chunk(NamedTuple):
    """Whole batches that lie at `position` of a segment's file; each time it is read they are the
    same."""

    position: int
    data: bytes

    def headers(self) -> list[BatchHeader]:
        return list(iter_headers(self.data))


def open_segment(disk: Disk, directory: Path, base_offset: int) -> DiskFile:
    return disk.open(directory / file_name(base_offset, ".log"), make=False)


def chunks(file: DiskFile, extent: SegmentRange, used: Callable[[int], None]) -> Iterator[Chunk]:
    """All of a segment, about a mebibyte at a time, every batch as its producer sealed it, in its
    place; raises BatchError at the first that is not.  `used` is told of every read."""
    position, size = 0, file.size()
    place = _Place(extent.base_offset, -1)
    while position < size:
        data = file.pread(READ_BYTES, position)
        length = peek_header(data).length
        if position + length > size:
            raise BatchError(BadBatch.TORN, position)
        if length > len(data):
            data = file.pread(length, position)
        used(len(data))
        end, place = _checked(data, place, extent.end_offset, position)
        if not end:
            raise BatchError(BadBatch.TORN, position)
        yield Chunk(position, data[:end])
        position += end
    if place.next_offset != extent.end_offset:
        raise BatchError(BadBatch.TORN, position)


def _checked(data: bytes, place: _Place, end_offset: int, position: int) -> tuple[int, _Place]:
    """How much of it is whole batches, which come behind `place`; and the place behind them."""
    next_offset, leader_epoch = place
    at, size = 0, len(data)
    view, unpack = memoryview(data), _FIELDS.unpack_from
    while at + HEADER_SIZE <= size:
        base, length, epoch, magic, last_delta = unpack(data, at)
        length += LENGTH_END
        if at + length > size:
            break
        if length < HEADER_SIZE or magic != MAGIC:
            peek_header(data, at)  # which says what is wrong
        if not next_offset <= base <= base + last_delta < end_offset:
            raise BatchError(BadBatch.PLACE, position + at)
        if epoch < leader_epoch:
            raise BatchError(BadBatch.EPOCH, position + at)
        if not check_crc(view, at, length):
            raise BatchError(BadBatch.CRC, position + at)
        next_offset, leader_epoch = base + last_delta + 1, epoch
        at += length
    return at, _Place(next_offset, leader_epoch)


def read_again(file: DiskFile, position: int, size: int, used: Callable[[int], None]) -> Chunk:
    """A chunk that was found to be good; it raises BatchError if it is shorter now."""
    data = file.pread(size, position)
    used(len(data))
    return Chunk(position, data)


def opened_records(header: BatchHeader, batch: bytes) -> bytes | None:
    """A batch's records; None: they cannot be opened, or are a coordinator's: such a batch
    supersedes nothing, and stays as it is."""
    if header.is_control or not header.count:
        return None
    try:
        return opened(header.codec, batch[HEADER_SIZE:], OPENED_BYTES_MAX)
    except BadRecords:
        return None


def keyed(header: BatchHeader, records: bytes) -> list[KeyedRecord] | None:
    """Where each of a batch's records is.  None: they cannot be told apart, as if not opened."""
    try:
        return list(iter_keyed(records, header.count))
    except BadRecords:
        return None


def batch_keys(header: BatchHeader, records: bytes) -> BatchKeys | None:
    """None: as `keyed`."""
    plain = plain_keys(records, header.count)
    if plain is not None:
        return BatchKeys(*plain)
    found = keyed(header, records)
    if found is None:
        return None
    keys = [each.key for each in found]
    tombstones = any(each.tombstone and each.key is not None for each in found)
    long = any(key is not None and len(key) > SHORT_KEY_BYTES for key in keys)
    return BatchKeys(keys, tombstones, long)
