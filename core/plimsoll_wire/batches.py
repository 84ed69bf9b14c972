"""Record batches (magic 2) as bytes: read the header, check the CRC, stamp offset and epoch.

Called by the produce path, the followers and the log. This module never decompresses a batch and
never looks at a record: only the 61-byte header is read. Base offset and leader epoch lie outside
the CRC, so a leader stamps them without changing the rest. Source: the protocol's RecordBatch v2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LENGTH_END = 12
"""Position in a batch at which its length field ends. The length counts the bytes after this
position."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_PLACE = struct.Struct(">qiibI2xi")
_STEP = struct.Struct(">qi11xi")
"""Layout of base offset, length and last offset delta, the fields that are needed to go from batch
to batch."""

_CRC_AT = 17
_CRC_FROM = 21
_MAX_TIMESTAMP_AT = 35
_LEADER_EPOCH_AT = 12
_COUNT_AT = 57

MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Bit of the attributes: the base timestamp holds the time from which the batch's tombstones may be
removed (KIP-534)."""
CODEC_MAX = 4


class BadBatch(Enum):
    """The reason why bytes are not a valid batch."""

    TORN = "the record batch is cut off before its end"
    LENGTH = "the length field of the record batch is shorter than a header or longer than allowed"
    MAGIC = "the magic byte of the record batch is not 2, the only supported format"
    CRC = "the CRC of the record batch does not match its content"
    RECORDS = (
        "the records of the batch cannot be decompressed, or are not as many as the batch header "
        "says"
    )
    OFFSETS = (
        "the last offset delta or the record count in the header of the record batch is impossible"
    )
    PLACE = "the base offset of the record batch is not where the batch before it ends"
    EPOCH = "the leader epoch of the record batch is not the one of its place in the log"


class BatchError(Exception):
    """Raised if bytes are not a valid batch. `position`: where the batch should start."""

    def __init__(self, reason: BadBatch, position: int) -> None:
        super().__init__(f"{reason.value} (at byte {position})")
        self.reason = reason
        self.position = position


class Batches:
    """Consecutive whole batches, in one or more buffers, for sending without a copy. `len` is in
    bytes."""

    __slots__ = ("_size", "pieces")

    def __init__(self, pieces: Sequence[Buffer]) -> None:
        self.pieces = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)


class BatchHeader(NamedTuple):
    """The header of a record batch. `length`: the size of the whole batch in bytes, header
    included."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word; `tuple.count` is not used

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the offset after the batch: its last offset plus one. It may be more than base
        offset plus record count, since compaction removes records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the time (milliseconds since 1970) from which the batch's tombstones may be
        removed, or None if no cleaner has set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int | None:
        """Return the last record's sequence, which wraps after 2^31 - 1; None without an idempotent
        producer."""
        if self.base_sequence < 0:
            return None
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


_made: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)
"""Builds a header from a tuple of all fields. It is called for every batch on every broker, and
calling the class with thirteen arguments takes three times as long."""


