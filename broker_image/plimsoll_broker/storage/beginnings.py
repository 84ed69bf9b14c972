"""Beginnings: the noted start of each log; a log whose first file starts later has lost its
beginning.

Called by `CheckpointFiles`. The note is on the disk before a log starts later, hence before any of
its files is removed or discarded: an old note would mark a whole log as damaged. If a full disk
cannot take a note, all notes are removed (which needs no room) before any file: a log without a
note is trusted. Source: the protocol's local storage rules (4.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.offset_file import OffsetFile


class Beginnings(OffsetFile):
    """An offset for each log that had records: the log starts there or before."""

    def begin_note(self, logs: Iterable[tuple[Partition, Log]]) -> Callable[[], None]:
        """Note the present starts; the returned function may run in a thread. A log that lost its
        beginning keeps its note, so that the next start knows, too."""
        return self.begin_replace(
            {
                at: log.log_start_offset
                for at, log in logs
                if not log.beginning_lost and (log.size or self.get(at) is not None)
            }
        )

    def note(self, partition: Partition, start: int) -> None:
        """Note a log's start; it is on the disk when this returns."""
        if self.saved(partition) != start:
            self.save({partition: start})

    def before_second_file(self, partition: Partition, start: int) -> None:
        """With a single segment, losing it loses the log. Written without fsync; the next pass
        syncs."""
        noted = self.saved(partition)
        if noted is None or noted > start:
            self.write_unsynced(partition, start)

    def before_discard(self, partition: Partition, offset: int) -> None:
        """Note that the log will start at `offset`, in memory; `save_unsaved` writes it. A note of
        a later start may wait."""
        noted = self.get(partition)
        if noted is not None and noted < offset:
            self.replace_in_memory(partition, offset)

    def removable_below(self, partition: Partition, start: int) -> int:
        """Return `start`, or the noted start if that is lower."""
        noted = self.saved(partition)
        return start if noted is None else min(noted, start)

    def begin_forget_all(self) -> Callable[[], None]:
        """Remove all notes; the returned function may run in a thread."""
        return partial(self.clear, on_disk=True)
