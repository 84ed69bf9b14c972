"""A search for a time reads no more than it has to, and never more than it may."""

import gzip
from collections.abc import Callable

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.plimsoll_broker.storage.cleaning import a_record
from tests.plimsoll_broker.storage.conftest import Volume, a_batch, found_at

from plimsoll_broker.storage import offsets_by_time
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.offsets_by_time import OpenedBytes
from plimsoll_wire.batches import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    iter_headers,
    parse_header,
    seal,
)

RECORDS = 1_000
BASE_MS = 10_000


def put(log: Log, data: bytes) -> None:
    log.append(data, list(iter_headers(data)))


def a_client_batch(times: range) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for offset, timestamp in enumerate(times):
        builder.append(offset, timestamp, b"key", b"value", [])
    return bytes(builder.build())


def zipped(batch: bytes) -> bytes:
    header = parse_header(batch)
    return seal(header._replace(attributes=1), gzip.compress(batch[HEADER_SIZE:]))


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset deltas of the records that searches looked at."""
    seen: list[int] = []
    real = offsets_by_time.iter_times

    def watched(records: bytes, count: int):
        for times in real(records, count):
            seen.append(times[1])
            yield times

    monkeypatch.setattr(offsets_by_time, "iter_times", watched)
    return seen


@pytest.mark.parametrize("batch", [a_client_batch, lambda times: zipped(a_client_batch(times))])
def test_search_stops_at_the_first_record_that_answers(volume: Volume, looked_at, batch):
    log = volume.log()
    put(log, batch(range(BASE_MS, BASE_MS + RECORDS)))
    assert found_at(log, BASE_MS + 3) == (BASE_MS + 3, 3)
    assert looked_at == [0, 1, 2, 3]


def test_request_that_has_opened_its_share_is_answered_from_headers(volume: Volume, looked_at):
    log = volume.log()
    batch = zipped(a_client_batch(range(BASE_MS, BASE_MS + RECORDS)))
    put(log, batch)
    opened = OpenedBytes(len(batch))  # less than is in it
    assert found_at(log, BASE_MS + 3, opened) == (BASE_MS + RECORDS - 1, 0), "earlier, never later"
    assert found_at(log, None, opened) == (BASE_MS + RECORDS - 1, 0)
    assert looked_at == []
    assert opened.left == 0


def test_share_is_one_for_all_partitions_of_a_request(volume: Volume, looked_at):
    log = volume.log()
    batch = a_client_batch(range(BASE_MS, BASE_MS + RECORDS))
    put(log, batch)
    opened = OpenedBytes(2 * (len(batch) - HEADER_SIZE))
    answers = [found_at(log, None, opened) for _ in range(3)]
    assert answers == [(BASE_MS + RECORDS - 1, offset) for offset in (RECORDS - 1, RECORDS - 1, 0)]
    assert opened.left == 0


def test_batch_that_lies_is_answered_from_its_header(volume: Volume):
    """Ten records, it says, and what is in it is none."""
    log = volume.log()
    put(log, a_batch(0, 10))
    assert found_at(log, 1_005) == (1_009, 0)
    assert found_at(log, None) == (1_009, 0)


def test_answer_lies_within_its_batch_whatever_the_records_say(volume: Volume):
    log = volume.log()
    header = parse_header(a_client_batch(range(BASE_MS, BASE_MS + 2)))
    outside = bytes([8, 0, 0, 20, 1, 1, 0])  # an offset delta of 10 in a batch of two
    put(log, seal(header._replace(max_timestamp=BASE_MS), outside + outside))
    assert found_at(log, BASE_MS) == (BASE_MS, 0)


def stamped_by_the_log(batch: bytes) -> bytes:
    header = parse_header(batch)
    return seal(header._replace(attributes=LOG_APPEND_TIME), batch[HEADER_SIZE:])


def unopened(batch: bytes) -> bytes:
    """Compressed with what is not opened: zstd."""
    return seal(parse_header(batch)._replace(attributes=4), b"z" * 40)


@pytest.mark.parametrize("made", [stamped_by_the_log, unopened])
def test_batch_that_holds_the_start_is_answered_with_the_start_from_its_header(
    volume: Volume, made: Callable[[bytes], bytes]
) -> None:
    """A client deleted its first records; those behind are not passed over."""
    log = volume.log()
    put(log, made(a_client_batch(range(BASE_MS, BASE_MS + 10))))
    put(log, a_batch(10, 10, base_timestamp=BASE_MS + 10, max_timestamp=BASE_MS + 19))
    log.advance_log_start(4)
    assert found_at(log, BASE_MS) == (BASE_MS + 9 if made is stamped_by_the_log else BASE_MS, 4)


@pytest.mark.parametrize("made", [stamped_by_the_log, unopened, bytes])
def test_greatest_time_of_a_batch_that_holds_the_start_is_found(
    volume: Volume, made: Callable[[bytes], bytes]
) -> None:
    log = volume.log()
    put(log, made(a_client_batch(range(BASE_MS, BASE_MS + 10))))
    log.advance_log_start(4)
    assert found_at(log, None) == (BASE_MS + 9, 9 if made is bytes else 4)


def test_greatest_time_is_that_of_what_is_left_when_the_greatest_was_deleted(volume: Volume):
    log = volume.log()
    times = [(BASE_MS + 90, 10), (BASE_MS + 5, 10), (BASE_MS + 50, 10), (BASE_MS + 7, 10)]
    for at, (newest, count) in enumerate(times):
        put(log, unopened(renumbered(a_client_batch(range(newest, newest + 1)), at * 10, count)))
    assert found_at(log, None) == (BASE_MS + 90, 0)
    log.advance_log_start(10)
    assert found_at(log, None) == (BASE_MS + 50, 20)
    log.advance_log_start(30)
    assert found_at(log, None) == (BASE_MS + 7, 30)


def test_greatest_time_is_in_a_later_segment_when_the_greatest_was_deleted(volume: Volume):
    log = volume.log()
    put(log, unopened(renumbered(a_client_batch(range(BASE_MS + 90, BASE_MS + 91)), 0, 10)))
    put(log, unopened(renumbered(a_client_batch(range(BASE_MS + 1, BASE_MS + 2)), 10, 10)))
    log.roll()
    put(log, unopened(renumbered(a_client_batch(range(BASE_MS + 3, BASE_MS + 4)), 20, 10)))
    log.advance_log_start(10)
    assert found_at(log, None) == (BASE_MS + 3, 20)


@pytest.mark.parametrize("made", [unopened, bytes])
def test_segments_that_were_deleted_whole_and_are_still_there_have_no_greatest_time(
    volume: Volume, made: Callable[[bytes], bytes]
) -> None:
    """Their files go with the next retention."""
    log = volume.log()
    for at, newest in enumerate((BASE_MS + 90, BASE_MS + 80, BASE_MS + 3)):
        put(log, made(renumbered(a_client_batch(range(newest, newest + 1)), at, 1)))
        log.roll()
    log.advance_log_start(2)
    assert len(log.segments) > 3
    assert found_at(log, None) == (BASE_MS + 3, 2)
    assert found_at(log, BASE_MS) == (BASE_MS + 3, 2)
    assert found_at(log, BASE_MS + 4) is None


def renumbered(batch: bytes, base: int, count: int) -> bytes:
    header = parse_header(batch)._replace(
        base_offset=base, last_offset_delta=count - 1, count=count
    )
    return seal(header, batch[HEADER_SIZE:])


@pytest.mark.parametrize(("delta_ms", "time"), [(2**63 - 1, -(2**63) + 999), (-1, 999)])
def test_time_that_does_not_fit_64_bits_is_what_a_java_client_reads(
    volume: Volume, delta_ms: int, time: int
) -> None:
    """No answer could hold it: the request of whoever asked got none."""
    log = volume.log()
    data = b"".join(a_record(n, delta_ms * (n == 0), b"k", b"v") for n in range(2))
    put(log, seal(BatchHeader(0, 0, 0, 2, 0, 0, 1, 1_000, 1_000, -1, -1, -1, 2), data))
    assert found_at(log, 999) == ((999, 0) if time == 999 else (1_000, 1))
    assert found_at(log, None) == (1_000, 1)
