"""Records by their keys: read for compaction, checked at Produce, and written again without some.

Called by the broker's cleaner and, for compacted topics, by the checks of a client's batch; never
on the event loop for more than a few records.  Values and headers are skipped over.  A record that
stays is copied as it is, unless the batch's base timestamp changes.  Source: the protocol's
RecordBatch v2; bit 6 of the attributes is KIP-534's delete horizon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plimsoll_wire.batches import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BatchHeader,
    Buffer,
    seal,
)
from plimsoll_wire.compression import packed
from plimsoll_wire.records import BadRecords, read_varint

_NO_TIME = -1


class KeyedRecord(NamedTuple):
    """One record: bytes [start, end) of its batch's records, of which [rest, end) come behind its
    times.  `key` None: it has none.  `tombstone`: it has no value."""

    start: int
    body: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    tombstone: bool


def iter_keyed(records: bytes, count: int) -> Iterator[KeyedRecord]:
    """Each of `count` records; raises BadRecords, which names the first that is none."""
    position, size = 0, len(records)
    for index in range(count):
        try:
            start = position
            length, body = read_varint(records, position)
            position = body + length
            if length < 0 or position > size:
                raise BadRecords("a record is longer than its batch", index)
            timestamp_delta, rest = read_varint(records, body + 1)  # behind one byte of attributes
            offset_delta, at = read_varint(records, rest)
            key_length, at = read_varint(records, at)
            key = None
            if key_length >= 0:
                key = records[at : at + key_length]
                at += key_length
            value_length, at = read_varint(records, at)
        except IndexError:
            raise BadRecords("the batch ends inside a record", index) from None
        except BadRecords as error:
            raise BadRecords(error.sentence, index) from None
        if at > position:
            raise BadRecords("a record is shorter than its own fields", index)
        yield KeyedRecord(
            start, body, rest, position, timestamp_delta, offset_delta, key, value_length < 0
        )


def check_keys(records: bytes, count: int) -> None:
    """Raises BadRecords at the first record without a key."""
    for index, record in enumerate(iter_keyed(records, count)):
        if record.key is None:
            raise BadRecords("a record of a compacted topic needs a key", index)


def rewrite(
    header: BatchHeader, records: bytes, kept: Iterable[KeyedRecord], horizon_ms: int | None
) -> bytes:
    """The batch with only the records `kept`, of `records`, as they were before they were
    compressed.

    Offsets, leader epoch, producer and codec stay.  `horizon_ms`: a new delete horizon, which takes
    the base timestamp's place: the records' times are told from there.
    """
    out = bytearray()
    base, count, newest = header.base_timestamp, 0, _NO_TIME
    attributes = header.attributes
    shift = 0
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON
        shift, base = base - horizon_ms, horizon_ms
    for record in kept:
        count += 1
        newest = max(newest, base + record.timestamp_delta + shift)
        if not shift:
            out += records[record.start : record.end]
            continue
        body = records[record.body : record.body + 1]
        body += _zigzag(record.timestamp_delta + shift) + records[record.rest : record.end]
        out += _zigzag(len(body)) + body
    if header.attributes & LOG_APPEND_TIME:
        newest = header.max_timestamp
    body_bytes: Buffer = bytes(out)
    if not count:
        # There is nothing to open, and no time to find a record by.
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        newest = base = _NO_TIME
    elif attributes & CODEC_MASK:
        body_bytes = packed(attributes & CODEC_MASK, bytes(out))
    return seal(
        header._replace(
            attributes=attributes, base_timestamp=base, max_timestamp=newest, count=count
        ),
        body_bytes,
    )


def _zigzag(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
