"""Logs on a real file system, and batches to put into them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from plimsoll_broker.replication.segment_removal import removable
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_broker.storage.offsets_by_time import Found
from plimsoll_wire.batches import BatchHeader, iter_headers, seal

CLUSTER_ID = UUID("11111111-2222-3333-4444-555555555555")
TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
DIRECTORY_ID = UUID("99999999-2222-3333-4444-555555555555")


def varint(value: int) -> bytes:
    """Zigzag, of a number that is not negative."""
    value, out = value << 1, bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def a_record_of(number: int, delta_ms: int, value_bytes: int) -> bytes:
    """No key, no headers."""
    value = varint(value_bytes) + b"r" * value_bytes
    body = b"\x00" + varint(delta_ms) + varint(number) + b"\x01" + value + b"\x00"
    return varint(len(body)) + body


def records_of(count: int, size: int, span_ms: int) -> bytes:
    """`count` records in exactly `size` bytes, a millisecond apart within the span; bytes that are
    no records where they do not fit."""
    small = b"".join(a_record_of(n, max(0, min(n, span_ms)), 0) for n in range(count - 1))
    for padding in range(2):  # a longer length may need a byte more
        first = a_record_of(0, 0, padding) if count > 1 else b""
        begun = first + small[len(a_record_of(0, 0, 0)) :] if count > 1 else b""
        for value_bytes in range(max(0, size - len(begun) - 20), size):
            last = a_record_of(count - 1, max(0, span_ms), value_bytes)
            if len(begun) + len(last) == size:
                return begun + last
    return b"r" * size


def a_batch(base: int, count: int = 10, *, epoch: int = 0, size: int = 100, **fields) -> bytes:
    """`count` records from `base` on; record n's time is 1000 + n unless said otherwise."""
    header = BatchHeader(
        base, 0, epoch, 2, 0, 0, count - 1, 1000 + base, 1000 + base + count - 1, -1, -1, -1, count
    )._replace(**fields)
    span_ms = header.max_timestamp - header.base_timestamp
    return seal(header, records_of(header.count, size, span_ms))


class Volume:
    """A data directory through several lives of a broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = LogConfig(segment_bytes=2_000)
        self.store: LogStore | None = None

    def start(self, disk: Disk | None = None) -> LogStore:
        """As the lifecycle does it."""
        if self.store is not None:
            self.store.release_lock()
        self.store = LogStore(self.path, disk)
        assert self.store.open() is None
        if self.store.meta is None:
            self.store.format(CLUSTER_ID, 1, DIRECTORY_ID)
        self.store.take_clean_marker()
        self.store.load(0)
        return self.store

    def log(self, disk: Disk | None = None) -> Log:
        """The one partition, opened in a new life (the old one simply ends)."""
        return self.start(disk).open_log("orders", TOPIC_ID, 3, self.config, 0)

    @property
    def directory(self) -> Path:
        return self.path / "orders-3"


def fill(log: Log, batches: int, **fields) -> None:
    """Append batches of ten records at the log's end."""
    for _ in range(batches):
        data = a_batch(log.log_end_offset, **fields)
        log.append(data, list(iter_headers(data)))


def retain(log: Log, now_ms: int | None, high_watermark: int) -> int:
    """Retention, as if every start were saved at once, and every name synced."""
    start = log.apply_retention(now_ms, high_watermark)
    log.unsynced.sync_names()
    log.remove_first(removable(log, start, 1_000))
    return start


def found_at(log: Log, timestamp: int | None) -> Found | None:
    """What a search finds, step by step; None asks for the greatest time."""
    steps = log.time_search(timestamp)
    return next((found for step in steps if (found := step()) is not None), None)


def read_all(log: Log, max_bytes: int = 500) -> bytes:
    """Every batch, as a consumer would go through them."""
    data = bytearray()
    offset = log.log_start_offset
    while chunk := log.read(offset, max_bytes, log.log_end_offset):
        data += chunk
        offset = list(iter_headers(chunk))[-1].next_offset
    return bytes(data)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    made = Volume(tmp_path / "data")
    yield made
    if made.store is not None:
        made.store.release_lock()


@pytest.fixture(name="a_batch")
def _a_batch() -> Callable[..., bytes]:
    return a_batch


@pytest.fixture(name="fill")
def _fill() -> Callable[..., None]:
    return fill


@pytest.fixture(name="read_all")
def _read_all() -> Callable[..., bytes]:
    return read_all
