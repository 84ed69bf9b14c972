"""CheckpointFiles: the checkpoint files of a volume, and the rules for lowering their entries.

The base of `LogStore`. There is one file each for high watermarks, recovery points, log starts,
cleaned ends and noted beginnings, with a line for every partition.

`OffsetFile`: one of these files, with an offset for each partition, replaced atomically. A lower
value must be on disk before the log changes, since less of the log can be relied on. The functions
that `begin_save` and `begin_replace` return may run in a thread, and never overwrite an entry that
was saved after they began.

`Beginnings`: the noted start of each log. A log with a first file that starts later than noted has
lost its beginning. The note is on the disk before a log starts later, hence before any of its files
is removed or discarded: an old note would mark a whole log as damaged. If a full disk cannot take a
note, all notes are removed (which needs no room) before any file: a log without a note is trusted.
Source: the protocol's local storage rules (4.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log import Log

logger = logging.getLogger("plimsoll.checkpoint_files")


class OffsetFile:
    """One checkpoint file with an offset for each partition, and its newest content in memory. An
    entry of a partition with a log that is not open keeps its value in the file.

    `_version`: the version of the content in memory. `_written`: the version of the file. `_due`:
    the version that `save_unsaved` must write. `_saved`: the content of the synced file.
    `_writing`: by version, what the file may hold besides, because a thread may be writing it.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[Partition, int] = {}
        self._saved: Mapping[Partition, int] = {}
        self._writing: dict[int, Mapping[Partition, int]] = {}
        self._version = self._written = self._due = 0
        self._saving = Lock()

    def load(self) -> None:
        """Read the file. If it is missing or corrupt it counts as empty, so that recovery reads
        more of the logs."""
        data = self._disk.read(self._path)
        offsets = None if data is None else checkpoint_formats.decode_offsets(data)
        if offsets is None and data is not None:
            logger.warning(
                "the checkpoint file %s of this broker is corrupt; the broker recovers its "
                "offsets from the logs by itself, and nothing needs to be done",
                self._path,
            )
        self._offsets = offsets or {}
        self._saved = dict(self._offsets)

    def get(self, partition: Partition) -> int | None:
        """Return the partition's offset in memory, or None if there is none."""
        return self._offsets.get(partition)

    def saved(self, partition: Partition) -> int | None:
        """Return the partition's offset in the synced file, or None if the file has none."""
        return self._saved.get(partition)

    def may_hold(self, partition: Partition) -> bool:
        """Return True if the file may hold an offset of the partition now, after a power cut or
        after the writes that are under way."""
        return any(partition in each for each in (self._saved, *self._writing.values()))

    def forget_but(self, here: Container[Partition]) -> None:
        """Remove the entries of all partitions that are not in `here`, in memory only;
        `save_unsaved` writes the file."""
        for partition in [each for each in self._offsets if each not in here]:
            self.forget(partition)

    def clear(self) -> None:
        """Remove all entries and the file, which needs no disk space."""
        with self._saving:
            self._offsets, self._saved = {}, {}
            self._writing.clear()
            self._version += 1
            self._written = self._due = self._version  # outdates a thread's pending write
            self._disk.remove(self._path)
            self._disk.sync_directory(self._path.parent)

    def forget(self, partition: Partition) -> None:
        """Remove the partition's entry, in memory only; `save_unsaved` writes the file."""
        if self._offsets.pop(partition, None) is not None:
            self._is_due()

    def lower(self, partition: Partition, offset: int) -> None:
        """Lower the partition's offset in memory to `offset`, if it is higher; do nothing if there
        is none. `save_unsaved` writes the file."""
        if self._offsets.get(partition, 0) > offset:
            self._offsets[partition] = offset
            self._is_due()

    def _is_due(self) -> None:
        """Mark the present content as changed, so that `save_unsaved` writes it."""
        self._version += 1
        self._due = self._version

    def save_unsaved(self) -> None:
        """Write and sync the file if entries were removed, lowered or set in memory since the last
        write."""
        if self._written < self._due:
            self.save({})

    def replace(self, offsets: Mapping[Partition, int | None]) -> None:
        """Set these values, and write and sync the file if any has changed. None removes an
        entry."""
        self._take_over(offsets)
        self.save_unsaved()

    def begin_replace(self, offsets: Mapping[Partition, int | None]) -> Callable[[], None]:
        """Set these values in memory; None removes an entry. Return a function that writes and
        syncs the file if any has changed, and may run in a thread."""
        self._take_over(offsets)
        return self.begin_save({}) if self._written < self._due else _nothing

    def _take_over(self, offsets: Mapping[Partition, int | None]) -> None:
        """Set these values, in memory only. None removes an entry."""
        for partition, offset in offsets.items():
            if offset is None:
                self.forget(partition)
            elif self._offsets.get(partition) != offset:
                self.replace_in_memory(partition, offset)

    def replace_in_memory(self, partition: Partition, offset: int) -> None:
        """Set the partition's value, in memory only; `save_unsaved` writes the file."""
        self._offsets[partition] = offset
        self._is_due()

    def save(self, offsets: Mapping[Partition, int]) -> None:
        """Set these values, and write and sync the file."""
        self.begin_save(offsets)()

    def begin_save(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """Set these values in memory. Return a function that writes and syncs the file and may run
        in a thread. It writes nothing if a newer version has been written before it runs."""
        self._offsets.update(offsets)
        self._version += 1
        # In this order: a value that is lowered meanwhile has a version that is still to be saved.
        version, copy = self._version, dict(self._offsets)
        self._writing[version] = copy

        def finish() -> None:
            with self._saving:
                if version > self._written:
                    self._disk.replace(
                        self._path, checkpoint_formats.encode_offsets(copy), sync=True
                    )
                    self._saved, self._written = copy, version
                    self._was_saved(version)
                for outdated in [each for each in tuple(self._writing) if each <= self._written]:
                    del self._writing[outdated]

        return finish

    def _was_saved(self, version: int) -> None:
        """Called once the content of this version is synced. Another write waits meanwhile."""


def _nothing() -> None:
    """Do nothing. Returned instead of a write if the file is up to date."""


class Beginnings(OffsetFile):
    """The noted start of each log that has had records: an offset at or after the log's first one.
    Recovery compares the note with the first file, and so finds that a log has lost its first
    files.

    A note that must not wait for the disk is in a second file until the next save. A power cut may
    damage that file, and takes no note that was saved. A note in it counts only for a log that the
    first file does not name, so an outdated one does no harm.
    """

    def __init__(self, disk: Disk, path: Path, unsynced: Path) -> None:
        super().__init__(disk, path)
        self._unsynced_path = unsynced
        # The notes in the second file, and the version of the content when it was written.
        self._unsynced: dict[Partition, int] = {}
        self._unsynced_version = 0

    def load(self) -> None:
        """Read both files. The second one is synced first, since what is read must survive a power
        cut."""
        super().load()
        if not self._disk.exists(self._unsynced_path):
            return
        self._disk.sync(self._unsynced_path)
        data = self._disk.read(self._unsynced_path)
        self._unsynced = checkpoint_formats.decode_offsets(data or b"") or {}
        self._offsets = self._unsynced | self._offsets
        self._is_due()
        self._unsynced_version = self._version

    def may_hold(self, partition: Partition) -> bool:
        """Return True if one of the files may hold a note of the partition."""
        return partition in self._unsynced or super().may_hold(partition)

    def clear(self) -> None:
        """Remove all notes and both files, which needs no disk space."""
        self._disk.remove(self._unsynced_path)
        super().clear()
        self._unsynced = {}

    def _was_saved(self, version: int) -> None:
        """Remove the second file, unless it has a later note."""
        if self._unsynced_version <= version and self._unsynced_version:
            self._disk.remove(self._unsynced_path)
            self._disk.sync_directory(self._unsynced_path.parent)
            self._unsynced, self._unsynced_version = {}, 0

    def _write_unsynced(self, partition: Partition, offset: int) -> None:
        """Set a note, and write it to the second file without a sync: it survives the end of the
        process, not a power cut. The next save syncs it."""
        with self._saving:
            self._unsynced[partition] = offset
            self._disk.replace(
                self._unsynced_path, checkpoint_formats.encode_offsets(self._unsynced), sync=False
            )
            self.replace_in_memory(partition, offset)
            self._unsynced_version = self._version

    def begin_note(self, logs: Iterable[tuple[Partition, Log]]) -> Callable[[], None]:
        """Note the present starts of these logs in memory, and return a function that writes the
        notes if any has changed and may run in a thread. A log that has never had records gets no
        note. A log that has lost its beginning keeps its old note, so that later starts find the
        loss, too."""
        return self.begin_replace(
            {
                at: log.log_start_offset
                for at, log in logs
                if not log.beginning_lost and (log.size or self.get(at) is not None)
            }
        )

    def note(self, partition: Partition, start: int) -> None:
        """Write a note of a log's start to the disk before returning, unless the disk has it
        already."""
        if self.saved(partition) != start:
            self.save({partition: start})

    def before_second_file(self, partition: Partition, start: int) -> None:
        """Note a log's start before the log gets a second segment file. Without a note recovery
        would not notice that the first file is missing. A first note is written without a sync; the
        next save syncs it."""
        noted = self.saved(partition)
        if noted is None:
            self._write_unsynced(partition, start)
        elif noted > start:
            self.save({partition: start})

    def before_discard(self, partition: Partition, offset: int) -> None:
        """Raise a log's note, if it has one, to `offset`, where the log will start, in memory only;
        `save_unsaved` writes the file. An equal or later note stays."""
        noted = self.get(partition)
        if noted is not None and noted < offset:
            self.replace_in_memory(partition, offset)

    def removable_below(self, partition: Partition, start: int) -> int:
        """Return the offset below which files may be removed: `start`, or the noted start on the
        disk if that is lower."""
        noted = self.saved(partition)
        return start if noted is None else min(noted, start)

    def begin_forget_all(self) -> Callable[[], None]:
        """Return a function that removes all notes and their file, and may run in a thread."""
        return self.clear


class CheckpointFiles:
    """All checkpoint files of a broker's volume; the base class of `LogStore`. `logs`: the open
    logs. A method that begins with `begin` changes the content in memory and returns a function
    that writes the files and may run in a thread."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk
        self.logs: dict[Partition, Log] = {}
        # Partitions whose log a thread reopens: their lines do not change meanwhile.
        self.reopening: set[Partition] = set()
        self._high_watermarks = self._offsets(checkpoint_formats.HIGH_WATERMARKS)
        self._recovery_points = self._offsets(checkpoint_formats.RECOVERY_POINTS)
        self._log_starts = self._offsets(checkpoint_formats.LOG_STARTS)
        self.cleaned_ends = self._offsets(checkpoint_formats.CLEANED_ENDS)
        # The values that supersede cleaned records lie below these ends; written before any is
        # removed.
        self.superseding_ends = self._offsets(checkpoint_formats.SUPERSEDING_ENDS)
        cleaned = self.superseding_ends, self.cleaned_ends
        watermarks = self._log_starts, self._high_watermarks, *cleaned
        # The files that are lowered before a log is truncated.
        self._files = (self._recovery_points, *watermarks)
        self.beginnings = Beginnings(
            disk,
            directory / checkpoint_formats.BEGINNINGS,
            directory / checkpoint_formats.UNSYNCED_BEGINNINGS,
        )
        self._all = (*self._files, self.beginnings)

    def _offsets(self, name: str) -> OffsetFile:
        return OffsetFile(self.disk, self.directory / name)

    def load_checkpoints(self) -> None:
        """Read all checkpoint files."""
        for offsets in self._all:
            offsets.load()

    # --- saying less ------------------------------------------------------------------------------

    def _forget(self, partition: Partition) -> None:
        """Remove the partition's entries from all files in memory."""
        for offsets in self._all:
            offsets.forget(partition)

    def _forget_on_disk(self, partition: Partition) -> None:
        """Write the removal of the partition's old entries to those files that may hold any, before
        a new log is made under its name. Otherwise, by the old entries, the next start would remove
        the new log's records below the old log start, not check those below the old recovery point,
        and treat those below the old high watermark as committed."""
        for offsets in self._all:
            if offsets.may_hold(partition):
                offsets.save_unsaved()

    def begin_forget(self) -> Callable[[], None]:
        """Return a function that writes what was forgotten to the files and may run in a thread, so
        that the next log of a forgotten name finds no old entries."""
        return self.begin_lower({})

    def before_cut(self, partition: Partition, offset: int) -> None:
        """Lower all checkpoints to `offset` before the log is truncated to it. They are on the disk
        when this returns.

        Otherwise, after a crash, an outdated high watermark would be believed once the log has
        grown past it with other records, and records below an outdated log start would be removed.
        """
        for offsets in self._files:
            offsets.lower(partition, offset)
            offsets.save_unsaved()

    def before_discard(self, partition: Partition, offset: int) -> None:
        """Lower the checkpoints of a log that will be discarded and start anew at `offset`, and
        note that as its beginning. All are on the disk when this returns."""
        self.beginnings.before_discard(partition, offset)
        self.beginnings.save_unsaved()
        self.before_cut(partition, offset)

    def begin_lower(
        self, offsets: Mapping[Partition, int], *, discarded: bool = False
    ) -> Callable[[], None]:
        """Lower the checkpoints of many logs in memory, as `before_cut` does (as `before_discard`
        with `discarded`), and return a function that writes each file once and may run in a thread.
        `offsets`: the new log end, or start, by topic name and index. No log may be truncated
        before the function has run. It raises StorageError."""
        for file in self._files:
            for partition, offset in offsets.items():
                file.lower(partition, offset)
        if discarded:
            for partition, offset in offsets.items():
                self.beginnings.before_discard(partition, offset)
        saves = [file.begin_replace({}) for file in self._all]

        def save() -> None:
            for each in saves:
                each()

        return save

    def save_lowered(self) -> None:
        """Write the high watermarks and superseding ends that were changed in memory when logs were
        opened. Call it before anything is appended."""
        self._high_watermarks.save_unsaved()
        self.superseding_ends.save_unsaved()

    def superseding_lost(self, log: Log) -> bool:
        """Return True if the log has lost newer values of keys: its cleaner removed records that
        were superseded by records above the present log end. Then note that in memory, to be saved
        by `save_lowered`. Other replicas that have the newer values are complete, and this one is
        not. The result stays True over restarts until the log starts anew or its replica becomes
        leader."""
        partition = (log.topic, log.index)
        # An earlier release noted only the end of a round.
        ends = self.superseding_ends.get(partition), self.cleaned_ends.get(partition)
        superseding_end = max(end or 0 for end in ends)
        if superseding_end <= log.log_end_offset:
            return False
        if ends[0] != superseding_end:
            self.superseding_ends.replace_in_memory(partition, superseding_end)
        return True

    def begin_superseding(self, log: Log, end: int) -> Callable[[], None]:
        """Note in memory that records of the log were superseded by records below `end`, and return
        a function that writes the note and may run in a thread. It must run before the cleaner
        removes such records. A higher note stays."""
        partition = (log.topic, log.index)
        known = self.superseding_ends.get(partition) or 0
        return self.superseding_ends.begin_save({partition: max(known, end)})

    def high_watermark(self, log: Log) -> int:
        """Return the checkpointed high watermark, or the log start if there is none, limited to the
        range from log start to log end."""
        stored = self._high_watermarks.get((log.topic, log.index)) or log.log_start_offset
        return min(max(stored, log.log_start_offset), log.log_end_offset)

    # --- saying more ------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self, offsets: Mapping[Partition, int]) -> None:
        """Save these high watermarks."""
        self._high_watermarks.save(offsets)

    def begin_high_watermarks(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """Set these high watermarks in memory. Return a function that saves them and may run in a
        thread."""
        return self._high_watermarks.begin_save(offsets)

    def checkpoint_recovery_points(self) -> None:
        """Save the recovery points of all open logs."""
        self.begin_recovery_points()()

    def begin_recovery_points(self) -> Callable[[], None]:
        """Copy the present recovery points of all open logs, except those being reopened, to
        memory. Return a function that saves them and may run in a thread."""
        return self._recovery_points.begin_save(
            {at: log.recovery_point for at, log in self._settled()}
        )

    def begin_log_starts(self, of: Iterable[Partition] | None = None) -> Callable[[], None]:
        """Copy the log starts that `checkpoint_log_starts` saves, and the noted beginnings, to
        memory; only those of the partitions `of`, if given. Return a function that saves both, the
        beginnings first, and may run in a thread."""
        settled = list(self._settled(of))
        # In this order: a start removes records below a log start on the disk.
        note = self.beginnings.begin_note(settled)
        save = self._log_starts.begin_replace({at: _start_to_save(log) for at, log in settled})

        def both() -> None:
            note()
            save()

        return both

    def saved_log_start(self, log: Log) -> int:
        """Return the log start that is on the disk for certain, as the lower of the saved log start
        (0 if there is none) and the noted beginning. Segments wholly below it may be removed."""
        partition = (log.topic, log.index)
        saved = self._log_starts.saved(partition) or 0
        return self.beginnings.removable_below(partition, saved)

    def checkpoint_log_starts(self) -> None:
        """Save the log starts that cannot be derived from the file names: a log start within the
        first segment, or of a log with removed segments that a power cut may restore."""
        self.begin_log_starts()()

    def flushed_at_stop(self, partition: Partition) -> int | None:
        """Return the recovery point that an earlier process saved for this partition. Return None
        if there is none, so the partition had no log here."""
        return self._recovery_points.get(partition)

    def save_all_log_starts(self) -> None:
        """Save the log starts of all logs at a clean stop, so that the next start notices a missing
        first segment."""
        self.beginnings.begin_note(self._settled())()
        self._log_starts.replace({at: log.log_start_offset for at, log in self._settled()})

    def _settled(self, of: Iterable[Partition] | None = None) -> Iterator[tuple[Partition, Log]]:
        """Yield the open logs, or those of the partitions `of`, with their partitions, except logs
        that a thread is reopening."""
        for at in self.logs if of is None else of:
            if at not in self.reopening and (log := self.logs.get(at)) is not None:
                yield at, log


def _start_to_save(log: Log) -> int | None:
    """Return the log start if it must be saved, since after a power cut the names of the segments
    might not tell it. Otherwise return None."""
    start, base = log.log_start_offset, log.segments[0].base_offset
    told = not start or (start == base and log.unsynced.removals_synced)
    return None if told else start


class CheckpointLines:
    """One log's access to its entries in all checkpoint files. Implements `LogNotes`."""

    def __init__(self, files: CheckpointFiles, partition: Partition) -> None:
        self._files = files
        self._partition = partition

    def before_cut(self, offset: int) -> None:
        self._files.before_cut(self._partition, offset)

    def before_discard(self, offset: int) -> None:
        self._files.before_discard(self._partition, offset)

    def before_second_file(self, start: int) -> None:
        self._files.beginnings.before_second_file(self._partition, start)

    def begins(self, start: int) -> None:
        self._files.beginnings.note(self._partition, start)

    def supersedes_below(self, end: int) -> None:
        self._files.superseding_ends.lower(self._partition, end)
        self._files.superseding_ends.save_unsaved()
