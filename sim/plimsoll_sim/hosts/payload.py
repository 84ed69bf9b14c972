"""Builds and reads the records of simulated producers. The first record of a batch contains the
batch's name.

Used by the clients that write and by all code that reads a log back. The other records are empty.
Records of compacted topics all have the batch's key, and the batch's name in a header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from plimsoll_wire.batches import CONTROL, parse_header
from plimsoll_wire.control_records import read_end_marker

HEADER_BYTES = 61
_TIME_AT = 27
_ATTRIBUTES_AT = 22
"""Position of the lower byte of a batch's attributes."""
IDENT_BYTES_MAX = 50
_NO_KEY = 1
_VALUE_SIZE_AT = HEADER_BYTES + 5
"""Position of the value's size in a batch's first record: length, attributes, timestamp delta,
offset delta and the missing key take one byte each."""


def records_of(ident: bytes, count: int) -> bytes:
    """Return `count` encoded records, of which the first contains `ident`."""
    assert len(ident) <= IDENT_BYTES_MAX, "so that its lengths take a byte each"
    values = [ident] + [b""] * (count - 1)
    return b"".join(_record(number, value) for number, value in enumerate(values))


KEYS = 3


def key_of(ident: bytes) -> bytes:
    """Return the key of every record of this batch: the part before a colon, if there is one."""
    key, written, _ = ident.partition(b":")
    return key if written else b"k%d" % (crc32(ident) % KEYS)


def deletes(ident: bytes) -> bool:
    """Return True if the records of this batch are tombstones: its name ends with a colon."""
    if b":" in ident:
        return ident.endswith(b":")
    return crc32(ident) // KEYS % 5 == 0


def keyed_records_of(ident: bytes, count: int) -> bytes:
    """Return the records of a batch for a compacted topic."""
    assert len(ident) <= IDENT_BYTES_MAX, "so that its lengths take a byte each"
    key, value = key_of(ident), b"\x01" if deletes(ident) else b"\x02v"
    header = b"\x02\x00%c%b" % (len(ident) << 1, ident)
    bodies = (
        b"\x00\x00%b%c%b%b%b" % (_zigzag(number), len(key) << 1, key, value, header)
        for number in range(count)
    )
    return b"".join(b"%b%b" % (_zigzag(len(body)), body) for body in bodies)


def _record(number: int, value: bytes) -> bytes:
    body = b"\x00\x00%b\x01%c%b\x00" % (_zigzag(number), len(value) << 1, value)
    return b"%c%b" % (len(body) << 1, body)


def _zigzag(value: int) -> bytes:
    left, out = value << 1, bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def ident_of(data: bytes | bytearray | memoryview, at: int) -> bytes:
    """Return the name of the batch that begins at byte `at`; empty if none of its records is left.
    The records of a coordinator's batch have keys and no header; its name is made by
    the functions of coordinators' records below."""
    if not int.from_bytes(data[at + HEADER_BYTES - 4 : at + HEADER_BYTES], "big"):
        return b""
    if data[at + _ATTRIBUTES_AT] & CONTROL:
        return _marker(data, at)
    if data[at + HEADER_BYTES + 4] != _NO_KEY or data[at + HEADER_BYTES + 2]:
        first = _record_at(data, at + HEADER_BYTES)
        return first.header if first.header is not None else _coordinators(data, at)
    size = data[at + _VALUE_SIZE_AT] >> 1
    return bytes(data[at + _VALUE_SIZE_AT + 1 : at + _VALUE_SIZE_AT + 1 + size])


def _marker(data: bytes | bytearray | memoryview, at: int) -> bytes:
    """Return the name of a control batch: its place, producer and marker."""
    header = parse_header(data, at)
    marker = read_end_marker(header, data[at : at + header.length])
    kind = "control" if marker is None else "commit" if marker.commits else "abort"
    epoch = 0 if marker is None else marker.coordinator_epoch
    producer = f"{header.producer_id}.{header.producer_epoch}"
    return f"!{kind} {producer} {epoch} @{header.base_offset}".encode()


def is_marker(ident: bytes) -> bool:
    return ident.startswith(b"!")


def _coordinators(data: bytes | bytearray | memoryview, at: int) -> bytes:
    base_offset = int.from_bytes(data[at : at + 8], "big")
    base_time = int.from_bytes(data[at + _TIME_AT : at + _TIME_AT + 8], "big", signed=True)
    count = int.from_bytes(data[at + HEADER_BYTES - 4 : at + HEADER_BYTES], "big")
    records, position = [], at + HEADER_BYTES
    for _ in range(count):
        one = _record_at(data, position)
        position = one.end
        time = b"%d" % (base_time + one.time_delta)
        value = b"-" if one.value is None else b"+" + one.value
        content = digest(one.key, time, value)
        records.append(CoordinatorRecord(one.offset_delta, digest(one.key), content))
    return name_of(base_offset, records)


class _RecordThere(NamedTuple):
    """A record as read. `header`: the value of its first header, None if it has none; `end`: the
    position of the next record."""

    offset_delta: int
    time_delta: int
    key: bytes
    value: bytes | None
    header: bytes | None
    end: int


def _record_at(data: bytes | bytearray | memoryview, position: int) -> _RecordThere:
    length, position = _varint(data, position)
    end = position + length
    time_delta, position = _varint(data, position + 1)  # behind its attributes
    offset_delta, position = _varint(data, position)
    key, position = _bytes(data, position)
    value, position = _bytes(data, position)
    headers, position = _varint(data, position)
    header = _bytes(data, _bytes(data, position)[1])[0] if headers else None
    return _RecordThere(offset_delta, time_delta, key or b"", value, header, end)


def _bytes(data: bytes | bytearray | memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    return bytes(data[position : position + size]), position + size


def _varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position


# --- records of coordinators: names of their batches ----------------------------------------------

_MARK = b"\x00"
"""First byte of the names of coordinators' batches. No client's batch has a name that begins so."""
_PLACE = struct.Struct(">q")
_RECORD = struct.Struct(">I8s8s")
_DIGEST_BYTES = 8


class CoordinatorRecord(NamedTuple):
    """A coordinator's record: its offset within the batch, and digests of its key and of its whole
    content, including its time."""

    delta: int
    key: bytes
    content: bytes


def digest(*parts: bytes) -> bytes:
    return blake2b(b"\x00".join(parts), digest_size=_DIGEST_BYTES).digest()


def name_of(base_offset: int, records: Iterable[CoordinatorRecord]) -> bytes:
    """Return the name of a coordinator's batch with this base offset and these records."""
    return b"".join((_MARK, _PLACE.pack(base_offset), *(_RECORD.pack(*one) for one in records)))


def is_coordinators(ident: bytes) -> bool:
    return ident.startswith(_MARK)


def records_in(ident: bytes) -> list[CoordinatorRecord]:
    """Return the records that the name of a coordinator's batch describes."""
    rows = ident[len(_MARK) + _PLACE.size :]
    return [CoordinatorRecord(*row) for row in _RECORD.iter_unpack(rows)]


def is_left_of(left: bytes, whole: bytes) -> bool:
    """Return True if the batch named `left` may be what a cleaner left of the batch named `whole`:
    it has no record that `whole` lacks."""
    if left == whole or not left:
        return True
    if not (is_coordinators(left) and is_coordinators(whole)):
        return False
    same_place = left[: len(_MARK) + _PLACE.size] == whole[: len(_MARK) + _PLACE.size]
    return same_place and set(records_in(left)) <= set(records_in(whole))
