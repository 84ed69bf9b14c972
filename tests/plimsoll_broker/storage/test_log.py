"""A log holds what was appended, in Kafka's files, and gives back whole batches."""

from dataclasses import replace

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.plimsoll_broker.storage.conftest import found_at, retain

from plimsoll_broker.storage.disk import DiskFile
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import WRITE_BACK_BYTES
from plimsoll_wire.batches import iter_headers, stamp


def names(log):
    return sorted(path.name for path in log.directory.iterdir())


def test_log_reads_back_appended_batches_byte_for_byte(volume, a_batch):
    log = volume.log()
    data = b""
    for base in range(0, 500, 10):
        batch = a_batch(base, size=base)
        log.append(batch, list(iter_headers(batch)))
        data += batch
    assert (log.log_start_offset, log.log_end_offset) == (0, 500)
    assert len(log.segments) > 3
    assert log.size == len(data)
    position = 0
    offset = 0
    while chunk := log.read(offset, 700, 500):
        assert chunk == data[position : position + len(chunk)]
        position += len(chunk)
        offset = list(iter_headers(chunk))[-1].next_offset
    assert position == len(data)


def test_several_batches_in_one_append(volume, a_batch, read_all):
    log = volume.log()
    data = a_batch(0) + a_batch(10) + a_batch(20, 5)
    log.append(data, list(iter_headers(data)))
    assert log.log_end_offset == 25
    assert read_all(log) == data


def test_read_starts_with_batch_holding_the_offset(volume, fill):
    log = volume.log()
    fill(log, 40)
    for offset in (0, 9, 10, 133, 255, 399):
        first = next(iter_headers(log.read(offset, 500, 400)))
        assert first.base_offset <= offset <= first.last_offset


def test_read_never_reaches_the_limit_it_was_given(volume, fill):
    log = volume.log()
    fill(log, 40)
    for limit in (0, 5, 10, 11, 57, 100, 399):
        data = log.read(0, 10**6, limit)
        assert all(header.last_offset < limit for header in iter_headers(data))
    assert log.read(100, 10**6, 100) == b""
    assert log.read(400, 10**6, 400) == b""


def test_read_returns_at_least_one_batch(volume, a_batch):
    log = volume.log()
    big = a_batch(0, size=5000)
    log.append(big, list(iter_headers(big)))
    assert log.read(0, 10, 10) == big


def test_read_holds_little_more_than_it_returns(volume, a_batch):
    """What a reply holds is counted by its length: a mebibyte behind 71 bytes was not."""
    volume.config = LogConfig(segment_bytes=2**30)
    log = volume.log()
    for offset in range(40):
        batch = a_batch(offset, count=1, size=100_000 if offset % 2 else 10)
        log.append(batch, list(iter_headers(batch)))
    for offset in range(40):
        for max_bytes in (1, 1_000, 150_000, 350_000, 1_000_000):
            for limit in (offset + 1, offset + 4, 40):
                records = log.read(offset, max_bytes, limit)
                kept = len(getattr(records, "obj", records))
                assert kept <= len(records) * 9 / 8


def test_segment_ends_at_size_and_names_first_offset(volume, fill):
    log = volume.log()
    fill(log, 30)
    bases = [segment.base_offset for segment in log.segments]
    assert bases[:3] == [0, 120, 240]
    assert "00000000000000000120.log" in names(log)
    assert "00000000000000000120.snapshot" in names(log)
    assert all(segment.size <= 2_000 for segment in log.segments)


def test_segment_ends_at_its_age(volume, a_batch, fill):
    volume.config = LogConfig(segment_ms=1_000)
    log = volume.log()
    fill(log, 3)
    late = a_batch(30, max_timestamp=5_000)
    log.append(late, list(iter_headers(late)))
    assert [segment.base_offset for segment in log.segments] == [0, 30]


def test_appends_say_where_terms_begin(volume, fill):
    log = volume.log()
    fill(log, 3, epoch=1)
    fill(log, 2, epoch=4)
    assert log.epochs.entries == [(1, 0), (4, 30)]


def test_truncation_cuts_whole_batches_and_the_terms_behind(volume, fill, read_all):
    log = volume.log()
    fill(log, 20, epoch=1)
    fill(log, 20, epoch=2)
    kept = read_all(log)
    log.truncate_to(205)
    assert log.log_end_offset == 200, "the batch that holds the offset goes too"
    assert log.epochs.entries == [(1, 0), (2, 200)], "the term starts below the cut"
    log.truncate_to(195)
    assert log.log_end_offset == 190
    assert log.epochs.entries == [(1, 0)]
    assert read_all(log) == kept[: len(read_all(log))]
    fill(log, 1, epoch=3)
    assert log.epochs.entries == [(1, 0), (3, 190)]


def test_terms_go_even_when_no_record_does(volume, fill):
    log = volume.log()
    fill(log, 2, epoch=1)
    log.epochs.assign(2, 20)
    log.truncate_to(20)
    assert log.log_end_offset == 20
    assert log.epochs.entries == [(1, 0)]


