"""`Unsynced`: the part of a log that may not be on disk yet, and that a flush must sync.

Below a recovery point everything is on the disk: batches, the indexes of every sealed segment (a
half-written index would have a segment deleted too early, or hide a time), file names, and
removals. The active segment's indexes are synced by checkpoints only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.log_values import EpochFileVersion, Flush, Settling
from plimsoll_broker.storage.producer_snapshots import PendingSnapshot
from plimsoll_broker.storage.segment import Segment


class Unsynced:
    """Keeps account of which files and names of one log may not be on the disk yet. `cuts`: the
    number of truncations; a flush that began before one does not move the recovery point.
    `renames`: the number of files made, renamed or removed."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self.renames = 1  # names found at the start may not have been synced either
        self._names_synced = 0
        self._removed = 1
        # Segments whose names may not be on the disk, with the number of `renames` at their
        # creation.
        self._made: dict[Segment, int] = {}
        self.cuts = 0
        # Files that a truncation changed and no `settle` has synced; None: nothing was truncated.
        self.unsettled: tuple[DiskFile, ...] | None = None
        self._flushed: tuple[Segment, int] | None = None
        self._indexes: list[Segment] = []

    def bytes(self, segments: Sequence[Segment]) -> int:
        """Return an upper bound of the bytes in these segments that recovery would read after a
        crash: those appended since the last flush."""
        unread = 0
        for segment in reversed(segments):
            unread += segment.size
            if self._flushed is not None and self._flushed[0] is segment:
                return unread - self._flushed[1]
        return unread

    def all_flushed(self, active: Segment) -> None:
        """Record that the whole log up to the end of the `active` segment is on the disk. Called at
        a start that follows a clean stop."""
        self._flushed = (active, active.size)

    def sealed(self, segment: Segment, *, synced: bool) -> None:
        """Note that a segment was sealed and its indexes written. `synced`: True if its batches are
        on the disk already, so that no later flush would include the segment; then the indexes are
        synced at once."""
        if synced:
            for file in segment.index_files():
                file.fsync()
            segment.release_indexes()
        else:
            self._indexes.append(segment)

    def cut(self) -> None:
        """Count a truncation."""
        self.cuts += 1
        self._flushed = None

    def due(self, *files: DiskFile) -> None:
        """Record files that a truncation has changed, and a change of names: these files and the
        directory must be synced before the next append."""
        self.unsettled = (*(self.unsettled or ()), *files)
        self.renamed()

    def begin_settle(self) -> Settling | None:
        """Return the files and the directory to sync after a truncation. Return None if there was
        no truncation since the last sync."""
        if self.unsettled is None:
            return None
        return Settling(
            files=self.unsettled,
            disk=self._disk,
            names=self._directory,
            renames=self.renames,
            cuts=self.cuts,
        )

    def settled(self, settling: Settling) -> bool:
        """Record that `settling` was synced, and return True. If there was another truncation since
        it was made, return False: the files of both still need a sync."""
        self.names_synced(settling.renames)
        if settling.cuts == self.cuts:
            self.unsettled = None
        return self.unsettled is None

    def renamed(self) -> None:
        """Count a file that was made, renamed or removed, so that the next flush also syncs the
        directory."""
        self.renames += 1

    def made(self, segment: Segment) -> None:
        """Record that a segment was made and that its name is not on the disk yet."""
        self.renamed()
        self._made[segment] = self.renames

    def is_named(self, segment: Segment) -> bool:
        """Return True if the segment's file name is on the disk, so that it survives a power
        cut."""
        return self._names_synced >= self._made.get(segment, 1)

    def sync_names(self) -> None:
        """Sync the directory now."""
        self._disk.sync_directory(self._directory)
        self.names_synced(self.renames)

    def begin_names(self) -> tuple[Callable[[], None], int]:
        """Return a function that syncs the directory and may run in a thread, and the number to
        pass to `names_synced` afterwards."""
        return partial(self._disk.sync_directory, self._directory), self.renames

    def names_synced(self, renames: int) -> None:
        """Note that the directory was synced after at least this many `renames`."""
        self._names_synced = max(self._names_synced, renames)
        if self._made:
            self._made = {each: made for each, made in self._made.items() if made > renames}

    @property
    def removals_synced(self) -> bool:
        """True if removed files stay removed after a power cut."""
        return self._names_synced >= self._removed

    def removed(self, segment: Segment) -> None:
        """Note that a segment was removed. Drop all references to it, so that its descriptors and
        disk space are freed."""
        self._indexes = [each for each in self._indexes if each is not segment]
        if self._flushed is not None and self._flushed[0] is segment:
            self._flushed = None
        self._made.pop(segment, None)
        self.renamed()
        self._removed = self.renames

    def begin(
        self,
        segments: Sequence[Segment],
        recovery_point: int,
        log_end_offset: int,
        terms: EpochFileVersion | None,
        snapshot: PendingSnapshot | None,
    ) -> Flush:
        """Return the flush that makes the log durable up to `log_end_offset`: files with records
        above the recovery point, unsynced indexes, and the directory if names changed. `terms`: the
        file of leader epochs, None if the synced one is the newest. `snapshot`: the producer
        snapshot of a checkpoint, None for a plain flush."""
        active = segments[-1]
        indexes = [segment for segment in self._indexes if segment in segments]
        files = [
            segment.file
            for segment, following in pairwise(segments)
            if following.base_offset > recovery_point
        ]
        files.append(active.file)
        for segment in (*indexes, active) if snapshot is not None else indexes:
            files += segment.index_files()
        return Flush(
            up_to_offset=log_end_offset,
            files=tuple(files),
            disk=self._disk,
            names=None if self._names_synced == self.renames else self._directory,
            renames=self.renames,
            terms=terms,
            cuts=self.cuts,
            active=(active, active.size),
            indexes=tuple(indexes),
            snapshot=snapshot,
        )

    def believable(self, segments: Sequence[Segment], offset: int) -> int:
        """Return the highest recovery point up to `offset`. It is at most the base offset of the
        first sealed segment with unsynced indexes: that segment was sealed during a flush, and
        recovery reads it again."""
        for segment, following in pairwise(segments):
            if segment in self._indexes:
                return offset if offset < following.base_offset else segment.base_offset
        return offset

    def done(self, flush: Flush) -> bool:
        """Record that the flush was synced, and return True. If the log was truncated since the
        flush began, only count its directory sync, drop its producer snapshot, and return False."""
        if flush.names is not None:
            self.names_synced(flush.renames)
        if flush.cuts != self.cuts:
            if flush.snapshot is not None:
                flush.snapshot.drop()
            return False
        self._flushed = flush.active
        self._indexes = [segment for segment in self._indexes if segment not in flush.indexes]
        for segment in flush.indexes:
            segment.release_indexes()
        return True
