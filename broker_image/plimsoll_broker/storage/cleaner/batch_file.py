"""Reads the batches of one sealed segment, from its file alone.

Called by a round of compaction, which may run in another process: it uses no index and changes
nothing. If a segment is cut or removed meanwhile, the round's result is not used.
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
"""Bytes of one decompressed batch; a client's batch is at most half as large."""

_FIELDS = struct.Struct(">qiib6xi34x")
"""Base offset, length, leader epoch, magic and last offset delta."""


class SegmentRange(NamedTuple):
    """The base offset of a segment, and of the next one."""

    base_offset: int
    end_offset: int


class _Place(NamedTuple):
    """The end of the batches so far, and the leader epoch of the last one."""

    next_offset: int
    leader_epoch: int


class Chunk(NamedTuple):
    """Whole batches at `position` of a segment's file; every read returns the same ones."""

    position: int
    data: bytes

    def headers(self) -> list[BatchHeader]:
        return list(iter_headers(self.data))


def open_segment(disk: Disk, directory: Path, base_offset: int) -> DiskFile:
    return disk.open(directory / file_name(base_offset, ".log"), make=False)


def chunks(file: DiskFile, extent: SegmentRange, used: Callable[[int], None]) -> Iterator[Chunk]:
    """Yield all batches of a segment, about a mebibyte at a time, checked for CRC and place; raises
    BatchError at the first bad one. `used` is called with the bytes of each read."""
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
    """Return the length of the whole batches in `data` that follow `place`, and the place after
    them."""
    next_offset, leader_epoch = place
    at, size = 0, len(data)
    view, unpack = memoryview(data), _FIELDS.unpack_from
    while at + HEADER_SIZE <= size:
        base, length, epoch, magic, last_delta = unpack(data, at)
        length += LENGTH_END
        if at + length > size:
            break
        if length < HEADER_SIZE or magic != MAGIC:
            peek_header(data, at)  # raises the reason
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
    """Read a verified chunk again; raises BatchError if it is shorter now."""
    data = file.pread(size, position)
    used(len(data))
    return Chunk(position, data)


def opened_records(header: BatchHeader, batch: bytes) -> bytes | None:
    """Return a batch's records, or None if they cannot be decompressed or are control records: such
    a batch supersedes nothing and stays as it is."""
    if header.is_control or not header.count:
        return None
    try:
        return opened(header.codec, batch[HEADER_SIZE:], OPENED_BYTES_MAX)
    except BadRecords:
        return None


def keyed(header: BatchHeader, records: bytes) -> list[KeyedRecord] | None:
    """Return the place of each record, or None if the records cannot be parsed."""
    try:
        return list(iter_keyed(records, header.count))
    except BadRecords:
        return None


def batch_keys(header: BatchHeader, records: bytes) -> BatchKeys | None:
    """Return the keys of a batch, or None as `keyed` does."""
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
