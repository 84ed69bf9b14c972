"""Checks and reads one partition of a fetch.

Called by the fetch handler and by fetch sessions. The replica decides whether a follower's fetch
offset is accepted and what a client may see.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.disk import Buffer, StorageError, StorageFault
from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_values import EndOffset, FollowerFetch
from plimsoll_wire.batches import Batches, end_of
from plimsoll_wire.fetch import (
    READ_COMMITTED,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    Topic,
)

RESPONSE_BYTES_MAX = 16 * 2**20
WAIT_MS_MAX = 60_000


class ReadsTo(Enum):
    """The end of the records that a reader may read."""

    LOG_END = "a follower"
    HIGH_WATERMARK = "a consumer"
    STABLE_OFFSET = "a consumer of committed transactions"


def reads_to(request: FetchRequest) -> ReadsTo:
    if request.replica_id is not None:
        return ReadsTo.LOG_END
    if request.isolation_level == READ_COMMITTED:
        return ReadsTo.STABLE_OFFSET
    return ReadsTo.HIGH_WATERMARK


class FollowerIdentity(NamedTuple):
    """The fetching follower and its broker epoch. `acknowledged_ms`: the monotonic time in ms when
    the leader made the last reply on this connection, which this fetch acknowledges; None if there
    was none."""

    broker_id: int
    broker_epoch: int
    acknowledged_ms: int | None


class Asked(NamedTuple):
    """One partition of a Fetch request. `hosted`: the partition on this broker, or None. `refused`:
    the error with which it is answered without reading; None if it is read, so that `hosted` is
    set. `topic`: the topic's name, for the rights check at each look; None if unknown."""

    partition: FetchPartition
    hosted: Hosted | None
    refused: FetchedPartition | None
    topic: str | None = None


class Read(NamedTuple):
    """The result of reading all partitions of a fetch once (a look). `size`: the bytes read.
    `urgent`: True if a partition has an error or a divergence, which must be sent at once.
    `wanted`: the bytes of memory requested for the reply; `granted`: the bytes obtained."""

    topics: list[Topic]
    size: int
    urgent: bool
    granted: int
    wanted: int
    there: int
    """The bytes that count for the request's minimum, including those that were not read because of
    a batch boundary or a segment's end."""

    def is_enough(self, min_bytes: int) -> bool:
        """Return True if the result may be sent now: it has the `min_bytes` of the request, at most
        the largest reply, it is urgent, or there is no memory for more."""
        _, size, urgent, granted, wanted, there = self
        short = granted < wanted and size > 0
        return urgent or short or (there if size else 0) >= min(min_bytes, wanted)

    def missing(self, min_bytes: int) -> int:
        """Return how many more bytes the request needs, 0 if that is not known."""
        return 0 if self.starved else min(min_bytes, self.wanted) - self.there

    @property
    def starved(self) -> bool:
        """True if nothing could be read because no memory was granted."""
        return self.granted == 0 < self.wanted


def missing(manager: ReplicaManager, topic_id: UUID | None, index: int) -> FetchedPartition:
    """Return the error for a partition that this broker does not host. `topic_id`: None if there is
    no such topic."""
    code = Code.UNKNOWN_TOPIC_ID if topic_id is None else manager.missing(topic_id, index)
    return FetchedPartition(index, code)


def arrive(
    manager: ReplicaManager,
    hosted: Hosted,
    follower: FollowerIdentity,
    partition: FetchPartition,
    now_ms: int,
    had_all_ms: int | None = None,
) -> FetchedPartition | None:
    """Record a follower's fetch offset, which acknowledges all records below it, at the time
    `now_ms` (monotonic). `had_all_ms`: as in `FollowerFetch`. Return None, or the refusal if the
    replica does not accept the fetch; then nothing is recorded."""
    checked = hosted.replica.follower_fetch(
        FollowerFetch(
            follower.broker_id,
            follower.broker_epoch,
            partition.leader_epoch,
            partition.offset,
            partition.last_fetched_epoch,
            partition.log_start_offset or 0,
            follower.acknowledged_ms,
            had_all_ms,
        ),
        now_ms,
    )
    manager.touch(hosted)
    return None if checked is Code.NONE else refusal(partition.partition, checked)


def read(
    manager: ReplicaManager,
    hosted: Hosted,
    partition: FetchPartition,
    left: int,
    *,
    reads_to: ReadsTo,
) -> FetchedPartition:
    """Return records of one partition, at most `left` bytes and the partition's limit, but at least
    one batch if `left` is above 0, up to the end that the reader may read to. The result is an
    error instead if reading is not allowed or fails; an unreadable log may take the replica
    offline. For a consumer raise SearchUnfinished if the next call continues the search for the
    offset."""
    replica, log, index = hosted.replica, hosted.log, partition.partition
    for_follower = reads_to is ReadsTo.LOG_END
    checked = fault(manager, hosted, partition, for_follower=for_follower)
    if checked is not None:
        return refusal(index, checked)
    if reads_to is ReadsTo.STABLE_OFFSET:
        return _read_stable(manager, hosted, partition, left)
    high_watermark = replica.high_watermark
    end = log.log_end_offset if for_follower else high_watermark
    records: Buffer | Batches = b""
    if left > 0 and partition.offset < end:
        try:
            size = min(partition.max_bytes, left)
            # From memory, where most readers at the log end find them, or else from the files.
            found = log.recent.read(partition.offset, size, end)
            if found is None:
                found = log.read(partition.offset, size, end, in_steps=not for_follower)
            records = found
        except StorageError as error:
            return _unreadable(manager, hosted, partition, error)
    stable = replica.last_stable_offset if log.transactional else None
    return FetchedPartition(
        index, Code.NONE, high_watermark, log.log_start_offset, records, stable_offset=stable
    )


