"""Writes and reads whole records of a batch, keys and values, for the internal topics only.

Called by the coordinators' shells. Records of clients stay opaque (`records`, `batches`). Batches
are written without compression and without headers; a compressed batch is refused on reading.
Source: the protocol's RecordBatch v2 (zigzag varints throughout).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from plimsoll_core.ids import ProducerLife
from plimsoll_wire.batches import MAGIC, TRANSACTIONAL, BatchHeader, seal
from plimsoll_wire.records import BadRecords, read_varint

NO_PRODUCER = -1
ReadRecord = tuple[int, bytes | None, bytes | None]
"""One record of a log: its offset, its key, its value. A plain tuple, because making a named tuple
takes a third of the time of reading a record."""
MORE_BYTES = 0x80
"""Smallest value of a byte of a varint that is followed by another byte of it."""


class KeyValue(NamedTuple):
    """A record to write. `value`: None for a tombstone."""

    key: bytes
    value: bytes | None


def varint(value: int) -> bytes:
    """Encode a signed number of at most 64 bits as a zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def size_of(record: KeyValue) -> int:
    """Return an upper bound of the record's size in a batch, in bytes."""
    return 32 + len(record.key) + len(record.value or b"")


def write_batch(
    records: Sequence[KeyValue], timestamp_ms: int, producer: ProducerLife | None = None
) -> bytearray:
    """Build a batch of records, at least one, with one timestamp (ms since 1970). Its base offset
    and leader epoch are 0 until they are stamped. `producer`: the batch belongs to its
    transaction, without a sequence; None: to none."""
    assert records, "a batch has a record"
    body = bytearray()
    for delta, (key, value) in enumerate(records):
        one = bytearray(b"\0\0")  # attributes; a timestamp delta of zero
        one += varint(delta)
        one += varint(len(key))
        one += key
        if value is None:
            one += b"\x01"  # a length of -1
        else:
            one += varint(len(value))
            one += value
        one += b"\0"  # no headers
        body += varint(len(one))
        body += one
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=0 if producer is None else TRANSACTIONAL,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=NO_PRODUCER if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.epoch,
        base_sequence=-1,
        count=len(records),
    )
    return bytearray(seal(header, body))


def iter_records(header: BatchHeader, body: bytes) -> Iterator[ReadRecord]:
    """Yield offset, key and value of each record. `body`: the batch without its header.

    Raises BadRecords on reaching a malformed record, or before the first if the batch is
    compressed.
    """
    if header.codec:
        raise BadRecords(
            "a record batch of an internal topic is compressed, but the broker reads only "
            "uncompressed ones"
        )
    position, base, all_bytes = 0, header.base_offset, len(body)
    for index in range(header.count):
        try:
            # Numbers of one byte are read here: a call costs more than all else, and a load reads
            # hundreds of thousands of records.
            length = body[position]
            if length < MORE_BYTES:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = read_varint(body, position)
            end = position + length
            if length < 0 or end > all_bytes:
                raise BadRecords(
                    "the record batch is malformed: a record is longer than the batch", index
                )
            # Behind the attributes: the delta of its time, its offset's, its key, its value.
            at = position + 1
            at = at + 1 if body[at] < MORE_BYTES else read_varint(body, at)[1]
            delta = body[at]
            short = delta < MORE_BYTES
            delta, at = ((delta >> 1) ^ -(delta & 1), at + 1) if short else read_varint(body, at)
            size = body[at]
            if size < MORE_BYTES:
                size, at = (size >> 1) ^ -(size & 1), at + 1
            else:
                size, at = read_varint(body, at)
            key = None if size < 0 else body[at : at + size]
            at = at if size < 0 else at + size
            size = body[at]
            if size < MORE_BYTES:
                size, at = (size >> 1) ^ -(size & 1), at + 1
            else:
                size, at = read_varint(body, at)
            value = None if size < 0 else body[at : at + size]
            if at + size > all_bytes:
                raise BadRecords("the record batch is malformed: it ends inside a record", index)
        except IndexError:
            raise BadRecords(
                "the record batch is malformed: it ends inside a record", index
            ) from None
        if not 0 <= delta <= header.last_offset_delta:
            raise BadRecords(
                "the record batch is malformed: a record has an offset outside those of the batch",
                index,
            )
        yield base + delta, key, value
        position = end
