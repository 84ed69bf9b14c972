"""The records inside a batch, as far as a broker ever looks: their times, offsets and lengths.

Called where a timestamp has to become an offset, off the event loop.  Keys, values and headers are
skipped over, never read.  Source: the protocol's RecordBatch v2 (zigzag varints throughout).
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT_BYTES_MAX = 10


class BadRecords(Exception):
    """The bytes are not that many records."""


def iter_times(records: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Timestamp delta and offset delta of each of `count` records, as they are asked for: what
    comes behind the last one that was taken is not looked at."""
    position, size = 0, len(records)
    try:
        for _ in range(count):
            # Numbers of one and two bytes are read here: that is nearly all, and twice as quick.
            length = records[position]
            if length < 0x80:
                position += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = _varint(records, position)
            end = position + length
            if length < 0 or end > size:
                raise BadRecords("a record is longer than its batch")
            timestamp_delta = records[position + 1]  # one byte of attributes before it
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                after = position + 2
            else:
                timestamp_delta, after = _varint(records, position + 1)
            offset_delta, after = _varint(records, after)
            if after > end:
                raise BadRecords("a record is shorter than its own fields")
            yield timestamp_delta, offset_delta
            position = end
    except IndexError:
        raise BadRecords("the batch ends inside a record") from None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag number and where it ends; IndexError: the data ends first."""
    value = data[position]
    position += 1
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position
    value &= 0x7F
    shift = 7
    for _ in range(_VARINT_BYTES_MAX - 1):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise BadRecords("a number of more than ten bytes")
