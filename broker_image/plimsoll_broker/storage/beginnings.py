"""Where each log was noted to begin: whose first file begins later has lost its beginning.

Called by `CheckpointFiles`.  The note is on the disk before a log begins later, so before any of
its files is removed or discarded: the old one would accuse a log that is whole.  Where
a full disk takes no note, all of them go (that needs no room) before anything is removed: a log
without a note is believed.  Source: the protocol's local storage rules (4.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.offset_file import OffsetFile


class Beginnings(OffsetFile):
    """An offset for each log that had records: it begins there or before."""

    def begin_note(self, logs: Iterable[tuple[Partition, Log]]) -> Callable[[], None]:
        """As they begin now; what is returned may run in a thread.  Who lost its beginning keeps
        its note, which says so at the next start, too."""
        return self.begin_replace(
            {
                at: log.log_start_offset
                for at, log in logs
                if not log.beginning_lost and (log.size or self.get(at) is not None)
            }
        )

    def note(self, partition: Partition, start: int) -> None:
        """On the disk when this returns."""
        if self.saved(partition) != start:
            self.save({partition: start})

    def before_second_file(self, partition: Partition, start: int) -> None:
        """Until then who loses its first file has lost everything.  The event loop waits for no
        sync: that comes with the next look."""
        noted = self.saved(partition)
        if noted is None or noted > start:
            self.write_unsynced(partition, start)

    def before_discard(self, partition: Partition, offset: int) -> None:
        """The log is going to begin there; in memory, `save_unsaved` brings it to the disk.  Where
        that is earlier, the note may wait."""
        noted = self.get(partition)
        if noted is not None and noted < offset:
            self.replace_in_memory(partition, offset)

    def removable_below(self, partition: Partition, start: int) -> int:
        """`start`, or as far as it is noted."""
        noted = self.saved(partition)
        return start if noted is None else min(noted, start)

    def begin_forget_all(self) -> Callable[[], None]:
        """Before what cannot be noted; what is returned may run in a thread."""
        return partial(self.clear, on_disk=True)