def test_truncation_over_several_segments(volume, fill, read_all):
    log = volume.log()
    fill(log, 60)
    before = read_all(log)
    log.truncate_to(130)
    assert log.log_end_offset == 130
    assert read_all(log) == before[: len(read_all(log))]
    assert not [name for name in names(log) if name.startswith("00000000000000000240")]
    fill(log, 5)
    assert log.log_end_offset == 180


def test_recovery_point_is_on_disk_before_the_cut(volume, fill):
    log = volume.log()
    fill(log, 20)
    log.flush()
    volume.store.checkpoint_recovery_points()
    log.truncate_to(100)
    text = (volume.path / "recovery-point-offset-checkpoint").read_text()
    assert text.startswith("0\n1\norders 3 100\n")
    assert log.recovery_point == 100


def test_discarded_log_starts_again_where_it_is_told(volume, fill, read_all):
    log = volume.log()
    fill(log, 30, epoch=1)
    log.discard_to(5_000)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (5000, 5000, 0)
    log.settle()
    assert log.recovery_point == 5000
    assert log.epochs.entries == []
    assert read_all(log) == b""
    fill(log, 2, epoch=2)
    assert log.epochs.entries == [(2, 5_000)]
    again = volume.log()
    assert (again.log_start_offset, again.log_end_offset) == (5_000, 5_020)


def test_discarded_log_may_begin_within_a_batch(volume, a_batch, read_all):
    """A leader's log starts within a batch once a client has deleted the first records of it."""
    log = volume.log()
    log.discard_to(5_004)
    data = a_batch(5_000, epoch=3)
    log.append(data, list(iter_headers(data)))
    assert (log.log_start_offset, log.log_end_offset) == (5_004, 5_010)
    assert log.epochs.entries == [(3, 5_004)]
    assert read_all(log) == data
    again = volume.log()
    assert (again.log_end_offset, read_all(again)) == (5_010, data)


def test_log_truncated_within_first_batch_is_empty(volume, fill):
    """Found by seed 1206571: the batch went whole, and the log ended 16 offsets below its start."""
    log = volume.log()
    fill(log, 10, epoch=1)
    log.advance_log_start(85)
    log.truncate_to(87)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (87, 87, 0)
    assert not log.epochs.entries
    fill(log, 1, epoch=2)
    assert (log.log_start_offset, log.log_end_offset) == (87, 97)
    log.settle()
    again = volume.log()
    assert (again.log_start_offset, again.log_end_offset) == (87, 97)


def test_producers_match_the_log_end_after_truncation(volume, a_batch):
    log = volume.log()
    for base in range(0, 400, 10):
        data = a_batch(base, producer_id=7, producer_epoch=0, base_sequence=base)
        log.append(data, list(iter_headers(data)))
    log.truncate_to(155)
    *_, entry = log.producers.snapshot()
    assert (entry.producer_id, entry.last_sequence, entry.last_offset) == (7, 149, 149)


def test_truncated_log_knows_producer_of_first_batch(volume, fill):
    log = volume.log()
    fill(log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    fill(log, 1, producer_id=8, producer_epoch=0, base_sequence=0)
    fill(log, 1)
    log.advance_log_start(15)
    log.truncate_to(20)
    newest = [(entry.producer_id, entry.last_sequence) for entry in log.producers.snapshot()]
    assert newest == [(7, 9), (8, 9)]  # a retry of either is none that was never written


def test_retention_by_time_drops_whole_old_segments(volume, fill):
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=10_000)
    log = volume.log()
    fill(log, 40)
    assert retain(log, 11_050, 400) == 0
    start = retain(log, 11_300, 400)
    assert start == 240 == log.segments[0].base_offset
    assert log.epochs.entries == [(0, 240)]
    assert not [name for name in names(log) if name < "00000000000000000240"]


def test_time_retention_without_known_time_deletes_nothing(volume, fill):
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=50)
    log = volume.log()
    fill(log, 40)
    assert retain(log, None, 400) == 0
    assert retain(log, 10**12, 400) == 400


def test_retention_by_time_takes_the_last_segment_too(volume, fill):
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=10_000)
    log = volume.log()
    fill(log, 15)
    assert retain(log, 10**9, 150) == 150
    assert log.log_end_offset == 150
    fill(log, 1)
    assert log.log_end_offset == 160
    assert volume.log().log_end_offset == 160


def test_time_retention_keeps_the_active_segment(volume, fill):
    """Records of long ago, as suites of clients write them, can be read back."""
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=10_000, active_kept_ms=300_000)
    log = volume.log()
    fill(log, 15)
    last = log.segments[-1].base_offset
    written_ms = log.segments[-1].modified_ms()
    assert retain(log, written_ms + 299_000, 150) == last, "those before it go at once"
    fill(log, 1)
    assert retain(log, log.segments[-1].modified_ms() + 299_000, 160) == last
    assert retain(log, log.segments[-1].modified_ms() + 301_000, 160) == 160


