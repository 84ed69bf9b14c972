"""What is sealed as a batch of records is one, or is refused with the record that is none."""

import contextlib
import gzip
import re

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from plimsoll_wire.batches import HEADER_SIZE
from plimsoll_wire.compression import GZIP, LZ4, SNAPPY, ZSTD, TooLarge, opened
from plimsoll_wire.records import BadRecords, _check_last, _follow, _is_last, check_records

XERIAL = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2


def records_of(sizes: list[int], headers: int = 1) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000_000)
    for offset, size in enumerate(sizes):
        key = None if offset % 3 == 0 else b"key"
        pairs = [("name", b"value"), ("none", None)][:headers]
        builder.append(offset, 1_000 + 1_000 * offset, key, b"v" * size, pairs)
    return bytes(builder.build())[HEADER_SIZE:]


@given(sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=30), headers=st.integers(0, 2))
def test_check_records_accepts_records_of_a_client_library(sizes, headers):
    check_records(records_of(sizes, headers), len(sizes))


def plain_records(sizes: list[int]) -> bytearray:
    """Without keys, so that the sizes alone say where each begins."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000_000)
    for offset, size in enumerate(sizes):
        builder.append(offset, 1_000, None, b"v" * size, [])
    return bytearray(builder.build()[HEADER_SIZE:])


@given(
    runs=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90)), min_size=1, max_size=6),
    count_off=st.sampled_from([0, 0, 0, 1, -1]),
    changed=st.none() | st.tuples(st.integers(0, 2**20), st.integers(0, 255)),
    viewed=st.booleans(),
)
def test_equal_sized_records_are_checked_alike(runs, count_off, changed, viewed):
    """Runs of them are looked at together: that finds what following each length finds."""
    sizes = [size for size, times in runs for _ in range(times)]
    records, count = plain_records(sizes), max(len(sizes) + count_off, 1)
    if changed is not None:
        records[changed[0] % len(records)] = changed[1]
    expected = contextlib.nullcontext()
    try:
        _check_last(records, _follow(records, count - 1), count - 1)
    except BadRecords as error:
        expected = pytest.raises(BadRecords, match=re.escape(error.sentence))
    with expected:
        check_records(memoryview(records) if viewed else bytes(records), count)


@given(
    size=st.integers(0, 200),
    offset=st.sampled_from([0, 1, 63, 64, 65, 8_191, 8_192, 8_193]),
    said=st.sampled_from([0, 1, 63, 64, 65, 8_191, 8_192, 8_193]),
    changed=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 255)),
    cut=st.integers(0, 3),
)
def test_last_record_is_valid_in_both_ways(size, offset, said, changed, cut):
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000_000)
    builder.append(0, 1_000, None, b"", [])
    builder.append(offset, 1_000, None, b"v" * size, [])
    record = bytearray(builder.build()[HEADER_SIZE + len(plain_records([0])) :])
    if changed is not None and changed[0] < len(record):
        record[changed[0]] = changed[1]
    record = bytes(record[: len(record) - cut])
    if _is_last(record, 0, said):
        _check_last(record, 0, said)
    elif changed is None and not cut and said == offset < 8_192:
        pytest.fail("an ordinary record is read in one step")


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30), other=st.integers(1, 40))
def test_another_count_than_it_says_is_refused(sizes, other):
    if other != len(sizes):
        with pytest.raises(BadRecords) as refused:
            check_records(records_of(sizes), other)
        assert refused.value.indexes[0] == min(other - 1, len(sizes))


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5), data=st.data())
def test_torn_records_are_refused(sizes, data):
    records = records_of(sizes)
    with pytest.raises(BadRecords):
        check_records(records[: data.draw(st.integers(0, len(records) - 1))], len(sizes))


@given(garbage=st.binary(max_size=200), count=st.integers(1, 30))
def test_garbage_raises_nothing_else(garbage, count):
    with contextlib.suppress(BadRecords):
        check_records(garbage, count)


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        (b"\x0c\x00\x00\x02\x01\x00\x00", "offset delta of its last record is 1 instead of 0"),
        (b"\x04\x00\x00", "ends inside"),
        (b"\x02\x00", "ends inside"),
        (b"\x04\x00\x00" + b"\x00" * 5, "bytes after its 1 records"),
        (b"\x0e\x00\x00\x00\x01\x00\x00", "reaches beyond the end of the batch"),
        (b"\x0d\x00\x00\x00\x01\x00\x00", "negative length"),
        (b"\xff" * 12, "more than ten bytes"),
    ],
)
def test_record_whose_fields_are_no_record_is_refused(records, sentence):
    with pytest.raises(BadRecords, match=sentence):
        check_records(records, 1)


def compressed(codec: int, records: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.compress(records)
        case 2:
            return bytes(cramjam.snappy.compress_raw(records))
        case 3:
            return bytes(cramjam.lz4.compress(records))
        case _:
            return bytes(cramjam.zstd.compress(records))


def xerial(records: bytes, block: int = 700) -> bytes:
    """As Kafka's own client writes snappy."""
    blocks = [records[at : at + block] for at in range(0, len(records), block)]
    packed = [bytes(cramjam.snappy.compress_raw(each)) for each in blocks]
    return XERIAL + b"".join(len(each).to_bytes(4) + each for each in packed)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("size", [10, 300_000])
def test_codecs_all_decompress_to_what_was_compressed(codec, size):
    records = records_of([size] * 5)
    assert bytes(opened(codec, compressed(codec, records), len(records))) == records
    if codec == SNAPPY:
        assert bytes(opened(codec, xerial(records), len(records))) == records


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_decompression_beyond_the_limit_is_refused(codec):
    records = records_of([100_000] * 5)
    for data in (compressed(codec, records), *([xerial(records)] if codec == SNAPPY else [])):
        with pytest.raises(TooLarge):
            opened(codec, data, len(records) - 1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("spoil", [lambda d: d[:-3], lambda d: b"not what it says", lambda d: b""])
def test_corrupt_compressed_data_raises_bad_records(codec, spoil):
    with pytest.raises(BadRecords):
        check_records(opened(codec, spoil(compressed(codec, records_of([500]))), 10_000), 1)


@given(garbage=st.binary(max_size=200), codec=st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]))
def test_garbage_opens_to_bad_records_or_little(garbage, codec):
    for data in (garbage, XERIAL + garbage):
        with contextlib.suppress(BadRecords):
            assert len(opened(codec, data, 1_000)) <= 1_000
