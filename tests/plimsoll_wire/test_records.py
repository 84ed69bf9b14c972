"""Times and offsets of the records in a batch, and nothing but BadRecords for garbage."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from plimsoll_wire.batches import HEADER_SIZE, parse_header
from plimsoll_wire.records import BadRecords, iter_times


@given(
    times=st.lists(st.integers(0, 2**42), min_size=1, max_size=20),
    value=st.one_of(st.none(), st.binary(max_size=300)),
)
def test_times_are_those_of_the_client_library(times, value):
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for offset, timestamp in enumerate(times):
        builder.append(offset, timestamp, b"key", value, [("header", b"x")])
    data = bytes(builder.build())
    header = parse_header(data)
    found = list(iter_times(data[HEADER_SIZE:], header.count))
    assert [header.base_timestamp + delta for delta, _ in found] == times
    assert [offset for _, offset in found] == list(range(len(times)))


@given(data=st.binary(max_size=60), count=st.integers(0, 5))
def test_garbage_is_bad_records(data, count):
    with contextlib.suppress(BadRecords):
        assert len(list(iter_times(data, count))) == count


@pytest.mark.parametrize("data", [b"", b"\x80" * 11, b"\x14\x00", b"\x01\x00\x00", b"\x02\x00\x80"])
def test_torn_records_are_bad(data):
    with pytest.raises(BadRecords):
        list(iter_times(data, 1))
