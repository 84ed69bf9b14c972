"""Appends a transaction's batches and end markers to partitions that this broker leads.

Called by the marker sender, by the handler of WriteTxnMarkers, and by the simulator's writers
without a coordinator. The replica decides (`Replica.produce`, `Replica.end_transaction`), the
LogWriter writes.

`MarkerWriter`: writes markers of many partitions, and waits until they are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from plimsoll_broker.handler_failures import Answering
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.replica_values import Append, Duplicate
from plimsoll_wire.batches import parse_header
from plimsoll_wire.control_records import EndMarker, write_end_marker

COMMIT_MS_MAX = 5_000
"""The longest wait of a marker for its commit. It stays in the log; the sender sends another."""


def append_batch(
    manager: ReplicaManager, hosted: Hosted, data: bytearray
) -> Append | Duplicate | Code:
    """Append a producer's transactional batch. Return its place in the log, the place where the
    same batch is already, or the error. `data`: the batch; it must not change later."""
    header = parse_header(data)
    place = hosted.replica.produce(header, -1)
    return _write(manager, hosted, data, place)


def append_marker(
    manager: ReplicaManager,
    hosted: Hosted,
    producer: ProducerLife,
    marker: EndMarker,
    timestamp_ms: int,
) -> Append | Duplicate | Code:
    """Append the end marker of a producer's transaction. Return its place in the log, or the
    error."""
    place = hosted.replica.end_transaction(*producer, marker.coordinator_epoch)
    return _write(manager, hosted, write_end_marker(*producer, marker, timestamp_ms), place)


def _write(
    manager: ReplicaManager, hosted: Hosted, data: bytearray, place: Append | Duplicate | Code
) -> Append | Duplicate | Code:
    if not isinstance(place, Append):
        return place
    header = parse_header(data)
    written = manager.driver.append_produced(hosted, memoryview(data), header, place, None)
    manager.touch(hosted)
    return place if written else Code.KAFKA_STORAGE_ERROR


class PartitionMarker(NamedTuple):
    """A marker to write to one partition."""

    partition: TopicPartition
    producer: ProducerLife
    marker: EndMarker


class _WaitingMarkers:
    """The results of one call of `MarkerWriter.write`; `whole` completes once all are known."""

    def __init__(self) -> None:
        self.codes: list[tuple[PartitionMarker, Code]] = []
        self._left = 1
        self._whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self) -> None:
        self._left += 1

    def told(self, marker: PartitionMarker, code: Code) -> None:
        self.codes.append((marker, code))
        self.one_less()

    def one_less(self) -> None:
        self._left -= 1
        if not self._left and not self._whole.done():
            with Answering(self._whole):
                self._whole.set_result(None)

    async def whole(self) -> list[tuple[PartitionMarker, Code]]:
        self.one_less()
        await self._whole
        return self.codes


class _WaitingMarker:
    """The token of one marker's `AckWaiter`."""

    __slots__ = ("_marker", "_of")

    def __init__(self, of: _WaitingMarkers, marker: PartitionMarker) -> None:
        self._of = of
        self._marker = marker

    def answer(self, code: int) -> None:
        self._of.told(self._marker, Code(code))


class MarkerWriter:
    """Writes end markers to the partitions that this broker leads."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    async def write(self, markers: Sequence[PartitionMarker]) -> list[tuple[PartitionMarker, Code]]:
        """Append these markers, and return the result of each once it is committed or refused, in
        no particular order."""
        manager, waiting = self._manager, _WaitingMarkers()
        # A new log must be durable before its first append.
        await manager.flusher.make_durable(manager.store, [one.partition for one in markers])
        for one in markers:
            waiting.add()
            self._begin(one, waiting)
        return await waiting.whole()

    def _begin(self, one: PartitionMarker, waiting: _WaitingMarkers) -> None:
        manager, (topic, index) = self._manager, one.partition
        hosted = manager.by_name(topic, index)
        if hosted is None:
            waiting.told(one, manager.missing(manager.topic_id(topic), index))
            return
        taker = manager.marker_takers.get(topic)
        if taker is not None:
            placed: Append | Duplicate | Code = taker.write_marker(hosted, one.producer, one.marker)
        else:
            stamp_ms = manager.wall_clock.stamp_ms()
            placed = append_marker(manager, hosted, one.producer, one.marker, stamp_ms)
        if not isinstance(placed, Append):
            assert isinstance(placed, Code), "a marker has no sequence, so it is no duplicate"
            waiting.told(one, placed)
            return
        token = _WaitingMarker(waiting, one)
        deadline_ms = manager.now_ms() + COMMIT_MS_MAX
        hosted.replica.wait_for_commit(AckWaiter(placed.base_offset + 1, deadline_ms, token))
        manager.touch(hosted)
