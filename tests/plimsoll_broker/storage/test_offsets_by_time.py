"""offsets_by_time: every answer is exact, and no more is read than needed."""

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.plimsoll_broker.storage.cleaning import a_record
from tests.plimsoll_broker.storage.conftest import Volume, a_batch, found_at

from plimsoll_broker.storage import offsets_by_time
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_wire.batches import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchError,
    BatchHeader,
    iter_headers,
    parse_header,
    seal,
)
from plimsoll_wire.compression import CODECS, GZIP, NONE, ZSTD, packed

RECORDS = 1_000
BASE_MS = 10_000


def put(log: Log, data: bytes) -> None:
    log.append(data, list(iter_headers(data)))


def a_client_batch(times: range) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for offset, timestamp in enumerate(times):
        builder.append(offset, timestamp, b"key", b"value", [])
    return bytes(builder.build())


def compressed(batch: bytes, codec: int) -> bytes:
    header = parse_header(batch)
    return seal(header._replace(attributes=codec), packed(codec, batch[HEADER_SIZE:]))


@pytest.fixture(params=[offsets_by_time.RECORDS_IN_STEP, 1], ids=["long-steps", "short-steps"])
def step_records(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """However far a step goes, the answers are the same."""
    monkeypatch.setattr(offsets_by_time, "RECORDS_IN_STEP", request.param)
    return request.param


pytestmark = pytest.mark.usefixtures("step_records")


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


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_search_stops_at_first_record_that_answers(volume: Volume, looked_at, codec: int):
    log = volume.log()
    put(log, compressed(a_client_batch(range(BASE_MS, BASE_MS + RECORDS)), codec))
    assert found_at(log, BASE_MS + 3) == (BASE_MS + 3, 3)
    assert looked_at == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_time_window_is_exact_at_both_ends(volume: Volume, codec: int):
    """A hundred records a second apart in one batch: ten lie in [50 s, 60 s)."""
    log = volume.log()
    put(log, compressed(a_client_batch(range(0, 100_000, 1_000)), codec))
    assert (found_at(log, 50_000), found_at(log, 60_000)) == ((50_000, 50), (60_000, 60))
    assert found_at(log, None) == (99_000, 99)


@pytest.mark.parametrize("size", [0, 10])
def test_batch_that_does_not_open_is_an_error(volume: Volume, size: int):
    """Ten records, its header says, and its bytes are none: no offset can be told."""
    log = volume.log()
    put(log, a_batch(0, 10, size=size) if size else unopened(a_client_batch(range(1_000, 1_010))))
    for timestamp in (1_005, None):
        with pytest.raises(BatchError):
            found_at(log, timestamp)


def test_record_outside_of_its_batch_is_an_error(volume: Volume):
    log = volume.log()
    header = parse_header(a_client_batch(range(BASE_MS, BASE_MS + 2)))
    outside = bytes([12, 0, 0, 20, 1, 1, 0])  # an offset delta of 10 in a batch of two
    put(log, seal(header._replace(max_timestamp=BASE_MS), outside + outside))
    with pytest.raises(BatchError):
        found_at(log, BASE_MS)


def stamped_by_the_log(batch: bytes) -> bytes:
    header = parse_header(batch)
    return seal(header._replace(attributes=LOG_APPEND_TIME), batch[HEADER_SIZE:])


def unopened(batch: bytes) -> bytes:
    """Its attributes say zstd, and its bytes are none."""
    return seal(parse_header(batch)._replace(attributes=ZSTD), b"z" * 40)


def zipped(batch: bytes) -> bytes:
    return compressed(batch, GZIP)


def test_log_append_time_answers_with_the_log_start(volume: Volume) -> None:
    """A client deleted the first records of a batch that the log stamped."""
    log = volume.log()
    put(log, stamped_by_the_log(a_client_batch(range(BASE_MS, BASE_MS + 10))))
    put(log, a_batch(10, 10, base_timestamp=BASE_MS + 10, max_timestamp=BASE_MS + 19))
    log.advance_log_start(4)
    assert found_at(log, BASE_MS) == (BASE_MS + 9, 4)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_search_within_a_batch_skips_deleted_records(volume: Volume, codec: int) -> None:
    log = volume.log()
    put(log, compressed(a_client_batch(range(BASE_MS, BASE_MS + 10)), codec))
    log.advance_log_start(4)
    assert found_at(log, BASE_MS) == (BASE_MS + 4, 4)
    assert found_at(log, None) == (BASE_MS + 9, 9)


def test_greatest_time_of_stamped_batch_is_log_start(volume: Volume) -> None:
    log = volume.log()
    put(log, stamped_by_the_log(a_client_batch(range(BASE_MS, BASE_MS + 10))))
    log.advance_log_start(4)
    assert found_at(log, None) == (BASE_MS + 9, 4)


def one_record(newest: int, base: int) -> bytes:
    """A batch of one record with that time, at offset `base`."""
    return renumbered(a_client_batch(range(newest, newest + 1)), base)


def test_greatest_time_ignores_deleted_records(volume: Volume):
    log = volume.log()
    for at, newest in enumerate((90, 5, 50, 7)):
        put(log, zipped(one_record(BASE_MS + newest, at)))
    assert found_at(log, None) == (BASE_MS + 90, 0)
    log.advance_log_start(1)
    assert found_at(log, None) == (BASE_MS + 50, 2)
    log.advance_log_start(3)
    assert found_at(log, None) == (BASE_MS + 7, 3)


def test_greatest_time_in_later_segment_is_found(volume: Volume):
    """The record with the greatest time was deleted."""
    log = volume.log()
    put(log, zipped(one_record(BASE_MS + 90, 0)))
    put(log, zipped(one_record(BASE_MS + 1, 1)))
    log.roll()
    put(log, zipped(one_record(BASE_MS + 3, 2)))
    log.advance_log_start(1)
    assert found_at(log, None) == (BASE_MS + 3, 2)


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_deleted_segments_with_files_have_no_time(volume: Volume, codec: int) -> None:
    """Their files go with the next retention."""
    log = volume.log()
    for at, newest in enumerate((BASE_MS + 90, BASE_MS + 80, BASE_MS + 3)):
        put(log, compressed(one_record(newest, at), codec))
        log.roll()
    log.advance_log_start(2)
    assert len(log.segments) > 3
    assert found_at(log, None) == (BASE_MS + 3, 2)
    assert found_at(log, BASE_MS) == (BASE_MS + 3, 2)
    assert found_at(log, BASE_MS + 4) is None


def test_batch_without_records_has_no_time(volume: Volume) -> None:
    """The cleaner keeps the last batch of a producer, though its records went."""
    log = volume.log()
    header = parse_header(a_client_batch(range(BASE_MS, BASE_MS + 3)))
    put(log, seal(header._replace(count=0, attributes=LOG_APPEND_TIME), b""))
    put(log, one_record(BASE_MS, 3))
    assert found_at(log, BASE_MS) == (BASE_MS, 3)


def renumbered(batch: bytes, base: int) -> bytes:
    return seal(parse_header(batch)._replace(base_offset=base), batch[HEADER_SIZE:])


@pytest.mark.parametrize(("delta_ms", "time"), [(2**63 - 1, -(2**63) + 999), (-1, 999)])
def test_out_of_range_time_reads_as_in_java(volume: Volume, delta_ms: int, time: int) -> None:
    """No answer could hold it: the request of whoever asked got none."""
    log = volume.log()
    data = b"".join(a_record(n, delta_ms * (n == 0), b"k", b"v") for n in range(2))
    put(log, seal(BatchHeader(0, 0, 0, 2, 0, 0, 1, 1_000, 1_000, -1, -1, -1, 2), data))
    assert found_at(log, 999) == ((999, 0) if time == 999 else (1_000, 1))
    assert found_at(log, None) == (1_000, 1)


@pytest.mark.parametrize("timestamp", [BASE_MS + 50, None], ids=["at-or-after", "newest"])
def test_search_through_batches_that_lie_takes_short_steps(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, timestamp: int | None
):
    """Whoever owns a topic can have a search open all of its batches in vain: with one step for a
    segment, it would have had a thread for as long as that took."""
    monkeypatch.setattr(offsets_by_time, "RECORDS_IN_STEP", 2 * offsets_by_time.OPENING_AS_RECORDS)
    opened = 0
    real = offsets_by_time.opened

    def counted(*arguments):
        nonlocal opened
        opened += 1
        return real(*arguments)

    monkeypatch.setattr(offsets_by_time, "opened", counted)
    volume.config = LogConfig(segment_bytes=1_000_000)
    log = volume.log()
    for number in range(40):
        batch = a_client_batch(range(BASE_MS, BASE_MS + 10))
        header = parse_header(batch)._replace(max_timestamp=BASE_MS + 100 + number)
        put(log, seal(header._replace(base_offset=log.log_end_offset), batch[HEADER_SIZE:]))
    log.advance_log_start(5)
    opened_by, before = [], 0
    for step in log.time_search(timestamp):
        found = step()
        opened_by.append(opened - before)
        before = opened
        if found is not None:
            break
    assert max(opened_by) <= 2
    assert opened >= 39
