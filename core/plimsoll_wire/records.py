"""The records inside an uncompressed batch, as far as a broker ever looks: their times and offsets.

Called where a timestamp has to become an offset.  Keys, values and headers are skipped over, never
read.  Source: the protocol's RecordBatch v2 (zigzag varints throughout).
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT_BYTES_MAX = 10


class BadRecords(Exception):
    """The bytes are not that many records."""


def iter_times(records: bytes | memoryview, count: int) -> Iterator[tuple[int, int]]:
    """Timestamp delta and offset delta of each of `count` records."""
    position = 0
    for _ in range(count):
        length, position = _varint(records, position)
        end = position + length
        if length < 0 or end > len(records):
            raise BadRecords("a record is longer than its batch")
        timestamp_delta, after = _varint(records, position + 1)  # one byte of attributes
        offset_delta, after = _varint(records, after)
        if after > end:
            raise BadRecords("a record is shorter than its own fields")
        yield timestamp_delta, offset_delta
        position = end


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            raise BadRecords("the batch ends inside a record")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise BadRecords("a number of more than ten bytes")
