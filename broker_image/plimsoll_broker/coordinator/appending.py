"""TurnAppends: a shard's records of one turn of the event loop, written at its end as one batch.

Owned by a shard, which checks its right to append before it decides (`may_append`). Records that
exceed `max.message.bytes` become several batches. A failing disk takes the replica offline, and the
shard with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica import next_place
from plimsoll_wire.batches import HEADER_SIZE, parse_header
from plimsoll_wire.record_sets import KeyValue, size_of, write_batch

RECORDS_AT_ONCE = 10_000
"""Records in one batch."""


class TurnAppends:
    """The appends of one leader epoch of one partition."""

    __slots__ = ("_due", "_hosted", "_leader", "_manager", "_queue")

    def __init__(self, manager: ReplicaManager, hosted: Hosted, leader: Leader) -> None:
        self._manager = manager
        self._hosted = hosted
        self._leader = leader
        # Records that are decided and applied, to be written before other tasks run.
        self._queue: list[KeyValue] = []
        self._due = False

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._hosted.log.log_end_offset + len(self._queue)

    @property
    def record_bytes_max(self) -> int:
        """The bytes that a batch may hold besides its header."""
        return self._hosted.max_message_bytes - HEADER_SIZE

    def fits(self, record: KeyValue) -> bool:
        """Return True if one batch can hold the record."""
        return size_of(record) <= self.record_bytes_max

    def add(self, records: list[KeyValue]) -> None:
        self._queue += records
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.write)

    def write(self) -> None:
        """Write all records of this turn. On the commit path: an error is not caught."""
        self._due = False
        queue, self._queue = self._queue, []
        hosted, manager = self._hosted, self._manager
        stamp_ms = manager.wall_clock.stamp_ms()
        for records in self._batches(queue):
            place = next_place(hosted.replica, self._leader)
            if place is None:
                return  # leadership ended; the replica has failed the waiting requests
            data = write_batch(records, stamp_ms)
            header = parse_header(data)
            written = manager.driver.append_produced(hosted, memoryview(data), header, place, None)
            manager.touch(hosted)
            if not written:
                return
            manager.traffic.bytes_in += header.length
            manager.traffic.records_in += header.count

    def _batches(self, queue: list[KeyValue]) -> Iterator[list[KeyValue]]:
        room = self._hosted.max_message_bytes - HEADER_SIZE
        batch: list[KeyValue] = []
        size = 0
        for record in queue:
            more = size_of(record)
            if batch and (size + more > room or len(batch) >= RECORDS_AT_ONCE):
                yield batch
                batch, size = [], 0
            batch.append(record)
            size += more
        if batch:
            yield batch