def placed(header: BatchHeader, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Return the header as it is once the batch is stamped with this base offset and leader
    epoch."""
    return _made((base_offset, header.length, leader_epoch, *header[3:]))


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. Raises BatchError if the batch is not complete in `data`, or
    its header is not valid."""
    header = peek_header(data, position)
    if position + header.length > len(data):
        raise BatchError(BadBatch.TORN, position)
    return header


def peek_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, of which only the header itself must be in `data`, as in a
    scan of a log. Raises BatchError if the header is cut short or not valid.

    The caller has to check that the records follow.
    """
    if position + HEADER_SIZE > len(data):
        raise BatchError(BadBatch.TORN, position)
    fields = _HEADER.unpack_from(data, position)
    length = fields[1] + LENGTH_END
    if length < HEADER_SIZE:
        raise BatchError(BadBatch.LENGTH, position)
    if fields[3] != MAGIC:
        raise BatchError(BadBatch.MAGIC, position)
    if fields[0] < 0 or fields[6] < 0 or fields[12] < 0:
        raise BatchError(BadBatch.OFFSETS, position)
    return _made((fields[0], length, *fields[2:]))


def iter_headers(data: Buffer) -> Iterator[BatchHeader]:
    """Yield the headers of the batches that follow one another in `data`. Raises BatchError at the
    first that is incomplete or invalid."""
    position = 0
    end = len(data)
    while position < end:
        header = parse_header(data, position)
        yield header
        position += header.length


def check_crc(data: Buffer, position: int, length: int) -> bool:
    """Return True if the CRC of the batch at `position`, `length` bytes long, matches its
    contents."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    (stored,) = _CRC.unpack_from(view, position + _CRC_AT)
    return bool(crc32c(view[position + _CRC_FROM : position + length]) == stored)


def is_sealed(data: memoryview, header: BatchHeader) -> bool:
    """Return True if the CRC of the batch at the start of `data` matches its contents; `header` is
    its header."""
    return bool(crc32c(data[_CRC_FROM : header.length]) == header.crc)


def fits_crc(data: Buffer) -> bool:
    """Return True if the CRC in the header of a batch matches all bytes after it. Then at most the
    fields before the CRC are damaged, such as the length."""
    if len(data) < HEADER_SIZE:
        return False
    return check_crc(data, 0, len(data))


def stamp(data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `position`. The CRC does not cover
    them."""
    _BASE_OFFSET.pack_into(data, position, base_offset)
    _LEADER_EPOCH.pack_into(data, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(
    data: bytearray | memoryview, position: int, length: int, timestamp_ms: int
) -> None:
    """Set the timestamp of the batch at `position` to its append time
    (message.timestamp.type=LogAppendTime).

    Attributes, max timestamp and CRC are rewritten. The records' own timestamp deltas stay and are
    ignored by readers.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(data, position + _CRC_FROM)
    _ATTRIBUTES.pack_into(data, position + _CRC_FROM, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(data, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    view = data if isinstance(data, memoryview) else memoryview(data)
    _CRC.pack_into(data, position + _CRC_AT, crc32c(view[position + _CRC_FROM : position + length]))


def whole_batches(data: Buffer, up_to_offset: int, max_bytes: int) -> tuple[int, int]:
    """Return the number of leading bytes of `data` that are whole batches with all offsets below
    `up_to_offset`, within `max_bytes`, and the offset after the last of these batches: (0, -1) if
    there is none.

    `data` starts at a batch and may end inside one. The first batch may exceed `max_bytes`, so that
    a reader always makes progress (KIP-74).
    """
    position = 0
    next_offset = -1
    size = len(data)
    unpack = _STEP.unpack_from
    while position + HEADER_SIZE <= size:
        base, length, last_delta = unpack(data, position)
        end = position + length + LENGTH_END
        if end > size or base + last_delta >= up_to_offset or length < HEADER_SIZE - LENGTH_END:
            break
        if end > max_bytes and position > 0:
            break
        position = end
        next_offset = base + last_delta + 1
    return position, next_offset


def end_of(data: Buffer | Batches) -> int:
    """Return the offset after the last batch in `data`, which holds one or more whole batches."""
    if isinstance(data, Batches):
        data = data.pieces[-1]
    position, end = 0, -1
    while position < len(data):
        base, length, last_delta = _STEP.unpack_from(data, position)
        position += length + LENGTH_END
        end = base + last_delta + 1
    return end


def end_of_empty(data: Buffer) -> int | None:
    """Return the offset after the last batch in `data`, which holds whole batches, if all of them
    are without records. Return None if a batch has records, or `data` is empty."""
    position, end = 0, None
    while position < len(data):
        if any(data[position + _COUNT_AT : position + HEADER_SIZE]):
            return None
        base, length, last_delta = _STEP.unpack_from(data, position)
        position += length + LENGTH_END
        end = base + last_delta + 1
    return end


def check_places(
    data: Buffer,
    base_offset: int,
    epoch_at: Callable[[int], int | None],
    position: int,
    *,
    holes: bool,
) -> None:
    """Check that whole batches read from a log are those that were written there. Raises
    BatchError. Each batch must begin at the offset where the previous one ends, the first at
    `base_offset`; it must have the leader epoch that `epoch_at` returns for its offset, and a
    matching CRC. `holes`: True if offsets between batches may be unused. `position`: byte position
    of the first batch in its file, to which the error's position is relative."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    unpack, crc_of = _PLACE.unpack_from, crc32c
    at, size, term = 0, len(view), -1
    while at < size:
        base, length, epoch, _, crc, last_delta = unpack(view, at)
        end = at + length + LENGTH_END
        if base != base_offset and not (holes and base > base_offset):
            raise BatchError(BadBatch.PLACE, position + at)
        base_offset = base + last_delta + 1
        if epoch != term and epoch != (term := epoch_at(base_offset - 1) or 0):
            raise BatchError(BadBatch.EPOCH, position + at)
        if crc_of(view[at + _CRC_FROM : end]) != crc:
            raise BatchError(BadBatch.CRC, position + at)
        at = end


def seal(header: BatchHeader, records: Buffer) -> bytes:
    """Build a whole batch from a header and its encoded records. Length and CRC are computed; those
    of `header` are ignored."""
    body = bytearray(
        _HEADER.pack(
            header.base_offset,
            HEADER_SIZE - LENGTH_END + len(records),
            *header[2:4],
            0,
            *header[5:],
        )
    )
    body += records
    _CRC.pack_into(body, _CRC_AT, crc32c(memoryview(body)[_CRC_FROM:]))
    return bytes(body)
