"""What a broker does to its partitions when time passes: lag, timeouts, checkpoints, retention.

The lifecycle runs `Upkeep.run` as one task.  Each chore has a period; none decides anything.
Syncing files goes to a thread, everything else is short.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from plimsoll_broker.hosted import Hosted
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.threads import in_thread

logger = logging.getLogger("plimsoll.upkeep")

EXPIRE_WAITERS_MS = 250
HIGH_WATERMARKS_MS = 5_000
RETENTION_MS = 5_000
RECOVERY_POINTS_MS = 60_000
FLUSH_MS = 100
PRODUCERS_MS = 600_000
TIMED_MS = 1_000
"""So often it is asked which logs have a flush.ms: most have none."""
LOOKS_AT_ONCE = 500
UNCHECKED_BYTES_MAX = 4 * 2**20
"""A log with more than this that a crash would make us read again gets a checkpoint."""


@dataclass(slots=True)
class _Chore:
    period_ms: int
    run: Callable[[], Awaitable[None]]
    due_ms: int


class Upkeep:
    """One task, one chore at a time."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._flushed_ms: dict[Hosted, int] = {}
        self._timed: list[Hosted] = []
        self._timed_until_ms = 0
        now_ms = manager.now_ms()
        lag_ms = max(manager.settings.lag_time_max_ms // 2, 1)
        periods: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (EXPIRE_WAITERS_MS, self._expire_waiters),
            (lag_ms, self._check_lag),
            (FLUSH_MS, self._flush),
            (HIGH_WATERMARKS_MS, self._checkpoint),
            (RETENTION_MS, self._retain),
            (RECOVERY_POINTS_MS, self._recovery_points),
            (PRODUCERS_MS, self._expire_producers),
        ]
        self._chores = [_Chore(period, chore, now_ms + period) for period, chore in periods]

    async def run(self) -> None:
        """Until cancelled.  A full disk is reported and tried again at the next turn."""
        while True:
            chore = min(self._chores, key=lambda candidate: candidate.due_ms)
            await asyncio.sleep(max(chore.due_ms - self._manager.now_ms(), 0) / 1000)
            chore.due_ms = self._manager.now_ms() + chore.period_ms
            try:
                await chore.run()
            except StorageError as error:
                logger.error("upkeep: %s", error)

    async def _expire_waiters(self) -> None:
        self._manager.expire_waiters()

    async def _check_lag(self) -> None:
        self._manager.check_lag()

    async def _checkpoint(self) -> None:
        manager = self._manager
        await in_thread(manager.store.begin_high_watermarks(manager.high_watermarks()))

    async def _expire_producers(self) -> None:
        now_ms = self._manager.now_ms()
        for hosted in self._manager:
            hosted.log.producers.expire(now_ms)

    async def _retain(self) -> None:
        manager = self._manager
        wall_ms = time.time_ns() // 1_000_000
        starts = False
        for number, hosted in enumerate(list(manager), 1):
            if number % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not self._is_here(hosted):
                continue
            before = hosted.log.log_start_offset
            manager.driver.apply_retention(hosted, wall_ms)
            if hosted.log.log_start_offset != before:
                starts = True
                hosted.replica.start_moved()
                manager.touch(hosted)
        if starts:
            manager.store.checkpoint_log_starts()
        for path in manager.store.due_removals(manager.now_ms()):
            await in_thread(partial(manager.store.remove, path))

    async def _flush(self) -> None:
        """New logs become durable; flush.ms: what is older than that reaches the disk."""
        if make_durable := self._manager.store.begin_new():
            await asyncio.to_thread(make_durable)
        now_ms = self._manager.now_ms()
        if now_ms >= self._timed_until_ms:
            self._timed_until_ms = now_ms + TIMED_MS
            self._timed = [h for h in self._manager if h.log.config.flush_ms is not None]
        for hosted in self._timed:
            flush_ms = hosted.log.config.flush_ms
            if flush_ms is None or hosted.log.recovery_point == hosted.log.log_end_offset:
                continue
            if now_ms - self._flushed_ms.get(hosted, 0) >= flush_ms:
                self._flushed_ms[hosted] = now_ms
                await self._sync(hosted)

    async def _recovery_points(self) -> None:
        """After a crash a start reads what came after the last checkpoint.

        Snapshots that nobody will ask for again go once the newer recovery point is on the disk.
        """
        synced = []
        for hosted in list(self._manager):
            log = hosted.log
            sealed = log.recovery_point < log.segments[-1].base_offset
            if sealed or log.unflushed_bytes >= UNCHECKED_BYTES_MAX:
                await self._sync(hosted, checkpoint=True)
                synced.append(hosted)
        self._manager.store.checkpoint_recovery_points()
        for hosted in synced:
            if self._is_here(hosted):
                hosted.log.prune_snapshots()
        alive = set(self._manager)
        self._flushed_ms = {h: ms for h, ms in self._flushed_ms.items() if h in alive}

    async def _sync(self, hosted: Hosted, *, checkpoint: bool = False) -> None:
        if hosted.replica.failed or not self._is_here(hosted):
            return
        try:
            flush = hosted.log.begin_flush(checkpoint=checkpoint)
            await in_thread(flush.sync)
            if self._is_here(hosted):
                hosted.log.flushed(flush)
        except StorageError as error:
            # What a failed sync leaves on disk is unknown: nothing more is promised from it.
            logger.error("%r is out of service until the broker starts again: %s", hosted, error)
            hosted.log.fault = error
            hosted.replica.fail()
            self._manager.touch(hosted)

    def _is_here(self, hosted: Hosted) -> bool:
        """Once it was dropped, its directory's name may be another topic's."""
        return self._manager.by_key(*hosted.key) is hosted
