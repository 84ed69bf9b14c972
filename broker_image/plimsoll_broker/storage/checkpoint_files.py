"""The checkpoint files of a volume: the state of all its logs, and when an entry must be lowered.

The base of `LogStore`: a file each for high watermarks, recovery points, log starts, the ends of
what was cleaned, and where logs were noted to begin, with a line for every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.beginnings import Beginnings
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.offset_file import OffsetFile


class CheckpointFiles:
    """`logs`: those that are open.  What begins with `begin` returns what may run in a thread."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk
        self.logs: dict[Partition, Log] = {}
        # Of these a thread opens the log anew: until it is over their lines stay as they are.
        self.reopening: set[Partition] = set()
        self._high_watermarks = self._offsets(checkpoint_formats.HIGH_WATERMARKS)
        self._recovery_points = self._offsets(checkpoint_formats.RECOVERY_POINTS)
        self._log_starts = self._offsets(checkpoint_formats.LOG_STARTS)
        self.cleaned_ends = self._offsets(checkpoint_formats.CLEANED_ENDS)
        # What superseded records that a cleaner took lies below: on the disk before any goes.
        self.superseding_ends = self._offsets(checkpoint_formats.SUPERSEDING_ENDS)
        cleaned = self.superseding_ends, self.cleaned_ends
        watermarks = self._log_starts, self._high_watermarks, *cleaned
        # Those that are lowered before a log is cut.
        self._files = (self._recovery_points, *watermarks)
        self.beginnings = Beginnings(disk, directory / checkpoint_formats.BEGINNINGS)
        self._all = (*self._files, self.beginnings)

    def _offsets(self, name: str) -> OffsetFile:
        return OffsetFile(self.disk, self.directory / name)

    def load_checkpoints(self) -> None:
        for offsets in self._all:
            offsets.load()
        if not all(offsets.sealed for offsets in self._all):
            # Version 0.1 wrote here since, and notes nothing before it removes files.
            self.beginnings.clear(on_disk=False)

    # --- saying less ------------------------------------------------------------------------------

    def _forget(self, partition: Partition) -> None:
        for offsets in self._all:
            offsets.forget(partition)

    def _forget_on_disk(self) -> None:
        """Before a new log is made: under an old log's start it would be thrown away at the next
        start, below an old log's recovery point it would not be checked, and below an old log's
        high watermark it would be taken for committed."""
        for offsets in self._all:
            offsets.save_unsaved()

    def before_cut(self, partition: Partition, offset: int) -> None:
        """No checkpoint may say more of a log than it is going to hold.

        A high watermark that outlived what it counted would be taken for true again after a crash,
        once the log has grown past it with other records; and under a start that outlived them
        what is written from now on would be thrown away.
        """
        for offsets in self._files:
            offsets.lower(partition, offset)
            offsets.save_unsaved()

    def before_discard(self, partition: Partition, offset: int) -> None:
        """A log that begins anew there: nor was it noted to begin before that."""
        self.beginnings.before_discard(partition, offset)
        self.beginnings.save_unsaved()
        self.before_cut(partition, offset)

    def begin_lower(
        self, offsets: Mapping[Partition, int], *, discarded: bool = False
    ) -> Callable[[], None]:
        """What `before_cut` or `before_discard` would write for each of many, written once; what
        is returned may run in a thread, and the logs are not cut before it has."""
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
        """High watermarks beyond the end of their logs, as found when those were opened, are gone
        from the disk before anything is appended."""
        self._high_watermarks.save_unsaved()
        self.superseding_ends.save_unsaved()

    def superseding_lost(self, log: Log) -> bool:
        """Whether the log ends below what superseded records that its cleaner took: whoever ends
        there has those records, and this log has nothing of their keys.  So it stays, also over
        clean stops, until the log begins anew or leads."""
        partition = (log.topic, log.index)
        # A release before noted nothing but where a round had ended.
        ends = self.superseding_ends.get(partition), self.cleaned_ends.get(partition)
        superseding_end = max(end or 0 for end in ends)
        if superseding_end <= log.log_end_offset:
            return False
        if ends[0] != superseding_end:
            self.superseding_ends.replace_in_memory(partition, superseding_end)
        return True

    def begin_superseding(self, log: Log, end: int) -> Callable[[], None]:
        """Before a cleaner takes what was superseded below `end`; what is returned may run in a
        thread."""
        partition = (log.topic, log.index)
        known = self.superseding_ends.get(partition) or 0
        return self.superseding_ends.begin_save({partition: max(known, end)})

    def high_watermark(self, log: Log) -> int:
        """The last checkpointed one, within what the log holds; without one the log's start."""
        stored = self._high_watermarks.get((log.topic, log.index)) or log.log_start_offset
        return min(max(stored, log.log_start_offset), log.log_end_offset)

    # --- saying more ------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self, offsets: Mapping[Partition, int]) -> None:
        self._high_watermarks.save(offsets)

    def begin_high_watermarks(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        return self._high_watermarks.begin_save(offsets)

    def checkpoint_recovery_points(self) -> None:
        self.begin_recovery_points()()

    def begin_recovery_points(self) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        return self._recovery_points.begin_save(
            {at: log.recovery_point for at, log in self._settled()}
        )

    def begin_log_starts(self) -> Callable[[], None]:
        """`checkpoint_log_starts` in two steps: what is returned may run in a thread."""
        # In this order: what lies below a start that is on the disk a start removes.
        note = self.beginnings.begin_note(self._settled())
        save = self._log_starts.begin_replace(
            {at: _start_to_save(log) for at, log in self._settled()}
        )

        def both() -> None:
            note()
            save()

        return both

    def saved_log_start(self, log: Log) -> int:
        """What is on the disk, as far as it is known to be: what lies below may be removed."""
        partition = (log.topic, log.index)
        saved = self._log_starts.saved(partition) or 0
        return self.beginnings.removable_below(partition, saved)

    def checkpoint_log_starts(self) -> None:
        """Of the logs that start above their first segment, or had segments removed of which a
        power cut may bring back any: of the others the files' names tell."""
        self.begin_log_starts()()

    def flushed_at_stop(self, partition: Partition) -> int | None:
        """The recovery point that was noted before this start."""
        return self._recovery_points.get(partition)

    def save_all_log_starts(self) -> None:
        """At a clean stop: the next start is to miss a first segment that is gone."""
        self.beginnings.begin_note(self._settled())()
        self._log_starts.replace({at: log.log_start_offset for at, log in self._settled()})

    def _settled(self) -> Iterator[tuple[Partition, Log]]:
        return ((at, log) for at, log in self.logs.items() if at not in self.reopening)


def _start_to_save(log: Log) -> int | None:
    """The log's start, where a power cut could leave names of files that do not tell it."""
    start, base = log.log_start_offset, log.segments[0].base_offset
    told = not start or (start == base and log.unsynced.removals_synced)
    return None if told else start


class CheckpointLines:
    """One log's (`LogNotes`)."""

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
