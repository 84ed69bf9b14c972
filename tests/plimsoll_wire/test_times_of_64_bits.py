"""Record times that do not fit 64 bits are what a Java client makes of them, and are written again
as such."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_wire.batches import HEADER_SIZE, BatchHeader, parse_header
from plimsoll_wire.keyed_records import iter_keyed, picked, rewrite
from plimsoll_wire.records import BadRecords, check_records, iter_times, read_varint

NUMBER_BITS = 70
"""Of ten bytes."""


def raw_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def java_long(value: int) -> int:
    """What is left of it in 64 bits."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def java_varlong(data: bytes) -> int:
    """ByteUtils.readVarlong."""
    value = 0
    for at, byte in enumerate(data):
        value = java_long(value | (byte & 0x7F) << 7 * at)
    return java_long((value & 2**64 - 1) >> 1 ^ -(value & 1))


def a_record(number: int, raw_time: int, key: bytes, *, tombstone: bool) -> bytes:
    value = b"\x01" if tombstone else b"\x02v"
    body = b"\0" + raw_varint(raw_time) + raw_varint(2 * number)
    body += raw_varint(2 * len(key)) + key + value + b"\0"
    return raw_varint(2 * len(body)) + body


def times(header: BatchHeader, records: bytes) -> dict[bytes, int]:
    """By key, as a Java client reads them."""
    return {
        one.key or b"": java_long(header.base_timestamp + one.timestamp_delta)
        for one in iter_keyed(records, header.count)
    }


numbers = st.integers(0, 2**NUMBER_BITS - 1) | st.sampled_from(
    [2**bits + off for bits in (7, 14, 62, 63, 64, 65, 69) for off in (-2, -1, 0, 1)]
)
edges = st.sampled_from([0, -1, 1_000, 2**62, -(2**62), 2**63 - 1, -(2**63)])


@given(number=numbers)
def test_number_of_ten_bytes_is_what_java_reads(number: int) -> None:
    data = raw_varint(number)
    assert read_varint(data, 0) == (java_varlong(data), len(data))


@given(
    base=edges,
    raw=st.lists(numbers, min_size=1, max_size=8),
    horizon=st.none() | st.integers(0, 2**63 - 1),
    live=st.integers(1, 2**8 - 1),
)
def test_kept_records_keep_their_64_bit_times(
    base: int, raw: list[int], horizon: int | None, live: int
) -> None:
    records = b"".join(
        a_record(n, each, b"%d" % n, tombstone=n % 2 == 0) for n, each in enumerate(raw)
    )
    count = len(raw)
    check_records(records, count)
    header = BatchHeader(0, 0, 0, 2, 0, 0, count - 1, base, 2**63 - 1, -1, -1, -1, count)
    was = times(header, records)
    live &= (1 << count) - 1
    if not live:
        return
    each = list(iter_keyed(records, count))
    kept = [one for n, one in enumerate(each) if live >> n & 1]
    for made in (picked(header, records, live), rewrite(header, records, kept, horizon)):
        found = parse_header(made)
        now = times(found, made[HEADER_SIZE:])
        assert now == {one.key: was[one.key or b""] for one in kept}
        assert found.max_timestamp == max(*now.values(), -1)
        assert len(list(iter_times(made[HEADER_SIZE:], found.count))) == len(kept)


@pytest.mark.parametrize("field", ["length", "last offset"])
def test_overlong_length_or_offset_is_refused(field: str) -> None:
    """Java's readVarint takes five bytes; the bits of the others are zeros."""
    body = b"\0\0" + (b"\x80" * 5 + b"\0" if field == "last offset" else b"\0") + b"\x01\x02v\0"
    size = raw_varint(2 * len(body))
    if field == "length":
        size = bytes([size[0] | 0x80, *b"\x80" * 4, 0])
    with pytest.raises(BadRecords, match="more than five bytes"):
        check_records(size + body, 1)
    check_records(raw_varint(14) + b"\0\0\0\x01\x02v\0", 1)


def test_length_of_five_bytes_is_a_length() -> None:
    body = b"\0\0\0\x01\x02v\0"
    check_records(bytes([2 * len(body) | 0x80, 0x80, 0x80, 0x80, 0]) + body, 1)
