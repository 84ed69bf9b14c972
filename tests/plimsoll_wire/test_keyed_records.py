"""Records by their keys: all keys at once, and a batch without some of its records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_broker.storage.cleaning import Pair, a_record, keyed_batch

from plimsoll_wire.batches import HEADER_SIZE, LOG_APPEND_TIME, check_crc, parse_header
from plimsoll_wire.compression import opened
from plimsoll_wire.keyed_records import iter_keyed, picked, plain_keys, rewrite
from plimsoll_wire.records import BadRecords, record_starts

SIZES = st.sampled_from([0, 1, 40, 62, 63, 64, 65, 127, 128, 300, 8_191, 8_192, 20_000])
KEYS = st.one_of(st.none(), st.binary(max_size=3), SIZES.map(bytes))
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([0, -1, 63, 64, 8_191, 8_192, 2**40]),
        KEYS,
        st.one_of(st.none(), SIZES.map(bytes)),
    ),
    min_size=1,
    max_size=5,
)


def encoded(records: list[tuple[int, bytes | None, bytes | None]], first: int = 0) -> bytes:
    return b"".join(
        a_record(first + number, time, key, value)
        for number, (time, key, value) in enumerate(records)
    )


def compare(data: bytes, count: int) -> bool:
    """Whether all keys can be told at once; if so, they are those that are told one by one."""
    plain = plain_keys(data, count)
    if plain is None:
        return False
    each = list(iter_keyed(data, count))
    assert plain.keys == [one.key for one in each]
    assert plain.tombstones == any(one.tombstone for one in each)
    assert plain.long == any(len(key) > 63 for key in plain.keys)
    return True


@settings(deadline=None)
@given(RECORDS, st.sampled_from([0, 60, 8_190, 2**20]))
def test_plain_keys_are_those_of_every_record(
    records: list[tuple[int, bytes | None, bytes | None]], first: int
) -> None:
    data = encoded(records, first)
    assert record_starts(data, len(records)) == [
        len(encoded(records[:n], first)) for n in range(len(records) + 1)
    ]
    common = all(
        key is not None and len(key) < 8_000 and len(value or b"") < 8_000 - len(key)
        for _, key, value in records
    )
    assert compare(data, len(records)) or not common
    assert plain_keys(data, len(records) + 1) is None


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.data())
def test_bad_plain_keys_match_one_by_one_reading(
    records: list[tuple[int, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    """Never more than `iter_keyed` allows, whatever the bytes are."""
    bad = bytearray(encoded(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(bad) - 1, 40)))
        bad[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]))
    compare(bytes(bad[: data.draw(st.integers(0, len(bad)))]), len(records))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 3, 20, 150]),
            st.tuples(
                st.sampled_from([0, 1, 63, 64, -65, 8_191, 8_192]),
                st.sampled_from([0, 1, 10, 63, 64, 70]),
                st.sampled_from([None, 0, 1, 63, 64, 200]),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0, 60, 8_190]),
    st.data(),
)
def test_uniform_plain_keys_match_one_by_one_reading(
    runs: list[tuple[int, tuple[int, int, int | None]]], first: int, data: st.DataObject
) -> None:
    """Runs of records of one shape, whose times, keys and values differ, and of which bytes are
    spoilt."""
    chosen = data.draw(st.randoms(use_true_random=False))
    records = [
        (
            time + (0 if abs(time) in (63, 64, 65, 8_191, 8_192) else chosen.randrange(60)),
            chosen.randbytes(key),
            None if value is None else chosen.randbytes(value),
        )
        for count, (time, key, value) in runs
        for _ in range(count)
    ]
    made = bytearray(encoded(records, first))
    assert compare(bytes(made), len(records))
    starts = record_starts(bytes(made), len(records))
    assert starts == [one.start for one in iter_keyed(bytes(made), len(records))] + [len(made)]
    for _ in range(data.draw(st.integers(1, 3))):
        at = chosen.choice(starts[:-1]) + chosen.randrange(8)
        made[min(at, len(made) - 1)] = chosen.choice([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF])
    compare(bytes(made), len(records))


@pytest.mark.parametrize("alike", [False, True])
def test_endless_value_length_is_not_plain(alike: bool) -> None:
    records = [(0, b"k", bytes(100))] * (40 if alike else 1)
    spoilt = bytearray(encoded(records))
    starts = record_starts(bytes(spoilt), len(records))
    at = bytes(spoilt).index(b"k", starts[-2]) + 1
    spoilt[at : at + 12] = b"\x80" * 12
    assert plain_keys(bytes(spoilt), len(records)) is None
    with pytest.raises(BadRecords):
        list(iter_keyed(bytes(spoilt), len(records)))


def test_short_key_with_padded_length_is_not_long() -> None:
    spoilt = bytes.fromhex("10 00 00 00 8200 61 00 00")
    assert compare(spoilt, 1)
    found = plain_keys(spoilt, 1)
    assert found is not None
    assert (found.keys, found.long) == ([b"a"], False)


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01\0\0\0\0\0\0", b"\xff" * 30, b"\x80" * 30])
def test_starts_of_what_is_no_record_are_refused(data: bytes) -> None:
    assert plain_keys(data, 1) is None
    with pytest.raises(BadRecords):
        record_starts(data, 1)


PAIRS: list[Pair] = [(b"%d" % n, bytes(n * 7 % 90)) for n in range(100)]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("live", [1, 1 << 99, 0b1011 << 40, (1 << 100) - 2, (1 << 100) - 1])
def test_picked_records_are_those_that_a_rewrite_keeps(codec: int, live: int) -> None:
    batch = keyed_batch(500, PAIRS, codec=codec)
    header = parse_header(batch)
    records = opened(codec, batch[HEADER_SIZE:], 2**20)
    each = list(iter_keyed(records, 100))
    kept = [one for number, one in enumerate(each) if live >> number & 1]
    made = picked(header, records, live)
    assert made == rewrite(header, records, kept, None)
    after = parse_header(made)
    assert check_crc(made, 0, after.length)
    assert (after.base_offset, after.last_offset, after.codec) == (500, 599, codec)
    assert after.max_timestamp == 1500 + live.bit_length() - 1


def test_picked_records_keep_the_time_of_their_append() -> None:
    header = parse_header(keyed_batch(500, PAIRS))._replace(
        attributes=LOG_APPEND_TIME, max_timestamp=9_000
    )
    records = encoded([(n, *pair) for n, pair in enumerate(PAIRS)])
    assert parse_header(picked(header, records, 1)).max_timestamp == 9_000
