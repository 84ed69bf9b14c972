"""Records by their keys: read for compaction, checked at Produce, and written again without some.

Called by the broker's cleaner and, for compacted topics, by the checks of a client's batch; never
on the event loop for more than a few records.  Values and headers are skipped over.  A record that
stays is copied as it is, unless the batch's base timestamp changes.  Source: the protocol's
RecordBatch v2; bit 6 of the attributes is KIP-534's delete horizon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, pairwise
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
from plimsoll_wire.records import (
    FIRST_STEP,
    SECOND_STEP,
    BadRecords,
    read_varint,
    record_starts,
)

_NO_TIME = -1
_DIGITS = bytes.maketrans(b"01", b"\0\1")
_VARINT_BYTES_MAX = 10
_TIME_AND_OFFSET_MAX = 12
"""One of them of all ten bytes, the other of one, and the length of the key."""


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


SHORT_KEY_BYTES = 63
"""The length of such a key is one byte."""


class PlainKeys(NamedTuple):
    """The keys of records that all have one.  `tombstones`: a record has no value.  `long`: a key
    has more than `SHORT_KEY_BYTES`."""

    keys: list[bytes]
    tombstones: bool
    long: bool


def plain_keys(records: bytes, count: int) -> PlainKeys | None:
    """All keys at once, a fifth of what `iter_keyed` takes: 0.3 µs a record.

    None: some record has no key, or is bad, or is larger than records usually are (8 KiB):
    `iter_keyed` tells which.
    """
    first, second = FIRST_STEP, SECOND_STEP
    position, size, last_bytes, long = 0, len(records), 0, False
    keys: list[bytes] = []
    add = keys.append
    try:
        for _ in range(count):
            # Behind the length, of one or two bytes, and one byte of attributes: time and offset.
            byte = records[position]
            if byte < 0x80:
                begun = at = position + 2
                position += first[byte]
            else:
                begun = at = position + 3
                position += first[byte] + second[records[position + 1]]
            while records[at] >= 0x80:
                at += 1
            at += 1
            while records[at] >= 0x80:
                at += 1
            length = records[at + 1]
            at += 2
            if length >= 0x80:
                length = length & 0x7F | records[at] << 7
                if length >= 0x4000:
                    return None
                at += 1
                long = True
            rest = at + (length >> 1)
            value = records[rest]
            end = rest if value < 0x80 else rest + _VARINT_BYTES_MAX
            if length & 1 or end >= position or at > begun + _TIME_AND_OFFSET_MAX:
                return None
            add(records[at:rest])
            last_bytes |= value
    except IndexError:
        return None
    # An odd length is negative.
    return PlainKeys(keys, bool(last_bytes & 1), long) if position <= size else None


def check_keys(records: bytes, count: int) -> None:
    """Raises BadRecords at the first record without a key."""
    if plain_keys(records, count) is not None:
        return
    for index, record in enumerate(iter_keyed(records, count)):
        if record.key is None:
            raise BadRecords("a record of a compacted topic needs a key", index)


def picked(header: BatchHeader, records: bytes, live: int) -> bytes:
    """The batch with only those of its records, as they were before they were compressed, whose
    bits are set in `live`; raises BadRecords.  What else there is of it stays, as in `rewrite`."""
    out, newest = bytearray(), _NO_TIME
    chosen = f"{live:0{header.count}b}"[::-1].encode().translate(_DIGITS)
    for start, end in compress(pairwise(record_starts(records, header.count)), chosen):
        out += records[start:end]
        body = start + 1 if records[start] < 0x80 else read_varint(records, start)[1]
        newest = max(newest, header.base_timestamp + read_varint(records, body + 1)[0])
    return _sealed(header, bytes(out), live.bit_count(), newest)


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
    header = header._replace(attributes=attributes, base_timestamp=base)
    return _sealed(header, bytes(out), count, newest)


def _sealed(header: BatchHeader, records: bytes, count: int, newest: int) -> bytes:
    """`newest`: the time of the newest record, by what the records say."""
    attributes, base = header.attributes, header.base_timestamp
    if attributes & LOG_APPEND_TIME:
        newest = header.max_timestamp
    body: Buffer = records
    if not count:
        # There is nothing to open, and no time to find a record by.
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        newest = base = _NO_TIME
    elif attributes & CODEC_MASK:
        body = packed(attributes & CODEC_MASK, records)
    return seal(
        header._replace(
            attributes=attributes, base_timestamp=base, max_timestamp=newest, count=count
        ),
        body,
    )


def _zigzag(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
