"""SegmentSwap: replaces a group of segments by their cleaned segment, step by step.

LogWriter calls the steps and syncs the directory after each of the first three; between two steps
the log may be appended to, flushed, cut or dropped. Nothing here waits for a sync.
`plimsoll_core.compaction.swap` describes what a start finds after each step.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.segment import Segment, file_name
from plimsoll_core.compaction.swap import CLEANED, INDEXES, LOG, SWAP


class SegmentSwap:
    """`group`: neighbours in the log when the round began, sealed, on the disk and committed."""

    def __init__(self, log: Log, disk: Disk, group: Sequence[Segment]) -> None:
        self._log = log
        self._disk = disk
        self._group = list(group)
        # Records that were cut since would return with the cleaned segment.
        self._cuts = log.cuts
        self._cleaned: Segment | None = None

    @property
    def bases(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self._group)

    def holds(self) -> bool:
        """Return True if the log still has the segments that were cleaned, and is still
        compacted."""
        log = self._log
        if log.fault is not None or log.cuts != self._cuts or not log.config.compact:
            return False
        if self._group[0] not in log.segments:
            return False
        at = log.segments.index(self._group[0])
        return log.segments[at : at + len(self._group)] == self._group

    def commit(self) -> None:
        """Commit the swap: once the directory is synced, a start takes the cleaned segment."""
        log, base = self._log, self._group[0].base_offset
        interval = log.config.index_interval_bytes
        cleaned = Segment(self._disk, log.directory, base, interval, CLEANED)
        cleaned.holes = True
        for _, first in cleaned.headers():
            cleaned.first_timestamp = first.max_timestamp
            break
        # Records without a time age by their file's time, which cleaning must not renew.
        newest_ms = max(segment.modified_ms() for segment in self._group)
        self._disk.set_modified(cleaned.path, newest_ms)
        for segment in self._group:
            segment.beside = log.directory / file_name(base, LOG + SWAP)
        log.unsynced.renamed()
        cleaned.rename(SWAP)
        self._cleaned = cleaned

    def give_up(self) -> None:
        """Drop the cleaned segment: the log has changed meanwhile."""
        log, base = self._log, self._group[0].base_offset
        log.unsynced.renamed()
        for suffix in (LOG + SWAP, *(each + CLEANED for each in (LOG, *INDEXES))):
            self._disk.remove(log.directory / file_name(base, suffix))
        for segment in self._group:
            segment.beside = None

    def install(self) -> None:
        """Make the log read the cleaned segment, and remove the others' files, except the first
        one's, whose name the cleaned one gets."""
        log, cleaned = self._log, self._cleaned
        assert cleaned is not None, "it was committed"
        first, *others = self._group
        for segment in self._group:
            segment.beside = None
        cleaned.beside = first.path
        log.replaced(self._group, cleaned)
        cleaned.rename_indexes()
        for segment in others:
            segment.remove()

    def finish(self) -> None:
        """Give the cleaned segment its final name, unless it is gone already."""
        cleaned = self._cleaned
        if cleaned is not None and cleaned in self._log.segments:
            cleaned.beside = None
            self._log.unsynced.renamed()
            cleaned.rename("")

    def release(self) -> None:
        """Free the replaced files; it takes longer for large ones, so it may run in a thread."""
        self._group.clear()