def _unreadable(
    manager: ReplicaManager, hosted: Hosted, partition: FetchPartition, error: StorageError
) -> FetchedPartition:
    manager.driver.cannot_read(hosted, partition.offset, error)
    manager.touch(hosted)
    return FetchedPartition(partition.partition, Code.KAFKA_STORAGE_ERROR)


def _read_stable(
    manager: ReplicaManager, hosted: Hosted, partition: FetchPartition, left: int
) -> FetchedPartition:
    """Return records up to the last stable offset, as `read` does, with the aborted transactions
    that the reader has to leave out."""
    replica, log, offset = hosted.replica, hosted.log, partition.offset
    stable = replica.last_stable_offset
    records: Buffer | Batches = b""
    aborted: list[tuple[int, int]] = []
    if left > 0 and offset < stable:
        size, end = min(partition.max_bytes, left), log.aborted_up_to(offset, stable)
        try:
            found = log.recent.read(offset, size, end)
            if found is None:
                found = log.read(offset, size, end, in_steps=True)
            if log.transactional and len(found):
                aborted = log.aborted_transactions(offset, end_of(found))
            records = found
        except StorageError as error:
            return _unreadable(manager, hosted, partition, error)
    return FetchedPartition(
        partition.partition,
        Code.NONE,
        replica.high_watermark,
        log.log_start_offset,
        records,
        stable_offset=stable,
        aborted=aborted,
    )


def read_own_copy(
    hosted: Hosted, partition: FetchPartition, left: int, *, starved: bool, reads_to: ReadsTo
) -> FetchedPartition:
    """Return committed records of this broker's replica, leader or not, from its files as they are,
    at most `left` bytes. A reader of committed transactions gets those below this replica's last
    stable offset, with the aborted transactions that it has to leave out. The error is
    CORRUPT_MESSAGE if the files hold no whole batch at the offset, KAFKA_STORAGE_ERROR if the disk
    failed, REQUEST_TIMED_OUT if there are records, but no memory for a reply (`starved`): the
    auditor asks again. Raise SearchUnfinished if the next call continues the search for the offset.

    An error has no effect on the replica, and its result states the log start: the reader is an
    auditor, which continues behind the error."""
    replica, log, index = hosted.replica, hosted.log, partition.partition
    is_stable = reads_to is ReadsTo.STABLE_OFFSET
    offset, stable = partition.offset, replica.last_stable_offset
    end = stable if is_stable else replica.high_watermark
    code = replica.own_copy_fetch(offset)
    records: Buffer = b""
    aborted: list[tuple[int, int]] | None = [] if is_stable else None
    if code is Code.NONE and starved and offset < end:
        code = Code.REQUEST_TIMED_OUT
    if code is Code.NONE and left > 0 and offset < end:
        size = min(partition.max_bytes, left)
        if is_stable:
            end = log.aborted_up_to(offset, end)
        try:
            found = log.read_stored(offset, size, end)
            if is_stable and log.transactional and len(found):
                aborted = log.aborted_transactions(offset, min(end_of(found), end))
            records = found
        except StorageError as error:
            corrupt = error.fault is StorageFault.CORRUPT
            code = Code.CORRUPT_MESSAGE if corrupt else Code.KAFKA_STORAGE_ERROR
    return FetchedPartition(
        index,
        code,
        replica.high_watermark,
        log.log_start_offset,
        records,
        stable_offset=stable if log.transactional else None,
        aborted=aborted,
    )


def fault(
    manager: ReplicaManager, hosted: Hosted, partition: FetchPartition, *, for_follower: bool
) -> Code | EndOffset | None:
    """Return the error, or the divergence of the logs, that forbids reading from this offset.
    Return None if reading is allowed."""
    checked = hosted.replica.consumer_fetch(
        partition.offset, partition.leader_epoch, partition.last_fetched_epoch
    )
    if checked is Code.NONE and not for_follower and not manager.may_serve(hosted):
        return Code.NOT_LEADER_OR_FOLLOWER
    return None if checked is Code.NONE else checked


def refusal(index: int, answer: Code | EndOffset) -> FetchedPartition:
    if isinstance(answer, EndOffset):
        return FetchedPartition(index, Code.NONE, diverging=answer)
    return FetchedPartition(index, answer)
