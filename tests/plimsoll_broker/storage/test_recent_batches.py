"""The newest batches of a led log are in memory, exactly as written, until anything is cut."""

import pytest
from tests.plimsoll_broker.storage.conftest import a_batch

from plimsoll_broker.storage.disk import DiskFile, StorageError, StorageFault
from plimsoll_broker.storage.log_reading import (
    KEPT_BYTES,
    LOG_BATCHES,
    LOG_BYTES,
    RecentBatches,
    RecentMemory,
)
from plimsoll_wire.batches import iter_headers, parse_header


def produce(log, size=100):
    data = bytearray(a_batch(log.log_end_offset, size=size))
    log.append(memoryview(data), [parse_header(data)], keep=True)
    return bytes(data)


@pytest.fixture
def log(volume):
    """Three batches of ten records, all of them kept."""
    log = volume.log()
    for _ in range(3):
        produce(log)
    assert len(log.recent) == 3
    return log


def found(log, offset, max_bytes=10**6, up_to=None):
    data = log.recent.read(offset, max_bytes, log.log_end_offset if up_to is None else up_to)
    return None if data is None else bytes(data)


def test_recent_batches_are_what_the_file_holds(log):
    for offset in (0, 10, 20):
        for max_bytes in (1, 161, 330, 10**6):
            for up_to in (5, 10, 19, 20, 30):
                expected = bytes(log.read(offset, max_bytes, up_to))
                assert found(log, offset, max_bytes, min(up_to, 30)) == expected or offset >= up_to


def test_recent_batches_respect_the_readers_limit(log):
    assert found(log, 20, up_to=25) == b""
    assert [h.base_offset for h in iter_headers(found(log, 0, up_to=20))] == [0, 10]


def test_recent_batches_ignore_offsets_inside_a_batch(log):
    assert found(log, 15) is None
    assert found(log, 30) is None
    assert found(log, 999) is None


def test_recent_batches_are_forgotten_on_truncation(log):
    log.truncate_to(20)
    assert found(log, 10) is None
    assert found(log, 20) is None
    data = produce(log, size=50)
    assert found(log, 20) == data
    assert found(log, 0) is None


def test_recent_batches_are_forgotten_on_restart(log):
    log.discard_to(100)
    assert (len(log.recent), log.recent.used) == (0, 0)


def test_recent_batches_are_forgotten_when_an_append_fails(log, monkeypatch):
    full = StorageError(StorageFault.FULL, log.directory, "no room")

    def append(file, data):
        raise full

    monkeypatch.setattr(DiskFile, "append", append)
    with pytest.raises(StorageError):
        produce(log)
    assert len(log.recent) == 0


def test_recent_batches_are_forgotten_when_log_fails(log):
    log.give_up(StorageError(StorageFault.IO, log.directory, "broken"))
    assert len(log.recent) == 0


def test_recent_batches_are_forgotten_on_deletion(log, volume):
    memory = volume.store.recent
    assert memory.used == log.recent.used > 0
    volume.store.delete_log(log, 0)
    assert (len(log.recent), memory.used) == (0, 0)


def test_recent_batches_are_forgotten_when_segments_are_removed(log):
    while len(log.segments) < 3:
        produce(log, size=900)
    log.advance_log_start(log.segments[1].base_offset)
    log.remove_first(1)
    assert len(log.recent) == 0


def test_recent_batches_are_forgotten_on_follower_append(log):
    data = a_batch(30)
    log.append(data, [parse_header(data)])
    assert len(log.recent) == 0
    produce(log)
    assert (found(log, 30), len(log.recent)) == (None, 1)


def test_recent_batches_survive_a_roll(log):
    while len(log.segments) < 2:
        produce(log)
    for segment in log.segments:
        at = segment.base_offset
        assert found(log, at) == bytes(log.read(at, 10**6, 10**6))


def kept(recent, base, size, whole=None):
    data = bytearray(whole or 0) + bytearray(a_batch(base, size=size))
    recent.keep(memoryview(data)[whole or 0 :], parse_header(data, whole or 0), 0)


def test_recent_batches_of_one_log_are_bounded():
    recent = RecentBatches(RecentMemory(10 * LOG_BYTES))
    for number in range(3 * LOG_BATCHES):
        kept(recent, number * 10, 100)
    assert len(recent) == LOG_BATCHES
    for number in range(3 * LOG_BATCHES, 3 * LOG_BATCHES + 20):
        kept(recent, number * 10, LOG_BYTES // 4)
        assert recent.used <= LOG_BYTES
    kept(recent, 10**6, 2 * LOG_BYTES)
    assert (len(recent), recent.used) == (0, 0)


def test_recent_batches_of_all_logs_are_bounded():
    memory = RecentMemory(4_000)
    logs = [RecentBatches(memory) for _ in range(3)]
    for number in range(50):
        for recent in logs:
            kept(recent, number * 10, 600)
            assert memory.used == sum(one.used for one in logs) <= 4_000
    assert [len(recent) for recent in logs] == [1, 1, 2]
    for recent in logs:
        recent.forget()
    assert memory.used == 0


def test_small_recent_batch_of_large_request_is_copied():
    memory = RecentMemory()
    recent = RecentBatches(memory)
    kept(recent, 0, 100, whole=100_000)
    assert memory.used == 161 + KEPT_BYTES
    kept(recent, 10, 60_000, whole=100_000)
    assert (len(recent), memory.used) == (0, 0)


def test_bytes_between_offsets_are_of_batches_between(volume, a_batch):
    log = volume.log()
    ends = [0]
    sizes = []
    for base in range(0, 500, 10):
        batch = memoryview(a_batch(base, size=base))
        log.append(batch, list(iter_headers(batch)), keep=base > 300)
        ends.append(base + 10)
        sizes.append(len(batch))
    assert len(log.segments) > 3
    for recent in (True, False):
        if not recent:
            log.recent.forget()
        for first in range(0, len(ends), 7):
            for last in range(first, len(ends)):
                between = log.reader.bytes_between(ends[first], ends[last])
                assert between == sum(sizes[first:last]), (ends[first], ends[last])
