"""A log rolls for the age of its segment's first record."""

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_wire.batches import iter_headers


def test_segment_that_was_cut_empty_is_as_old_as_what_is_appended_next(volume, a_batch):
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
