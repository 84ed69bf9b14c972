"""SegmentRemoval: removes segments below the log starts, in a safe order: save log starts, sync
file names, remove.

Run by `PeriodicChores` after retention. It also removes segments below log starts that a client or
the leader moved. A segment is removed only if all of it is below a log start that is on the disk: a
power cut may bring back removed files, and the next start ignores those below that log start. A
segment is removed only once the name of the next one is durable: otherwise a power cut could lose
that name, and the log would appear to begin after it. `storage.retention` and the replicas decide
where a log begins; LogWriter removes. Source: the protocol's local storage rules (4.9).
"""

from __future__ import annotations

import logging
from itertools import islice

from plimsoll_broker.background import in_slices, in_thread
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log

logger = logging.getLogger("plimsoll.segment_removal")

REMOVED_AT_ONCE = 32
"""The most segments of one log that are removed before other tasks run."""


def removable(log: Log, saved_start: int, count_max: int) -> int:
    """Return how many of the oldest segments of the log may be removed, at most `count_max`: those
    wholly below both the log start and `saved_start`, the log start that is on the disk, and
    followed by a segment with a durable name. The last segment always stays."""
    below = min(saved_start, log.log_start_offset)
    count = 0
    for following in islice(log.segments, 1, count_max + 1):
        if following.base_offset > below or not log.unsynced.is_named(following):
            break
        count += 1
    return count


def removable_unsaved(log: Log) -> int:
    """Return how many of the oldest segments may be removed, 0 or 1, while a full disk prevents
    saving log starts. It is 1 only if earlier removals are durable, so that a power cut leaves no
    gap."""
    return removable(log, log.log_start_offset, int(log.unsynced.removals_synced))


def _has_segment_below(log: Log, start: int) -> bool:
    """Return True if all of the oldest segment lies below `start`, and it is not the only one."""
    return len(log.segments) > 1 and log.segments[1].base_offset <= start


class SegmentRemoval:
    """Removes the segments below the log starts of all partitions of a broker. The retention chore
    calls `run`. This object has no state."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    async def run(self) -> None:
        """Save the log starts, then remove the segments below them. On a full disk, where log
        starts cannot be saved, remove one segment of each log. Raise StorageError if log starts
        cannot be saved for another reason."""
        saves = self._manager.store.begin_log_starts()
        try:
            await in_thread(saves)
        except StorageError as error:
            if error.fault is not StorageFault.FULL:
                raise
            logger.warning(
                "this broker's disk is too full to write its checkpoint of log start offsets; "
                "the broker deletes expired log segments one at a time to make space; if it "
                "stays full, enlarge the volume: %s",
                error,
            )
            await self._remove_oldest()
        await self._remove_below_saved_starts()

    async def _remove_below_saved_starts(self) -> None:
        """Remove all segments below the saved log starts."""
        manager = self._manager
        async for hosted in in_slices(list(manager)):
            while await self._may_remove(hosted):
                saved_start = manager.store.saved_log_start(hosted.log)
                count = removable(hosted.log, saved_start, REMOVED_AT_ONCE)
                removed = manager.driver.remove_segments(hosted, count)
                if not removed:
                    break
                # Only now is the space freed, which takes longer for large files.
                await in_thread(removed.clear)

    async def _may_remove(self, hosted: Hosted) -> bool:
        """Return True if the oldest segment lies below the saved log start and the name of the next
        segment is durable; sync the directory first if only that is missing. Return False
        otherwise, also if the partition was dropped or the sync failed."""
        manager, log = self._manager, hosted.log
        if not manager.is_here(hosted):
            return False
        if not _has_segment_below(log, manager.store.saved_log_start(log)):
            return False
        return log.unsynced.is_named(log.segments[1]) or await manager.driver.sync_names(hosted)

    async def _remove_oldest(self) -> None:
        """Remove one segment of each log below its log start, to make room on a disk too full to
        save a log start. First sync earlier removals of that log, and forget the noted beginnings
        of all logs, since these cannot be saved either. Raise StorageError if that fails."""
        manager, noted = self._manager, True
        async for hosted in in_slices(list(manager)):
            log = hosted.log
            if not _has_segment_below(log, log.log_start_offset) or not manager.is_here(hosted):
                continue
            if noted:
                await in_thread(manager.store.beginnings.begin_forget_all())
                noted = False
            if await manager.driver.sync_names(hosted):
                removed = manager.driver.remove_segments(hosted, removable_unsaved(hosted.log))
                await in_thread(removed.clear)
