"""Puts a cleaned segment in the place of the segments from which it was made.

`SegmentSwap` does so step by step. LogWriter calls the steps and syncs the directory after each of
the first three; between two steps the log may be appended to, flushed, cut or dropped. No step
waits for a sync. `plimsoll_core.compaction.swap` describes what a start finds after each step.

`finish_swaps` completes, at a start, the swap of a cleaned segment that a crash interrupted.
`plimsoll_core.compaction.swap` decides what to do. Recovery itself removes the files of a round
that was not committed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_values import LogPlace
from plimsoll_broker.storage.segment import Segment, file_name
from plimsoll_core.compaction import swap
from plimsoll_core.compaction.swap import CLEANED, INDEXES, LOG, SWAP, TRANSACTIONS
from plimsoll_wire.batches import HEADER_SIZE, BatchError, peek_header

logger = logging.getLogger("plimsoll.segment_swap")


class SegmentSwap:
    """Replaces `group`, neighbouring sealed segments of a log, by their cleaned segment. The steps
    in order are `commit`, `install`, `finish`, `release`; after each of the first three the caller
    syncs the directory. All records of the group were on the disk and committed when the round
    began."""

    def __init__(self, log: Log, disk: Disk, group: Sequence[Segment]) -> None:
        self._log = log
        self._disk = disk
        self._group = list(group)
        # Records that were cut since would return with the cleaned segment.
        self._cuts = log.cuts
        self._cleaned: Segment | None = None

    @property
    def bases(self) -> tuple[int, ...]:
        """The base offsets of the group's segments."""
        return tuple(segment.base_offset for segment in self._group)

    def holds(self) -> bool:
        """Return True if the swap may continue: the log still has the group's segments side by
        side, was not truncated since this object was made, has not failed, and is still
        compacted."""
        log = self._log
        if log.fault is not None or log.cuts != self._cuts or not log.config.compact:
            return False
        if self._group[0] not in log.segments:
            return False
        at = log.segments.index(self._group[0])
        return log.segments[at : at + len(self._group)] == self._group

    def commit(self) -> None:
        """Rename the cleaned segment to `.swap`. Once the directory is synced, recovery completes
        the swap after a crash."""
        log, base = self._log, self._group[0].base_offset
        interval = log.config.index_interval_bytes
        cleaned = Segment(self._disk, log.directory, base, interval, CLEANED)
        cleaned.holes = True
        if log.transactional:
            cleaned.begin_transactions()
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
        """Delete the cleaned segment, which was committed but not installed, since the log has
        changed meanwhile."""
        log, base = self._log, self._group[0].base_offset
        log.unsynced.renamed()
        indexes = (*INDEXES, TRANSACTIONS) if log.transactional else INDEXES
        for suffix in (LOG + SWAP, *(each + CLEANED for each in (LOG, *indexes))):
            self._disk.remove(log.directory / file_name(base, suffix))
        for segment in self._group:
            segment.beside = None

    def install(self) -> None:
        """Put the cleaned segment into the log, in memory, in place of the group, and give its
        indexes their final names. Delete the group's files except the log file of the first
        segment, which `finish` replaces."""
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
        """Give the cleaned segment's log file its final name. Do nothing if the log no longer has
        that segment."""
        cleaned = self._cleaned
        if cleaned is not None and cleaned in self._log.segments:
            cleaned.beside = None
            self._log.unsynced.renamed()
            cleaned.rename("")

    def release(self) -> None:
        """Drop the last references to the replaced segments, which frees their disk space. That
        takes long for large files, so it may run in a thread."""
        self._group.clear()


def finish_swaps(place: LogPlace) -> None:
    """Complete every committed swap in the log's directory, during recovery. A repeated call after
    an interruption is safe."""
    disk, directory = place.disk, place.directory
    bases = swap.committed(disk.list(directory))
    if bases:
        # The killed process may not have synced that name: nothing is removed before it is durable.
        disk.sync_directory(directory)
    for base in bases:
        path = directory / file_name(base, swap.LOG + swap.SWAP)
        end = _end(disk.open(path, make=False), base)
        logger.info(
            "log %s: this broker finished the compaction of offsets %d to %d (exclusive), which "
            "its last stop had interrupted",
            *(directory, base, end),
        )
        _finish(disk, place, base, end)


def _finish(disk: Disk, place: LogPlace, base: int, end: int) -> None:
    """Complete the swap of the cleaned segment with offsets from `base` to `end`."""
    directory = place.directory
    rest = swap.rest(base, end, disk.list(directory))
    for old, new in rest.renames:
        disk.rename(directory / old, directory / new)
    for name in rest.removals:
        disk.remove(directory / name)
    disk.sync_directory(directory)
    disk.rename(directory / rest.last[0], directory / rest.last[1])
    disk.sync_directory(directory)


def _end(file: DiskFile, base: int) -> int:
    """Return the end offset of the batches in a cleaned segment's file. If the file is damaged,
    return the end of the batches before the damage: later segments then stay, and `check_ends`
    finds the mismatch."""
    position, end, size = 0, base, file.size()
    try:
        while position < size:
            header = peek_header(file.pread(HEADER_SIZE, position))
            end = header.next_offset
            position += header.length
    except BatchError as error:
        logger.error(
            "the compacted log segment %s is corrupt at byte %d, so this broker uses only the "
            "batches before that; if records are missing, the broker copies them from another "
            "replica, or takes its replica offline and logs what to do: %s",
            *(file.path, position, error),
        )
    return end
