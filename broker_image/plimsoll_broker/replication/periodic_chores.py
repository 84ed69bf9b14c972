"""PeriodicChores: periodic work on a broker's partitions: lag, timeouts, checkpoints, retention.

`node.broker` runs each of `PeriodicChores.tasks`. A chore runs once a period. Chores decide nothing
and never write to a log; LogWriter does. No chore waits for another one's disk, so timeouts and
flush.ms are kept however slow a thousand syncs are. Syncs run in a bounded number of threads, and
loops over all partitions let other tasks run in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from plimsoll_broker.background import in_slices, in_thread
from plimsoll_broker.replication.flush_schedule import several
from plimsoll_broker.replication.full_disks import FullDisks
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.log_cleaner import LogCleaner
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.segment_removal import SegmentRemoval
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.late_timers import LateTimer

logger = logging.getLogger("plimsoll.periodic_chores")

EXPIRE_WAITERS_MS = 250
HIGH_WATERMARKS_MS = 5_000
RETENTION_MS = 5_000
RECOVERY_POINTS_MS = 60_000
FLUSH_MS = 100
PRODUCERS_MS = 600_000
ROOM_MS = 1_000
TIMED_MS = 1_000
"""The interval in ms at which the list of logs with a flush.ms is made anew. Most logs have
none."""
UNCHECKED_BYTES_MAX = 4 * 2**20
"""A log gets a checkpoint once recovery after a crash would have to read more than this number of
bytes."""


@dataclass(slots=True)
class _Chore:
    """A function that runs every `period_ms`. `due_ms`: the time of its next run on the monotonic
    clock."""

    period_ms: int
    run: Callable[[], Awaitable[None]]
    due_ms: int
    late: LateTimer | None = None  # for a chore that judges silence


_DUE_MS = attrgetter("due_ms")


class PeriodicChores:
    """The tasks that do a broker's periodic work on partitions. The chores of one task run one
    after another; the tasks run side by side."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        # When retention last looked at the logs.
        self._looked_ms = manager.wall_clock.stamp_ms()
        self._segment_removal = SegmentRemoval(manager)
        self._cleaner = LogCleaner(manager, manager.wall_clock.now_ms, manager.store.cleaning)
        self._flushed_ms: dict[Hosted, int] = {}
        self._timed: list[Hosted] = []
        self._timed_until_ms = 0
        lag_ms = max(manager.settings.lag_time_max_ms // 2, 1)
        # The chores of the first task never wait for a disk.
        self._chores = {
            "waiting and lag": [
                self._chore(EXPIRE_WAITERS_MS, self._expire_waiters),
                self._chore(lag_ms, self._check_lag, LateTimer()),
                self._chore(PRODUCERS_MS, self._expire_producers),
            ],
            "flushes": [self._chore(FLUSH_MS, self._flush)],
            "high watermarks": [self._chore(HIGH_WATERMARKS_MS, self._checkpoint)],
            "retention": [self._chore(RETENTION_MS, self._retain)],
            "room": [self._chore(ROOM_MS, FullDisks(manager).look)],
            "recovery points": [self._chore(RECOVERY_POINTS_MS, self._recovery_points)],
        }

    def _chore(
        self, period_ms: int, run: Callable[[], Awaitable[None]], late: LateTimer | None = None
    ) -> _Chore:
        return _Chore(period_ms, run, self._manager.now_ms() + period_ms, late)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task. Each runs until cancelled."""
        for name, chores in self._chores.items():
            yield f"chores: {name}", self._keep(chores)
        yield "cleaning", self._cleaner.keep()

    async def _keep(self, chores: list[_Chore]) -> None:
        """Run each of the chores at its due time, one after another, until cancelled. A storage
        error is logged, and the chore runs again in its next period. After a pause of the process,
        a chore that judges lag is deferred, so that waiting input is read first."""
        while True:
            chore = min(chores, key=_DUE_MS)
            await asyncio.sleep(max(chore.due_ms - self._manager.now_ms(), 0) / 1000)
            now_ms = self._manager.now_ms()
            if chore.late is not None:
                not_before_ms = chore.late.not_before_ms(chore.due_ms, now_ms)
                if not_before_ms is not None:
                    chore.due_ms = not_before_ms
                    continue
            chore.due_ms = now_ms + chore.period_ms
            try:
                await chore.run()
            except* StorageError as errors:
                for error in errors.exceptions:
                    logger.error(
                        "this broker's periodic work on its logs (such as deleting expired "
                        "records) met a disk error, and is repeated within minutes; if this "
                        "repeats, check this broker's volume: %s",
                        error,
                    )

    async def _slowly(self, visit: Callable[[Hosted], None]) -> None:
        """Call `visit` for every hosted partition, in time slices."""
        async for hosted in in_slices(list(self._manager)):
            if self._manager.is_here(hosted):
                visit(hosted)

    # --- time -----------------------------------------------------------------------------------

    async def _expire_waiters(self) -> None:
        async for hosted in in_slices(list(self._manager.awaited)):
            self._manager.expire_waiters(hosted)

    async def _check_lag(self) -> None:
        await self._slowly(self._manager.check_lag)

    async def _expire_producers(self) -> None:
        now_ms = self._manager.now_ms()
        driver = self._manager.driver
        await self._slowly(lambda hosted: driver.expire_producers(hosted, now_ms))

    # --- checkpoints ----------------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        """Save the high watermarks of all partitions to their checkpoint file, in a thread."""
        manager = self._manager
        await in_thread(manager.store.begin_high_watermarks(manager.high_watermarks()))

    async def _recovery_points(self) -> None:
        """Flush, with a checkpoint, the logs with a sealed segment or UNCHECKED_BYTES_MAX above the
        recovery point, and save all recovery points, so that recovery after a crash reads no more
        than that.

        Producer snapshots that recovery no longer needs are removed once the newer recovery point
        is on the disk."""
        due: list[Hosted] = []

        def look(hosted: Hosted) -> None:
            log = hosted.log
            sealed = log.recovery_point < log.segments[-1].base_offset
            if sealed or log.unflushed_bytes >= UNCHECKED_BYTES_MAX:
                due.append(hosted)

        await self._slowly(look)
        await several(due, partial(self._manager.flusher.sync, checkpoint=True))
        await in_thread(self._manager.store.begin_recovery_points())
        async for hosted in in_slices(due):
            if self._manager.is_here(hosted):
                self._manager.driver.prune_snapshots(hosted)

    async def _flush(self) -> None:
        """Make newly made logs durable, and flush the logs with a flush.ms that has passed."""
        manager = self._manager
        if make_durable := manager.store.begin_new():
            await in_thread(make_durable)
        now_ms = manager.now_ms()
        if now_ms >= self._timed_until_ms:
            self._timed_until_ms = now_ms + TIMED_MS
            self._timed = [h for h in manager if h.log.config.flush_ms is not None]
            self._flushed_ms = {h: self._flushed_ms.get(h, 0) for h in self._timed}
        await several([h for h in self._timed if self._flush_due(h, now_ms)], manager.flusher.sync)

    def _flush_due(self, hosted: Hosted, now_ms: int) -> bool:
        """If the log has unflushed records and its flush.ms has passed since this chore last
        flushed it, record `now_ms` as the time of its flush and return True: the caller must flush
        it. Otherwise return False."""
        flush_ms = hosted.log.config.flush_ms
        if flush_ms is None or hosted.log.recovery_point == hosted.log.log_end_offset:
            return False
        if now_ms - self._flushed_ms.get(hosted, 0) < flush_ms:
            return False
        self._flushed_ms[hosted] = now_ms
        return True

    # --- retention ------------------------------------------------------------------------------

    async def _remove_directories(self) -> None:
        """Remove the directories of deleted logs for which the delay is over, in threads. If one
        cannot be removed, log the error and schedule it again."""
        store, now_ms = self._manager.store, self._manager.now_ms()
        for path in store.deleted.due(now_ms):
            try:
                await in_thread(partial(store.disk.remove_tree, path))
            except StorageError as error:
                logger.error(
                    "this broker cannot remove the directory of a deleted log, which still takes "
                    "disk space, and tries again; if this lasts, check the broker's volume: %s",
                    error,
                )
                store.deleted.again(path, now_ms)

    async def _retain(self) -> None:
        """Remove due directories of deleted logs, apply retention to all logs, then remove the
        segments below the log starts. If any log is compacted, wake the cleaner."""
        manager = self._manager
        wall_ms, stamp_ms = manager.wall_clock.now_ms(), manager.wall_clock.stamp_ms()
        # One of the two times may be from a clock that was set ahead.
        since_ms = min(self._looked_ms, stamp_ms)
        self._looked_ms = stamp_ms

        def retain(hosted: Hosted) -> None:
            if hosted.log.config.compact:
                self._cleaner.wanted.set()
            before = hosted.log.log_start_offset
            manager.driver.apply_retention(hosted, wall_ms, since_ms)
            if hosted.log.log_start_offset != before:
                hosted.replica.start_moved()
                manager.touch(hosted)

        await self._remove_directories()
        await self._slowly(retain)
        await self._segment_removal.run()
