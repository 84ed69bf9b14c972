"""A log rolls for the age of its segment's first record, and not for ever."""

from uuid import UUID

import pytest
from immutables import Map

from plimsoll_broker.replication.hosted_partitions import log_config
from plimsoll_broker.storage import log as log_module
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment_room import OWN_SEGMENTS, SEGMENT_BYTES
from plimsoll_core.cluster.model import Topic
from plimsoll_wire.batches import iter_headers

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
LAG = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1"}


def a_topic(configs, name="orders"):
    configs = Map(configs)
    return Topic(
        id=TOPIC_ID, name=name, partitions=1, replication_factor=1, min_isr=1, configs=configs
    )


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


@pytest.mark.parametrize(
    "configs", [{"segment.ms": "1"}, {"segment.index.bytes": "4"}, {"segment.bytes": "14"}, LAG]
)
def test_stored_config_below_its_floor_is_raised(volume, a_batch, configs):
    """One batch made one segment, of four files and 3 KB of memory."""
    volume.config = log_config(a_topic({**configs, "index.interval.bytes": "0"}), {})
    log = volume.log()
    for number in range(100):
        batch = a_batch(number, count=1, size=8, max_timestamp=10 * number)
        log.append(batch, list(iter_headers(batch)))
    assert len(log.segments) == 1


def test_internal_topics_keep_configs_below_the_floors():
    configs = {"segment.bytes": "1000"}
    assert log_config(a_topic(configs, "__consumer_offsets"), {}).segment_bytes == 1_000
    assert log_config(a_topic(configs), {"log.segment.bytes": "300"}).segment_bytes == 1_000


def test_segments_of_all_logs_are_shared_fairly(volume, a_batch, monkeypatch):
    """370 logs of one client held a gibibyte, and were loaded at each start."""
    monkeypatch.setattr(log_module, "LARGE_BYTES", 5_000)
    store = volume.start()
    store.segment_room.bound(30 * SEGMENT_BYTES)

    def a_log(index, owner):
        config = LogConfig(segment_bytes=14, owner=owner)
        made = store.open_log("orders", TOPIC_ID, index, config, 0)
        for number in range(40):
            batch = a_batch(number, count=1, size=8)
            made.append(batch, list(iter_headers(batch)))
        return made

    one, two = a_log(0, "User:mallory"), a_log(1, "User:mallory")
    assert len(one.segments) == OWN_SEGMENTS + 15
    assert len(two.segments) == OWN_SEGMENTS, "as many as its partition has memory for"
    assert len(a_log(2, "User:alice").segments) == OWN_SEGMENTS + 7
    for number in (40, 41):
        batch = a_batch(number, count=1, size=5_000)
        two.append(batch, list(iter_headers(batch)))
    assert len(two.segments) == OWN_SEGMENTS + 1, "the disk bounds the number of large ones"
    one.truncate_to(5)
    assert store.segment_room.pool.held("User:mallory") == 2
    store.delete_log(one, 0)
    assert store.segment_room.pool.held("User:mallory") == 1


def test_segments_found_at_a_start_are_counted(volume, a_batch):
    volume.config = LogConfig(segment_bytes=14, owner="User:mallory")
    log = volume.log()
    for number in range(20):
        batch = a_batch(number, count=1, size=8)
        log.append(batch, list(iter_headers(batch)))
    log.close(clean=False)
    again = volume.log()
    again.configure(volume.config)
    assert len(again.segments) == 20
    assert volume.store.segment_room.pool.held("User:mallory") == 20 - OWN_SEGMENTS
