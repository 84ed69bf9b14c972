"""Batches with keys, rounds of compaction on a log, and what a log says of each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.plimsoll_broker.storage.simulated import Machine

from plimsoll_broker.replication.log_cleaner import sealed_segments
from plimsoll_broker.storage.cleaner.newest_keys import SegmentRange
from plimsoll_broker.storage.cleaner.round import CleaningJob, Round
from plimsoll_broker.storage.cleaner.segment_swap import SegmentSwap
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_core.compaction.plan import groups
from plimsoll_wire.batches import HEADER_SIZE, BatchHeader, iter_headers, seal
from plimsoll_wire.compression import opened, packed
from plimsoll_wire.keyed_records import iter_keyed

Pair = tuple[bytes | None, bytes | None]
"""Key and value; a value of None deletes the key."""


def varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def a_record(delta: int, time_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + varint(time_delta) + varint(delta) + _field(key) + _field(value) + varint(0)
    return varint(len(body)) + body


def keyed_batch(
    base: int, pairs: Sequence[Pair], *, epoch: int = 0, codec: int = 0, **fields: int
) -> bytes:
    """Record n's time is 1000 + its offset."""
    records = b"".join(a_record(n, n, *pair) for n, pair in enumerate(pairs))
    count, time = len(pairs), 1000 + base
    header = BatchHeader(
        base, 0, epoch, 2, 0, codec, count - 1, time, time + count - 1, -1, -1, -1, count
    )
    return seal(header._replace(**fields), packed(codec, records))


def put(log: Log, *pairs: Pair, **fields: int) -> None:
    """One batch at the log's end."""
    data = keyed_batch(log.log_end_offset, pairs, **fields)
    log.append(data, list(iter_headers(data)))


def batches(log: Log) -> Iterator[tuple[BatchHeader, bytes]]:
    """All of a log, as a reader goes through it."""
    offset = log.log_start_offset
    while chunk := bytes(log.read(offset, 300, log.log_end_offset)):
        at = 0
        for header in iter_headers(chunk):
            yield header, chunk[at : at + header.length]
            at += header.length
            offset = header.next_offset


def records(log: Log) -> list[tuple[int, int, bytes | None, bool]]:
    """Offset, time, key, and whether it deletes the key."""
    found = []
    for header, batch in batches(log):
        data = opened(header.codec, batch[HEADER_SIZE:], 2**20)
        for one in iter_keyed(data, header.count):
            time = header.base_timestamp + one.timestamp_delta
            found.append((header.base_offset + one.offset_delta, time, one.key, one.tombstone))
    return found


def latest(log: Log) -> dict[bytes, tuple[int, int, bool]]:
    """Of each key its last offset and time, and whether it is deleted: what K1 compares."""
    return {key: (at, time, gone) for at, time, key, gone in records(log) if key is not None}


def clean(
    log: Log,
    disk: Disk,
    *,
    now_ms: int | None = 10_000,
    first_dirty: int = 0,
    end: int | None = None,
    buffer_bytes: int = 2**20,
    retention_ms: int = 1_000,
) -> int:
    """A whole round, as the broker does it; returns where it ended."""
    sealed = sealed_segments(log)
    end = sealed[-1].end_offset if end is None else end
    job = CleaningJob(
        directory=str(log.directory),
        segments=tuple(SegmentRange(one.base_offset, one.end_offset) for one in sealed),
        first_dirty=first_dirty,
        end=end,
        now_ms=now_ms,
        delete_retention_ms=retention_ms,
        buffer_bytes=buffer_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
    )
    work = Round(disk, job, lambda size: None)
    by_base = {segment.base_offset: segment for segment in log.segments}
    end = work.measure()
    for group in groups(sealed, end, log.config.segment_bytes):
        made = SegmentSwap(log, disk, [by_base[one.base_offset] for one in group])
        if work.clean(made.bases).changed:
            swap(log, made)
    return end


def swap(log: Log, made: SegmentSwap) -> None:
    made.commit()
    log.unsynced.sync_names()
    made.install()
    log.unsynced.sync_names()
    made.finish()
    made.release()
    log.unsynced.sync_names()


# --- a log to clean ------------------------------------------------------------------------------

COMPACT = LogConfig(segment_bytes=400, compact=True, holes=True, delete=False)


def a_machine() -> Machine:
    return Machine(COMPACT)


def overwritten(machine: Machine, rounds: int = 12) -> Log:
    """Three keys, again and again; every segment holds two or three batches."""
    log = machine.log()
    for number in range(rounds):
        put(log, (b"a", b"%d" % number), (b"b", b"%d" % number))
        put(log, (b"c", b"x" * 40))
    log.flush()
    machine.store.checkpoint_recovery_points()
    return log


def whole(log: Log) -> None:
    """Segments, indexes, terms and times agree."""
    headers = [header for header, _ in batches(log)]
    for before, after in pairwise(headers):
        assert before.next_offset <= after.base_offset
    assert headers[-1].next_offset == log.log_end_offset
    ends = {header.next_offset for header in headers}
    assert {segment.base_offset for segment in log.segments[1:]} <= ends
    for header in headers:
        found = log.read(header.base_offset, 1, log.log_end_offset)
        assert bytes(found[:8]) == header.base_offset.to_bytes(8, "big")
    for segment in log.segments:
        for relative in range(len(segment.offset_index)):
            last, position = segment.offset_index[relative]
            assert segment._ends_at(position) == segment.base_offset + last
