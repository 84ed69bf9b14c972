"""Loads a partition of `__consumer_offsets` into its shard, in slices of a few milliseconds.

Called by `roles` for one shard after another. The log is read to its end at the start of the leader
epoch: only the shard itself appends to it later. A log that cannot be read as a whole is never
served: the shard fails, and the replica goes offline if another one can lead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from plimsoll_broker.background.time_slices import SLICE_S
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.coordinator.unloaded_groups import (
    Rereading,
    delete_read,
    has_spare,
    make_room,
    next_deletions,
    next_to_load,
)
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.records import GroupRecord
from plimsoll_wire.batches import (
    HEADER_SIZE,
    BatchError,
    BatchHeader,
    check_crc,
    iter_headers,
)
from plimsoll_wire.coordinator_records import UnknownGroupRecord, decode_group_record
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.record_sets import iter_records
from plimsoll_wire.records import BadRecords

logger = logging.getLogger("plimsoll.coordinator")

READ_BYTES = 256 * 1024
UNKNOWN_MAX = 50
"""Unknown kinds of records that are logged, for one log."""


class _Slices:
    """Lets other tasks run when a slice is over. `count`: records so far."""

    def __init__(self) -> None:
        self.count = 0
        self._until_s = time.monotonic() + SLICE_S

    async def look(self) -> None:
        if time.monotonic() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.monotonic() + SLICE_S


async def load(
    manager: ReplicaManager,
    shard: GroupShard,
    beside: Iterable[GroupShard],
    shards: Callable[[], list[GroupShard]],
) -> None:
    """Load the shard until it is active or failed, or no longer leads. `beside`: the shards that
    are next. `shards`: all of this broker, which share its memory."""
    hosted = shard.hosted
    # A new log must be durable before its first append. All at once, since each sync may take long.
    places = [(one.hosted.name, one.hosted.key.index) for one in (shard, *beside)]
    await manager.flusher.make_durable(manager.store, places)
    if not shard.leads:
        return
    began_s, end = time.monotonic(), hosted.log.log_end_offset
    slices = _Slices()
    if not await _read(manager, _Pass(shard, shard.replay, shards, slices), end):
        return
    if shard.leads:
        shard.reload_due = shard.holds_back
        shard.activate()
        if shard.holds_back:
            _say_unloaded(shard)
        logger.info(
            "%r: %d groups with %d offsets loaded from %d records in %d ms",
            hosted,
            len(shard.state.groups),
            shard.state.offsets,
            slices.count,
            (time.monotonic() - began_s) * 1000,
        )
        await shard.decide_held()


async def delete_asked(
    manager: ReplicaManager, shard: GroupShard, shards: Callable[[], list[GroupShard]]
) -> None:
    """Delete some of the groups whose deletion waits for their keys. One pass through the log
    serves as many as fit in memory."""
    memory = shard.state.memory.of_broker
    names = next_deletions(shard, memory)
    if not names:
        return
    if await _read_again(manager, shard, Rereading(shard, names, keys_alone=True), shards):
        rereading = shard.rereading
        assert isinstance(rereading, Rereading)
        await delete_read(shard, rereading)
    shard.rereading = None
    for name in names:
        # There was no memory for it meanwhile: its client must retry.
        for asker in shard.deletions.pop(name, ()):
            asker.answer(RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS))


async def load_again(
    manager: ReplicaManager,
    shard: GroupShard,
    shards: Callable[[], list[GroupShard]],
    *,
    unnamed: bool,
) -> None:
    """Load groups for which there is memory now. `unnamed`: also groups whose names did not fit,
    which succeeds once the cleaner has removed deleted ones from the log."""
    shard.reload_due = False
    memory = shard.state.memory.of_broker
    names: list[str] | None = next_to_load(shard, memory)
    if unnamed and shard.state.more_unloaded and has_spare(memory):
        names = None
    if names == []:
        return
    forgotten = shard.state.forgotten
    rereading = Rereading(shard, names, keys_alone=False)
    if await _read_again(manager, shard, rereading, shards):
        for name in list(rereading.names):
            shard.loaded_again(name)
        if names is None and shard.state.forgotten == forgotten:
            shard.state.more_unloaded = False
        logger.info("%r: %d more groups are loaded", shard.hosted, len(rereading.names))
        if shard.holds_back:
            _say_unloaded(shard)
    shard.rereading = None
    shard.sweep_due = True


async def _read_again(
    manager: ReplicaManager,
    shard: GroupShard,
    rereading: Rereading,
    shards: Callable[[], list[GroupShard]],
) -> bool:
    """Return True if the log was read to its end; nothing is appended to these groups meanwhile."""
    shard.rereading = rereading
    end = shard.hosted.log.log_end_offset
    reading = _Pass(shard, rereading.replay, shards, _Slices(), not rereading.keys_alone)
    done = await _read(manager, reading, end)
    return done and shard.leads


async def _read(manager: ReplicaManager, reading: _Pass, end: int) -> bool:
    """Return False if the log could not be read; the shard has failed then."""
    shard, hosted = reading.shard, reading.shard.hosted
    try:
        await _replay(reading, hosted.log.log_start_offset, end)
    except _Unreadable as error:
        if shard.leads:
            shard.fail()
            manager.driver.cannot_read(hosted, error.offset, error.fault)
            manager.touch(hosted)
        return False
    memory = shard.state.memory.of_broker
    if reading.makes_room and shard.holds_back and not has_spare(memory):
        await make_room(reading.shards(), memory)
    return True


def _say_unloaded(shard: GroupShard) -> None:
    pool = shard.state.memory.of_broker.pool
    logger.warning(
        "%r: no room for %s%d groups, whose clients are refused until there is (all groups take %d"
        " of %d bytes, %s holds most): delete groups that are not used any more, these too, or give"
        " the broker more memory",
        shard.hosted,
        "more than " if shard.state.more_unloaded else "",
        len(shard.state.unloaded),
        pool.used,
        pool.capacity,
        pool.largest() or "nobody",
    )


class _Unreadable(Exception):
    """The records at `offset` cannot be read."""

    def __init__(self, offset: int, fault: StorageError) -> None:
        super().__init__(str(fault))
        self.offset = offset
        self.fault = fault


class _Pass(NamedTuple):
    """One pass through a log. `replay` takes each record. `makes_room`: True if groups are unloaded
    to make room for what is read."""

    shard: GroupShard
    replay: Callable[[GroupRecord, int], None]
    shards: Callable[[], list[GroupShard]]
    slices: _Slices
    makes_room: bool = True


async def _replay(reading: _Pass, offset: int, end: int) -> None:
    shard = reading.shard
    log = shard.hosted.log
    while offset < end and shard.leads:
        try:
            data = bytes(log.read(offset, READ_BYTES, end))
            headers = list(iter_headers(data))
        except StorageError as error:
            raise _Unreadable(offset, error) from error
        except BatchError as error:
            raise _unreadable(shard, offset, str(error)) from error
        if not headers:
            raise _unreadable(shard, offset, "the log ends before its own end")
        position, view = 0, memoryview(data)
        for header in headers:
            if not check_crc(view, position, header.length):
                raise _unreadable(shard, header.base_offset, "the CRC does not match")
            body = data[position + HEADER_SIZE : position + header.length]
            position += header.length
            offset = header.next_offset
            await _records(reading, header, body)
    if shard.leads:
        shard.skip(end - 1)


async def _records(reading: _Pass, header: BatchHeader, body: bytes) -> None:
    if header.is_control:
        return
    shard, slices = reading.shard, reading.slices
    memory = shard.state.memory.of_broker
    try:
        for offset, key, value in iter_records(header, body):
            record = decode_group_record(key, value)
            if isinstance(record, UnknownGroupRecord):
                _say_unknown(shard, record)
                shard.skip(offset)
            else:
                reading.replay(record, offset)
                if reading.makes_room and memory.is_over:
                    await make_room(reading.shards(), memory)
            slices.count += 1
            await slices.look()
            if not shard.leads:
                return
    except (BadRecords, MalformedMessage) as error:
        raise _unreadable(shard, header.base_offset, str(error)) from error


def _unreadable(shard: GroupShard, offset: int, sentence: str) -> _Unreadable:
    fault = StorageError(StorageFault.CORRUPT, shard.hosted.log.directory, sentence)
    return _Unreadable(offset, fault)


def _say_unknown(shard: GroupShard, record: UnknownGroupRecord) -> None:
    """Log an unknown record, once for each type and version."""
    if record not in shard.unknown and len(shard.unknown) < UNKNOWN_MAX:
        shard.unknown.add(record)
        logger.warning(
            "%r holds records of type %d (version %s) that a newer release wrote: stepped over",
            shard.hosted,
            record.record_type,
            record.version,
        )
