"""LogCleaner: compacts a broker's logs, the dirtiest first, one at a time.

One of the tasks of `PeriodicChores`. `plimsoll_core.compaction.plan` decides which log to clean and
up to which offset, `retain` which records stay; LogWriter swaps the segments. Each replica cleans
its own log. A failed round changes nothing and is tried again later. Source: Kafka's LogCleaner;
docs/protocol.md §10.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from plimsoll_broker.background import in_slices, in_thread
from plimsoll_broker.replication.cleaning_work import CleaningInThread
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.cleaner.newest_keys import SegmentRange
from plimsoll_broker.storage.cleaner.round import CleaningFailed, CleaningJob, CleaningWork
from plimsoll_broker.storage.cleaner.segment_swap import SegmentSwap
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log import Log
from plimsoll_core.cluster.cluster_configs import OWN_DEFAULTS
from plimsoll_core.compaction.plan import CleaningPlan, SealedSegment, groups, plan, urgency

logger = logging.getLogger("plimsoll.cleaner")

BUFFER_CONFIG = "log.cleaner.dedupe.buffer.size"
BACKOFF_CONFIG = "log.cleaner.backoff.ms"
ROUNDS_AT_ONCE = 16
"""The most rounds in one run of the cleaner. The next run is after the backoff."""
_INTERNAL = "__"
_DAMAGED = (
    "this broker cannot clean the compacted log of %r, because a record batch of its replica is "
    "damaged, so the log grows; mend the replica as docs/operations.md says under "
    '"Replace a damaged replica", or under "Skip an unreadable batch" if no replica is valid; the '
    "broker cleans the log again only after a restart: %s"
)
_INTERRUPTED = (
    "this broker could not clean the compacted log of %r, which grows meanwhile; it tries again by "
    "itself; if this repeats, remove the cause: %s"
)


class _Due(NamedTuple):
    """A partition with a log that is due for compaction, and the plan of its round."""

    hosted: Hosted
    plan: CleaningPlan


def sealed_segments(log: Log) -> list[SealedSegment]:
    """Return the segments of the log except the active one, oldest first, with their sizes and
    times. If a segment has no record timestamp, its times are its file's modification time."""
    found = []
    for segment, following in pairwise(log.segments):
        newest = segment.max_timestamp
        if newest < 0:
            newest = segment.modified_ms()
        oldest = segment.first_timestamp
        found.append(
            SealedSegment(
                base_offset=segment.base_offset,
                end_offset=following.base_offset,
                size=segment.size,
                oldest_ms=newest if oldest is None or oldest < 0 else oldest,
                newest_ms=newest,
            )
        )
    return found


