"""Batches are read, checked and stamped without touching what a producer sealed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from plimsoll_wire.batches import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BadBatch,
    BatchError,
    BatchHeader,
    check_crc,
    iter_headers,
    parse_header,
    seal,
    stamp,
    stamp_append_time,
    whole_batches,
)


def a_batch(base=0, count=1, records=b"r" * 20, **fields):
    header = BatchHeader(base, 0, 0, 2, 0, 0, count - 1, 1000, 2000, -1, -1, -1, count)
    return seal(header._replace(**fields), records)


def a_client_batch(count=3):
    """As kafka-python makes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        batch_size=10_000,
    )
    for offset in range(count):
        builder.append(offset, timestamp=1000 + offset, key=b"k", value=b"v%d" % offset, headers=[])
    return bytearray(builder.build())


def test_batch_of_client_library_is_read_unchanged():
    header = parse_header(a_client_batch(3))
    assert (header.magic, header.count, header.last_offset_delta) == (2, 3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert header.last_sequence == 7


def test_stamping_keeps_the_crc_right():
    data = a_client_batch(3)
    assert check_crc(data, 0, len(data))
    stamp(data, 0, 4_000_000_000, 17)
    header = parse_header(data)
    assert (header.base_offset, header.leader_epoch) == (4_000_000_000, 17)
    assert (header.last_offset, header.next_offset) == (4_000_000_002, 4_000_000_003)
    assert check_crc(data, 0, len(data))
    assert DefaultRecordBatch(bytes(data)).validate_crc()


def test_append_time_is_sealed_anew():
    data = a_client_batch(2)
    stamp_append_time(data, 0, len(data), 99_000)
    header = parse_header(data)
    assert header.max_timestamp == 99_000
    assert header.attributes & LOG_APPEND_TIME
    assert check_crc(data, 0, len(data))
    assert DefaultRecordBatch(bytes(data)).validate_crc()
    assert [record.timestamp for record in DefaultRecordBatch(bytes(data))] == [99_000, 99_000]


def test_flipped_bit_anywhere_under_the_crc_shows():
    data = bytearray(a_batch(records=b"payload"))
    for position in range(21, len(data)):
        data[position] ^= 0x10
        assert not check_crc(data, 0, len(data)), position
        data[position] ^= 0x10
    assert check_crc(data, 0, len(data))


def test_headers_of_several_batches_follow_each_other():
    data = a_batch(0, 3) + a_batch(3, 2) + a_batch(9, 1)
    assert [header.base_offset for header in iter_headers(data)] == [0, 3, 9]
    assert sum(header.length for header in iter_headers(data)) == len(data)


@pytest.mark.parametrize("cut", [1, 11, 12, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 3])
def test_torn_batch_is_said_to_be_torn(cut):
    data = a_batch(0) + a_batch(1)[:cut]
    headers = iter_headers(data)
    assert next(headers).base_offset == 0
    with pytest.raises(BatchError) as raised:
        next(headers)
    assert raised.value.reason is BadBatch.TORN
    assert raised.value.position == len(a_batch(0))


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (16, b"\x01", BadBatch.MAGIC),
        (8, b"\x00\x00\x00\x10", BadBatch.LENGTH),
        (8, b"\xff\xff\xff\xff", BadBatch.LENGTH),
        (8, b"\x7f\xff\xff\xff", BadBatch.TORN),
        (23, b"\xff\xff\xff\xff", BadBatch.OFFSETS),
        (0, b"\xff", BadBatch.OFFSETS),
    ],
)
def test_nonsense_in_a_header_is_named(position, value, reason):
    data = bytearray(a_batch())
    data[position : position + len(value)] = value
    with pytest.raises(BatchError) as raised:
        parse_header(data)
    assert raised.value.reason is reason


@given(data=st.binary(max_size=200))
def test_garbage_is_never_anything_but_a_batch_error(data):
    with contextlib.suppress(BatchError):
        assert sum(header.length for header in iter_headers(data)) == len(data)


def test_last_sequence_wraps():
    header = parse_header(a_batch(count=3, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert parse_header(a_batch()).last_sequence is None


def test_batches_are_taken_whole_and_below_limit():
    first, second, third = a_batch(0, 10), a_batch(10, 10), a_batch(20, 10)
    data = first + second + third
    assert whole_batches(data, 30, len(data)) == (len(data), 30)
    assert whole_batches(data, 29, len(data)) == (len(first + second), 20)
    assert whole_batches(data, 20, len(data)) == (len(first + second), 20)
    assert whole_batches(data[:-1], 30, len(data)) == (len(first + second), 20)
    assert whole_batches(data, 30, len(first) + 1) == (len(first), 10)
    assert whole_batches(data, 30, 1) == (len(first), 10), "a reader always gets on"
    assert whole_batches(data, 5, len(data)) == (0, -1)
