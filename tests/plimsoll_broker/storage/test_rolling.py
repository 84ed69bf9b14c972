"""A log rolls for the age of its segment's first record, and not for ever."""

import pytest

from plimsoll_broker.storage import log as log_module
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_wire.batches import iter_headers


def test_emptied_segment_is_as_old_as_next_append(volume, a_batch):
    """And not as what was cut: it would roll at the second batch."""
    volume.config = LogConfig(segment_ms=1_000)
    log = volume.log()
    for base, at_ms in ((0, 1_000), (0, 50_000), (10, 50_100)):
        log.truncate_to(base)
        data = a_batch(base, base_timestamp=at_ms, max_timestamp=at_ms)
        log.append(data, list(iter_headers(data)))
    assert [segment.base_offset for segment in log.segments] == [0]
    log.truncate_to(10)
    data = a_batch(10, base_timestamp=51_100, max_timestamp=51_100)
    log.append(data, list(iter_headers(data)))
    assert [segment.base_offset for segment in log.segments] == [0, 10]


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(segment_bytes=14),
        LogConfig(segment_ms=1),
        LogConfig(segment_index_bytes=4),
        LogConfig(segment_index_bytes=24, index_interval_bytes=0),
    ],
    ids=["segment.bytes", "segment.ms", "segment.index.bytes", "index.interval.bytes"],
)
def test_log_never_has_one_segment_per_batch(volume, a_batch, monkeypatch, config):
    """A client may set these (segment.bytes in a Topic object), or write times that are a week
    apart: every descriptor of its broker was a segment of one batch, and no other log could be
    opened."""
    monkeypatch.setattr(log_module, "SEGMENTS_MANY", 20)
    volume.config = config
    log = volume.log()
    for number in range(100):
        batch = a_batch(number, count=1, max_timestamp=10 * number)
        log.append(batch, list(iter_headers(batch)))
    assert (len(log.segments), log.log_end_offset) == (20, 100)
    large = a_batch(100, count=1, size=log_module.SMALL_BYTES)
    log.append(large, list(iter_headers(large)))
    late = a_batch(101, count=1, max_timestamp=10_000)
    log.append(late, list(iter_headers(late)))
    assert len(log.segments) == 21, "the last one is not small any more"