class LogCleaner:
    """Compacts the logs of one broker. `keep` is its task. `wanted`: an event that wakes the task;
    the retention chore sets it if any log is compacted."""

    def __init__(
        self,
        manager: ReplicaManager,
        wall_ms: Callable[[], int | None],
        work: CleaningWork | None = None,
    ) -> None:
        self._manager = manager
        self._wall_ms = wall_ms
        self._work = work or CleaningInThread(manager.store.disk)
        configs = manager.settings.configs
        self._buffer_bytes = int(configs.get(BUFFER_CONFIG, OWN_DEFAULTS[BUFFER_CONFIG]))
        # Logs with an unreadable segment: not tried again until the broker restarts.
        self._uncleanable: set[Log] = set()
        self._backoff_s = int(configs.get(BACKOFF_CONFIG, OWN_DEFAULTS[BACKOFF_CONFIG])) / 1000
        self._stats = manager.traffic.cleaning
        # Set while there is a log to compact.
        self.wanted = asyncio.Event()

    async def keep(self) -> None:
        """Clean logs (`run`) after each `wanted` and a pause of log.cleaner.backoff.ms, until
        cancelled. A disk error is logged, and cleaning goes on after the next pause."""
        while True:
            await self.wanted.wait()
            self.wanted.clear()
            await asyncio.sleep(self._backoff_s)
            try:
                await self.run()
            except StorageError as error:
                logger.error(
                    "a disk error at %s interrupted this broker's cleaning of compacted logs, "
                    "which grow meanwhile; it tries again in %g s; if this repeats, check or "
                    "enlarge the broker's volume: %s",
                    *(error.path, self._backoff_s, error),
                )

    async def run(self) -> None:
        """Clean up to ROUNDS_AT_ONCE logs, the most urgent first, then end the cleaning process.
        Stop early if no log is due or a round does not complete. Raise StorageError."""
        try:
            for _ in range(ROUNDS_AT_ONCE):
                due = await self._dirtiest()
                if due is None or not await self._round(due.hosted):
                    return
        finally:
            self._stats.in_brokers_share = self._work.in_brokers_share
            await self._work.close()

    # --- which one ------------------------------------------------------------------------------

    async def _dirtiest(self) -> _Due | None:
        """Return the most urgent partition with a log that is due, with its plan, or None if none
        is. Update the backlog's metrics, and set `wanted` if any log is compacted."""
        best: _Due | None = None
        due_logs, due_bytes, damaged, dirtiest = 0, 0, 0, 0.0
        async for hosted in in_slices(list(self._manager)):
            if hosted.log.config.compact:
                self.wanted.set()
            damaged += hosted.log in self._uncleanable
            found = self._plan(hosted, hosted.log.log_end_offset)
            if found is not None:
                due = _Due(hosted, found)
                due_logs, due_bytes = due_logs + 1, due_bytes + found.dirty_bytes
                dirtiest = max(dirtiest, found.dirty_ratio)
                if best is None or _urgency(due) > _urgency(best):
                    best = due
        self._stats.due_logs, self._stats.due_bytes = due_logs, due_bytes
        self._stats.dirtiest, self._stats.uncleanable_logs = dirtiest, damaged
        return best

    def _plan(self, hosted: Hosted, flushed_end: int) -> CleaningPlan | None:
        """Return the plan for one log: the offsets of the part to clean. `flushed_end`: only
        records below this offset are cleaned. Return None if the log is not due, not compacted,
        offline, damaged or no longer hosted."""
        log, manager = hosted.log, self._manager
        if not log.config.compact or len(log.segments) < 2 or log in self._uncleanable:
            return None
        if not manager.is_here(hosted) or hosted.replica.failed or log.fault is not None:
            return None
        cleaned_end = manager.store.cleaned_ends.get((log.topic, log.index)) or 0
        first = max(cleaned_end, log.segments[0].base_offset)
        stable_end = min(hosted.replica.last_stable_offset, flushed_end)
        return plan(sealed_segments(log), first, stable_end, log.config.limits, self._wall_ms())

    # --- one round ------------------------------------------------------------------------------

    async def _round(self, hosted: Hosted) -> bool:
        """Clean one log, after flushing its sealed segments. Return True if the round completed.
        Return False if the log is no longer due, changed meanwhile, or could not be cleaned, which
        is logged; the cleaner then waits for its backoff time. A log with a damaged segment is not
        tried again."""
        log = hosted.log
        if log.recovery_point < log.segments[-1].base_offset:
            # Only records on the disk decide what is removed, so a power cut cannot take them.
            await self._manager.flusher.sync(hosted)
        found = self._plan(hosted, log.recovery_point)
        if found is None:
            return False
        begun_ms, stats = self._manager.now_ms(), self._stats
        if (index := log.segments[-1].aborted) is not None:
            index.write()  # the round reads the file
        sealed = sealed_segments(log)
        left = deque(self._swaps(log, sealed, found.end))
        try:
            return await self._clean(hosted, self._job(log, sealed, found), left)
        except CleaningFailed as error:
            if not self._manager.is_here(hosted) or not all(swap.holds() for swap in left):
                # Files were cut or removed while they were read: the log is not damaged.
                logger.info(
                    "the compacted log of %r on this broker was truncated or deleted while it "
                    "was cleaned; the broker cleans it again later: %s",
                    hosted,
                    error,
                )
                return False
            if error.damaged:
                logger.error(_DAMAGED, hosted, error)
            else:
                logger.warning(_INTERRUPTED, hosted, error)
            stats.failures += 1
            if error.damaged:
                here = {one.log for one in self._manager}
                self._uncleanable = (self._uncleanable & here) | {log}
            return False
        finally:
            stats.spent_ms += self._manager.now_ms() - begun_ms
            with suppress(CleaningFailed):
                await self._work.end()

    async def _clean(self, hosted: Hosted, job: CleaningJob, left: deque[SegmentSwap]) -> bool:
        """Clean the log, replace its segments group by group, save the offset up to which it is
        clean, and return True. `left`: the swaps of the round in order, from which each finished
        one is removed. Return False if the log changed meanwhile or its disk failed. Raise
        CleaningFailed."""
        manager, log, cuts = self._manager, hosted.log, hosted.log.cuts
        end = await self._work.begin(job)
        if not manager.is_here(hosted) or log.cuts != cuts:
            return False  # the note would be about another topic's log, or a shorter one
        # Persist this first: a log that ends below it later may lack newer values of keys.
        await in_thread(manager.store.begin_superseding(log, end))
        before = after = 0
        while left and (swap := left[0]).bases[0] < end:
            made = await self._work.clean(swap.bases)
            before, after = before + made.bytes_before, after + made.bytes_after
            # Counted during the round, so that progress of a long one is visible.
            self._stats.bytes_read += made.bytes_before
            self._stats.bytes_written += made.bytes_after
            if made.changed and not await manager.driver.swap(hosted, swap):
                return False
            left.popleft()
        if not manager.is_here(hosted) or log.cuts != cuts:
            return False
        await in_thread(manager.store.cleaned_ends.begin_save({(log.topic, log.index): end}))
        self._stats.rounds += 1
        logger.info(
            "the compacted log of %r on this broker was cleaned up to offset %d: %d of %d bytes "
            "are left",
            hosted,
            end,
            after,
            before,
        )
        return True

    def _swaps(self, log: Log, sealed: list[SealedSegment], end: int) -> list[SegmentSwap]:
        """Return the swaps of a round that cleans up to `end`: one for each group of neighbouring
        segments that becomes one cleaned segment."""
        by_base = {segment.base_offset: segment for segment in log.segments}
        return [
            SegmentSwap(log, self._manager.store.disk, [by_base[one.base_offset] for one in group])
            for group in groups(sealed, end, log.config.segment_bytes)
        ]

    def _job(self, log: Log, sealed: Iterable[SealedSegment], found: CleaningPlan) -> CleaningJob:
        return CleaningJob(
            directory=str(log.directory),
            segments=tuple(SegmentRange(each.base_offset, each.end_offset) for each in sealed),
            first_dirty=found.first_dirty,
            end=found.end,
            now_ms=self._wall_ms(),
            delete_retention_ms=log.config.limits.delete_retention_ms,
            buffer_bytes=self._buffer_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            transactional=log.transactional,
        )


def _urgency(due: _Due) -> tuple[bool, bool, float]:
    """Return the sort key of a log that is due: the log with the greatest key is cleaned first."""
    return urgency(due.plan, internal=due.hosted.name.startswith(_INTERNAL))