def test_retention_by_size_keeps_at_least_that_much(volume, fill):
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=None, retention_bytes=4_000)
    log = volume.log()
    fill(log, 60)
    retain(log, 0, 600)
    assert 4_000 <= log.size < 6_100


def test_retention_never_goes_above_the_high_watermark(volume, fill):
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=1)
    log = volume.log()
    fill(log, 40)
    assert retain(log, 10**9, 130) == 120
    assert log.log_start_offset == 120


def test_log_without_delete_policy_keeps_everything(volume, fill):
    volume.config = LogConfig(segment_bytes=2_000, retention_ms=None)
    log = volume.log()
    fill(log, 40)
    assert retain(log, 10**12, 400) == 0


def test_log_start_between_segments_is_obeyed_by_reads(volume, fill):
    log = volume.log()
    fill(log, 40)
    log.advance_log_start(135)
    assert next(iter_headers(log.read(135, 100, 400))).base_offset == 130
    with pytest.raises(AssertionError):
        log.read(134, 100, 400)


# --- times ----------------------------------------------------------------------------------------


def client_batch(base, times):
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 100_000)
    for offset, timestamp in enumerate(times):
        builder.append(offset, timestamp, b"key", b"value", [])
    data = bytearray(builder.build())
    stamp(data, 0, base, 0)
    return data


def test_time_lookup_finds_first_record_at_or_after(volume):
    volume.config = LogConfig(segment_bytes=3_000, index_interval_bytes=200)
    log = volume.log()
    for base in range(0, 300, 10):
        data = client_batch(base, range(10_000 + 10 * base, 10_000 + 10 * base + 100, 10))
        log.append(data, list(iter_headers(data)))
    assert found_at(log, 0) == (10_000, 0)
    assert found_at(log, 10_000) == (10_000, 0)
    assert found_at(log, 10_001) == (10_010, 1)
    assert found_at(log, 11_990) == (11_990, 199)
    assert found_at(log, 12_990) == (12_990, 299)
    assert found_at(log, 12_991) is None
    assert found_at(log, None) == (12_990, 299)
    log.advance_log_start(55)
    assert found_at(log, 0) == (10_550, 55)


def test_times_that_go_back_still_find_the_first(volume):
    log = volume.log()
    for base, times in ((0, [500, 900, 100]), (3, [50, 60, 70]), (6, [900, 1000, 950])):
        data = client_batch(base, times)
        log.append(data, list(iter_headers(data)))
    assert found_at(log, 600) == (900, 1)
    assert found_at(log, 901) == (1000, 7)
    assert found_at(log, None) == (1000, 7)


def test_empty_log_has_no_times(volume):
    log = volume.log()
    assert found_at(log, 0) is None
    assert found_at(log, None) is None


def write_back(log: Log) -> None:
    if (begin := log.segments[-1].begin_write_back()) is not None:
        begin()


def test_write_back_starts_after_enough_bytes(volume, fill, monkeypatch):
    begun: list[tuple[int, int]] = []
    begin = DiskFile.begin_writing

    def noted(file: DiskFile, position: int, size: int) -> None:
        begun.append((position, size))
        begin(file, position, size)

    monkeypatch.setattr(DiskFile, "begin_writing", noted)
    volume.config = LogConfig(segment_bytes=2**30)
    log = volume.log()
    for _ in range(8):
        fill(log, 1, size=WRITE_BACK_BYTES // 3)
        write_back(log)
    batch = log.size // 8
    assert begun == [(0, 3 * batch), (3 * batch, 3 * batch)], "the rest is too little"
    log.truncate_to(10)
    for _ in range(3):
        fill(log, 1, size=WRITE_BACK_BYTES // 3)
        write_back(log)
    assert begun[2:] == [(batch, 3 * batch)], "what is in the place of what was cut"
    again = volume.log()
    write_back(again)
    assert len(begun) == 3, "what is there when a broker starts is none of its business"
    assert again.size == 4 * batch


def test_time_retention_ignores_future_record_timestamps(volume, fill):
    """Its client counted in microseconds: its segment is as old as its file."""
    volume.config = replace(volume.config, retention_ms=1_000)
    log = volume.log()
    fill(log, 1, max_timestamp=1_700_000_000_000_000)
    fill(log, 29)
    file_ms = log.segments[0].modified_ms()
    assert retain(log, file_ms, 300) == 0
    assert retain(log, file_ms + 2_000, 300) >= 240
    assert volume.log().log_start_offset >= 240


def test_retention_without_trusted_clock_uses_size_alone(volume, fill):
    volume.config = replace(volume.config, retention_ms=1_000, retention_bytes=4_000)
    log = volume.log()
    fill(log, 40)
    assert retain(log, None, 400) == 120
    assert retain(log, 10_000, 400) == 400
