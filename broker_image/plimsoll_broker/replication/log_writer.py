"""LogWriter: the only writer of online logs; takes a log offline when its disk fails.

Called by the replica manager, fetchers, the flusher, the periodic chores, and the handlers of
Produce and DeleteRecords. It decides nothing: `plimsoll_core.replica` decides where to append, what
to truncate and which requests to answer; its callers decide when to flush and what is old. A
failing disk takes offline only the replica of the log it held. The store opens, closes and deletes
whole logs; the replica itself notes leader epochs that begin without a record (`LogView`).

`Stepping`: steps the touched partitions once, at the end of a turn of the event loop. However many
events a partition has in a turn, it commits, answers and wakes once. Partitions beyond a portion
wait for the next turn, in order, so that other tasks run in between after an election of thousands,
or after a record that a thousand consumers wait for. Followers do not wait behind consumers: their
fetches acknowledge.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from plimsoll_broker.background import AT_ONCE, SLICE_S, in_thread
from plimsoll_broker.handler_failures import CommitPathFailed
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_broker.storage.cleaner.segment_swap import SegmentSwap
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import note_written
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.replica.follower import Reset
from plimsoll_core.replica.replica import Ready
from plimsoll_core.replica.replica_values import Append
from plimsoll_wire.batches import BatchHeader, placed, stamp, stamp_append_time

logger = logging.getLogger("plimsoll.log_writer")
_UNTIL = {
    StorageFault.FULL: "the disk has room again, and then returns by itself",
    StorageFault.DESCRIPTORS: "the process has free file descriptors, and then returns by itself",
}

_UNREAD = (
    "%r: records at offset %d of this broker's log cannot be read, so its replica goes offline, "
    "and the other replicas in sync serve the partition; check the broker's volume, then restart "
    "this broker, which copies damaged records from another replica: %s"
)
_UNREAD_BY_ONLY = (
    "%r: records at offset %d of this broker's log cannot be read, and no other replica is in "
    "sync, so this broker stays the leader and serves the other records; start the brokers of the "
    "other replicas; if none has the records, see "
    'docs/operations.md, "Skip an unreadable batch": %s'
)


def until_when(fault: StorageFault) -> str:
    """Return the condition that ends the offline time of a replica with this fault, for log
    lines."""
    return _UNTIL.get(fault, "this broker is restarted; remove the cause first")


class AckToken(Protocol):
    """The receiver of one partition's outcome, for a request that waits until records are committed
    or flushed. `answer` is called once, with NONE or the error code."""

    def answer(self, code: int) -> None: ...


class ParkedFetch(Protocol):
    """A Fetch request that waits for records, or a fetch session of many partitions. `moved` is
    called for each partition with something new to read. `wake` follows, once for all of them: for
    a follower in the same turn of the event loop, for a consumer perhaps in a later one."""

    @property
    def for_follower(self) -> bool: ...
    def moved(self, hosted: Hosted) -> None: ...
    def wake(self) -> None: ...


class LogOwner(Protocol):
    """The part of the replica manager that the LogWriter needs."""

    traffic: Traffic

    def is_here(self, hosted: Hosted) -> bool: ...
    def touch(self, hosted: Hosted) -> None: ...


class LogWriter:
    """Carries out every write, truncation, flush and removal on the online logs of one broker. Used
    from the event loop; syncs run in threads. Its only state is counts for the metrics."""

    def __init__(self, owner: LogOwner) -> None:
        self._owner = owner
        self._traffic = owner.traffic

    # --- leading --------------------------------------------------------------------------------

    def append_produced(
        self,
        hosted: Hosted,
        data: memoryview,
        header: BatchHeader,
        place: Append,
        append_time_ms: int | None,
    ) -> bool:
        """Write the base offset and leader epoch of `place` into a client's batch, append it to the
        log, and return True. The caller must not change the bytes later. `append_time_ms`: the
        timestamp of all its records in ms since 1970 (LogAppendTime); None keeps the producer's. If
        the disk failed, take the replica offline and return False. Any other error raises
        CommitPathFailed, which ends the process."""
        stamp(data, 0, place.base_offset, place.leader_epoch)
        if append_time_ms is not None:
            stamp_append_time(data, 0, header.length, append_time_ms)
            header = header._replace(max_timestamp=append_time_ms)
        try:
            hosted.log.append(data, (placed(header, *place),), keep=True)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        except Exception as error:
            raise CommitPathFailed(
                f"{hosted!r}: this broker could not append a produced record batch to its log"
            ) from error
        hosted.replica.wrote()
        return True

    def role_taken(self, hosted: Hosted) -> None:
        """If this replica has become leader although its log is incomplete, log that, and save the
        log's present bounds before the replica serves: the log then counts as complete. Otherwise
        the next restart would mark the replica as incomplete again, and it would be elected last.
        Do nothing if it is a follower or its log is complete. If the disk fails, take the replica
        offline."""
        log = hosted.log
        if not log.incomplete or hosted.replica.leader is None:
            return
        lost = "the beginning" if log.beginning_lost else "the last records of keys"
        logger.warning(
            "%r: this broker was elected leader of the partition although its log lost %s, so "
            "acknowledged records may be lost for good; write them again from their source if "
            "you need them",
            *(hosted, lost),
        )
        try:
            log.notes.begins(log.log_start_offset)
            log.notes.supersedes_below(log.log_end_offset)
        except StorageError as error:
            self.fail(hosted, error)
        else:
            log.beginning_lost = log.superseding_lost = False

    def fail(self, hosted: Hosted, error: StorageError) -> None:
        """Take the replica offline after a storage error: its log is no longer trusted."""
        logger.error(
            "%r: the replica on this broker is offline until %s; replicas in sync on other brokers "
            "serve the partition; if there are none, it has no leader: %s",
            *(hosted, until_when(error.fault), error),
        )
        hosted.log.give_up(error)  # it may be half truncated, so it is never closed cleanly
        hosted.replica.fail()

    # --- following ------------------------------------------------------------------------------

    def append_fetched(
        self, hosted: Hosted, data: memoryview, headers: Sequence[BatchHeader]
    ) -> bool:
        """Append a leader's batches unchanged. If the disk failed, take the replica offline and
        return False."""
        log = hosted.log
        try:
            log.append(data, headers)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        if log.countable_end < log.log_end_offset:
            # A fetcher that is ended now flushes nothing, and the next one waits for the flush.
            self._owner.touch(hosted)
        return True

    def truncate(self, hosted: Hosted, offset: int) -> bool:
        """Remove the records at and above `offset`. If the disk failed, take the replica offline
        and return False."""
        logger.info(
            "%r: this broker, a follower, truncates its log to offset %d (the log ended at %d) "
            "to match the leader's log",
            *(hosted, offset, hosted.log.log_end_offset),
        )
        self._note_cut(hosted, offset)
        try:
            hosted.log.truncate_to(offset)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        hosted.replica.cut()
        return True

    def reset(self, hosted: Hosted, reset: Reset) -> bool:
        """If `reset.discard`, remove all records and let the log begin at `reset.offset`; otherwise
        remove those at and above `reset.offset`. If the disk failed, take the replica offline and
        return False."""
        if not reset.discard:
            return self.truncate(hosted, reset.offset)
        logger.info(
            "%r: this broker, a follower, cannot continue its log from the leader's log, so it "
            "discards its log and copies the leader's from offset %d",
            *(hosted, reset.offset),
        )
        self._note_cut(hosted, hosted.log.log_start_offset)
        try:
            hosted.log.discard_to(reset.offset)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        hosted.replica.cut()
        return True

    def _note_cut(self, hosted: Hosted, offset: int) -> None:
        """Count a truncation to `offset`, and the offsets that it removes, for the metrics."""
        self._traffic.truncations += 1
        self._traffic.truncated_records += max(0, hosted.log.log_end_offset - offset)

    def advance_log_start(self, hosted: Hosted, offset: int) -> None:
        """Raise the log start to `offset`, at most to the log end. Do nothing if it is as high
        already."""
        log = hosted.log
        if offset > log.log_start_offset:
            log.advance_log_start(min(offset, log.log_end_offset))

    def cannot_read(self, hosted: Hosted, offset: int, error: StorageError) -> None:
        """Handle an error on reading records at `offset`. If the ISR has other members, take the
        replica offline, and if the records are corrupt, have the next start truncate the log at
        `offset`. The only member of the ISR stays online and serves the other records. The error is
        logged in any case."""
        is_only = len(hosted.replica.partition.isr) < 2
        logger.error(_UNREAD_BY_ONLY if is_only else _UNREAD, hosted, offset, error)
        if is_only or hosted.replica.failed:
            return
        if error.fault is StorageFault.CORRUPT:
            try:
                hosted.log.distrust(offset)
            except StorageError as second:
                error.add_note(
                    f"and the damage could not be recorded for the broker's next start: {second}"
                )
        self.fail(hosted, error)

    # --- onto the disk --------------------------------------------------------------------------

    async def flush(self, hosted: Hosted, *, checkpoint: bool) -> None:
        """Flush all records that are in the log at the call, and advance the recovery point, unless
        the partition is dropped meanwhile. If the disk fails, take the replica offline. The flusher
        ensures that a log has one flush at a time. `checkpoint`: see `Log.begin_flush`."""
        try:
            flush = hosted.log.begin_flush(checkpoint=checkpoint)
            began_s = time.monotonic()
            await in_thread(flush.sync)
            self._traffic.flushes.observe(time.monotonic() - began_s)
            # After the partition is dropped, its directory's name may be another topic's.
            if self._owner.is_here(hosted):
                hosted.log.flushed(flush)
        except StorageError as error:
            # After a failed sync the state on the disk is unknown: the log is no longer trusted.
            self._fail_if_here(hosted, error)

    async def settle_cut(self, hosted: Hosted) -> None:
        """Sync the log's truncations, if any is not synced, and the partition is hosted. If the
        disk fails, take the replica offline."""
        log = hosted.log
        settling = log.begin_settle() if self._owner.is_here(hosted) else None
        if settling is None:
            return
        try:
            await in_thread(settling.sync)
            log.settled(settling)
        except StorageError as error:
            self._fail_if_here(hosted, error)

    async def sync_names(self, hosted: Hosted) -> bool:
        """Sync the directory entries of new and removed segments, and return True. Return False if
        the partition was dropped meanwhile, or if the disk failed, which takes the replica
        offline."""
        sync, renames = hosted.log.unsynced.begin_names()
        try:
            await in_thread(sync)
        except StorageError as error:
            # A repeated sync may succeed although the first one lost data.
            self._fail_if_here(hosted, error)
            return False
        if not self._owner.is_here(hosted):
            return False
        hosted.log.unsynced.names_synced(renames)
        return True

    async def write_back(self, appended: Iterable[Hosted]) -> None:
        """Have the kernel begin to write the appended records to the disk. The call does not wait
        and makes nothing durable."""
        begun = (hosted.log.segments[-1].begin_write_back() for hosted in appended)
        for begin in [each for each in begun if each is not None]:
            await in_thread(begin)

    def _fail_if_here(self, hosted: Hosted, error: StorageError) -> None:
        if self._owner.is_here(hosted):
            self.fail(hosted, error)
            self._owner.touch(hosted)

    def cannot_reopen(self, hosted: Hosted, error: StorageError) -> None:
        """Store this error as the log's fault. Called if the log was offline for lack of space or
        descriptors, and could not be opened anew."""
        logger.error(
            "%r: this broker cannot reopen the log of its replica, which is offline until %s; "
            "replicas in sync on other brokers serve the partition; if there are none, it has no "
            "leader: %s",
            *(hosted, until_when(error.fault), error),
        )
        hosted.log.fault = error

    # --- what is old ----------------------------------------------------------------------------

    def apply_retention(self, hosted: Hosted, wall_ms: int | None, since_ms: int) -> None:
        """Raise the log start by the topic's retention configs, at most to the high watermark; the
        segments below it are removed later. `wall_ms`: the wall clock in ms since 1970; None if it
        is not trusted, so that no record expires by age. `since_ms`: the wall-clock time when
        retention was last applied. If the disk fails, take the replica offline."""
        try:
            note_written(hosted.log.segments, since_ms)
            hosted.log.apply_retention(wall_ms, hosted.replica.high_watermark)
        except StorageError as error:
            self.fail(hosted, error)

    def remove_segments(self, hosted: Hosted, count: int) -> list[Segment]:
        """Remove the oldest `count` segments from the log, delete their files, and return them; the
        disk space is freed when the caller and all readers have dropped them. If the disk failed,
        take the replica offline and return an empty list."""
        try:
            return hosted.log.remove_first(count)
        except StorageError as error:
            self.fail(hosted, error)
            return []

    def prune_snapshots(self, hosted: Hosted) -> None:
        """Remove producer snapshots that recovery no longer needs after a newer checkpoint."""
        hosted.log.prune_snapshots(hosted.replica.high_watermark)

    def expire_producers(self, hosted: Hosted, now_ms: int) -> None:
        """Forget producer ids that have been idle for too long at `now_ms` (monotonic clock)."""
        hosted.log.producers.expire(now_ms)

    # --- compaction -----------------------------------------------------------------------------

    async def swap(self, hosted: Hosted, swap: SegmentSwap) -> bool:
        """Replace a group of segments by the cleaned one, and return True. Return False if the log
        changed meanwhile, or if the disk failed, which takes the replica offline; recovery at the
        next start then completes or reverts the swap."""
        try:
            if not self._owner.is_here(hosted) or not swap.holds():
                return False
            swap.commit()
            if not await self.sync_names(hosted):
                return False
            if not swap.holds():
                swap.give_up()
                return False
            swap.install()
            if not await self.sync_names(hosted):
                return False
            swap.finish()
        except StorageError as error:
            self._fail_if_here(hosted, error)
            return False
        await in_thread(swap.release)
        return await self.sync_names(hosted)

    # --- a step's effects -----------------------------------------------------------------------

    def carry_out(self, hosted: Hosted, ready: Ready, woken: dict[ParkedFetch, None]) -> None:
        """Answer the Produce requests in `ready`, then add the Fetch requests to wake to `woken`.
        After all partitions of the step the caller wakes each fetch once. The proposal in `ready`
        is left to the caller, which must queue it last."""
        for token, code in ready.answers:
            ack: AckToken = token  # type: ignore[assignment]
            ack.answer(code)
        for token in ready.woken:
            fetch: ParkedFetch = token  # type: ignore[assignment]
            fetch.moved(hosted)
            woken[fetch] = None


Woken = dict[ParkedFetch, None]


class Stepping:
    """Calls `one` once for each touched partition at the end of a turn of the event loop, and then
    wakes Fetch requests. `one`: processes a partition's events since its last step, and adds to its
    second argument the Fetch requests to wake."""

    def __init__(self, one: Callable[[Hosted, Woken], None]) -> None:
        self._one = one
        self._touched: dict[Hosted, None] = {}
        # Consumers' fetches to wake.
        self._woken: Woken = {}
        self._due = False

    def touch(self, hosted: Hosted) -> None:
        """Have the partition stepped at the end of this turn of the event loop."""
        if not self._due:
            self._come_back()
        self._touched[hosted] = None

    def _come_back(self) -> None:
        self._due = True
        asyncio.get_running_loop().call_soon(self.step)

    def step(self) -> None:
        """Step the touched partitions, at most AT_ONCE and for about SLICE_S seconds, and wake
        fetches. The rest is deferred to the next turn of the event loop. A bug here is on the
        commit path, so it is not caught, and the event loop's exception handler ends the
        process."""
        self._due = False
        touched, self._touched = self._touched, {}
        woken: Woken = {}
        until_s = time.monotonic() + SLICE_S
        left = iter(touched)
        for number, hosted in enumerate(left, 1):
            self._one(hosted, woken)
            if number >= AT_ONCE or time.monotonic() >= until_s:
                break
        if later := dict.fromkeys(left):
            self._touched = later | self._touched
        self._wake(woken)
        if not self._due and (self._touched or self._woken):
            self._come_back()

    def _wake(self, woken: Woken) -> None:
        """Wake all fetches of followers in `woken`, and at most AT_ONCE fetches of consumers,
        deferred ones first. Defer the other ones to the next step."""
        for fetch in woken:
            if fetch.for_follower:
                fetch.wake()
            else:
                self._woken[fetch] = None
        waiting, self._woken = iter(self._woken), {}
        until_s = time.monotonic() + SLICE_S
        for number, fetch in enumerate(waiting, 1):
            fetch.wake()
            if number >= AT_ONCE or time.monotonic() >= until_s:
                break
        self._woken = dict.fromkeys(waiting)

    def finish(self) -> None:
        """Step all touched partitions now, and wake all fetches."""
        due = self._due
        while self._touched or self._woken:
            self.step()
        self._due = due or self._due
