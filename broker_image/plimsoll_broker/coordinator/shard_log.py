"""Reads a coordinator's partition from its log, batch by batch, in slices of a few milliseconds.

Called by the loaders of groups and of transactions. A log that cannot be read as a whole is never
served: the caller fails the shard, and the replica goes offline if another one can lead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from plimsoll_broker.background import SLICE_S
from plimsoll_broker.coordinator.coordinator_shard import CoordinatorShard
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_wire.batches import HEADER_SIZE, BatchError, BatchHeader, check_crc, iter_headers
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.record_sets import iter_records
from plimsoll_wire.records import BadRecords
from plimsoll_wire.versioned_fields import UnknownKeyedRecord

logger = logging.getLogger("plimsoll.shard_log")
READ_BYTES = 256 * 1024
UNKNOWN_MAX = 50
"""The most unknown kinds of records that are logged while one log is read."""
R = TypeVar("R")


class LoadSlices:
    """Lets other tasks run at the end of each time slice of SLICE_S seconds. `count`: the number of
    records visited so far."""

    def __init__(self) -> None:
        self.count = 0
        self._until_s = time.monotonic() + SLICE_S

    async def look(self) -> None:
        """Let other tasks run if the time slice is over, and begin the next slice."""
        if time.monotonic() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.monotonic() + SLICE_S


class UnreadableLog(Exception):
    """The records at `offset` cannot be read."""

    def __init__(self, offset: int, fault: StorageError) -> None:
        super().__init__(str(fault))
        self.offset = offset
        self.fault = fault


def unreadable(shard: CoordinatorShard[Any, Any], offset: int, sentence: str) -> UnreadableLog:
    """Return the error for corrupt records at this offset."""
    fault = StorageError(StorageFault.CORRUPT, shard.hosted.log.directory, sentence)
    return UnreadableLog(offset, fault)


def read_batches(
    shard: CoordinatorShard[Any, Any], offset: int, end: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the header and the body of each batch from `offset` to before `end`, until leadership
    ends. Raise UnreadableLog if they cannot be read, are corrupt, or end before `end`."""
    log = shard.hosted.log
    while offset < end and shard.leads:
        try:
            data = bytes(log.read(offset, READ_BYTES, end))
            headers = list(iter_headers(data))
        except StorageError as error:
            raise UnreadableLog(offset, error) from error
        except BatchError as error:
            raise unreadable(shard, offset, str(error)) from error
        if not headers:
            raise unreadable(shard, offset, "the log ends in unreadable records")
        position, view = 0, memoryview(data)
        for header in headers:
            if not check_crc(view, position, header.length):
                raise unreadable(
                    shard,
                    header.base_offset,
                    "the CRC of the record batch does not match its content",
                )
            body = data[position + HEADER_SIZE : position + header.length]
            position += header.length
            offset = header.next_offset
            yield header, body


def read_records(
    shard: CoordinatorShard[R, Any],
    header: BatchHeader,
    body: bytes,
    decode: Callable[[bytes | None, bytes | None], R | UnknownKeyedRecord],
) -> Iterator[tuple[int, R | None]]:
    """Yield the offset of each record of a batch with the record, or with None if only a newer
    release can read it: it counts as replayed. Yield nothing of a control batch. Raise
    UnreadableLog if the batch cannot be decoded."""
    if header.is_control:
        return
    try:
        for offset, key, value in iter_records(header, body):
            record = decode(key, value)
            if isinstance(record, UnknownKeyedRecord):
                _say_unknown(shard, record)
                shard.skip(offset)
                yield offset, None
            else:
                yield offset, record
    except (BadRecords, MalformedMessage) as error:
        raise unreadable(shard, header.base_offset, str(error)) from error


def _say_unknown(shard: CoordinatorShard[Any, Any], record: UnknownKeyedRecord) -> None:
    """Log an unknown record, once for each type and version."""
    if record not in shard.unknown and len(shard.unknown) < UNKNOWN_MAX:
        shard.unknown.add(record)
        logger.warning(
            "%r: this broker skips records of type %d (version %s), which only a newer release can "
            "read; they stay in the log; upgrade this broker to use them",
            shard.hosted,
            record.record_type,
            record.version,
        )
