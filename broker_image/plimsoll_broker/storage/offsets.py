"""One of a volume's checkpoint files: an offset for each partition, on disk old or new.

The store has one each for high watermarks, recovery points and log starts.  A lower value says that
less of a log can be relied on than the file still claims, so it must be on disk before the log
changes.  `begin_save` may run in a thread, and never overwrites what was saved after it began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

from plimsoll_broker.storage import checkpoints
from plimsoll_broker.storage.checkpoints import Partition
from plimsoll_broker.storage.disk import Disk

logger = logging.getLogger("plimsoll.storage")


class OffsetFile:
    """Partitions that are not open keep what the file said."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[Partition, int] = {}
        self._changes = self._changes_saved = 0
        self._saving = Lock()
        self._generation = self._written = 0

    def load(self) -> None:
        """A file that is missing or makes no sense only means more to read."""
        data = self._disk.read(self._path)
        offsets = None if data is None else checkpoints.decode_offsets(data)
        if offsets is None and data is not None:
            logger.error("%s does not hold what it should: what it said is found out", self._path)
        self._offsets = offsets or {}

    def get(self, partition: Partition) -> int | None:
        return self._offsets.get(partition)

    def forget(self, partition: Partition) -> None:
        """In memory; `save_unsaved` brings it to the disk."""
        self._changes += self._offsets.pop(partition, None) is not None

    def lower(self, partition: Partition, offset: int) -> None:
        """Not above `offset`, in memory; `save_unsaved` brings it to the disk."""
        if self._offsets.get(partition, 0) > offset:
            self._offsets[partition] = offset
            self._changes += 1

    def save_unsaved(self) -> None:
        """What was forgotten or lowered is so on disk when this returns."""
        if self._changes != self._changes_saved:
            self.save({})

    def replace(self, offsets: Mapping[Partition, int | None]) -> None:
        """What is None needs no entry; written only if anything is another than it was."""
        self._take_over(offsets)
        self.save_unsaved()

    def begin_replace(self, offsets: Mapping[Partition, int | None]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        self._take_over(offsets)
        return _nothing if self._changes == self._changes_saved else self.begin_save({})

    def _take_over(self, offsets: Mapping[Partition, int | None]) -> None:
        for partition, offset in offsets.items():
            if offset is None:
                self.forget(partition)
            elif self._offsets.get(partition) != offset:
                self._offsets[partition] = offset
                self._changes += 1

    def save(self, offsets: Mapping[Partition, int]) -> None:
        self._offsets.update(offsets)
        self._generation += 1
        with self._saving:
            self._write(self._offsets, self._changes, self._generation)

    def begin_save(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        self._offsets.update(offsets)
        self._generation += 1
        copy, changes, generation = dict(self._offsets), self._changes, self._generation

        def finish() -> None:
            with self._saving:
                if generation > self._written:
                    self._write(copy, changes, generation)

        return finish

    def _write(self, offsets: Mapping[Partition, int], changes: int, generation: int) -> None:
        """`changes`: how many there had been.  Those since are not on the disk yet."""
        self._disk.replace(self._path, checkpoints.encode_offsets(offsets), sync=True)
        self._changes_saved, self._written = changes, generation


def _nothing() -> None:
    """Nothing has changed."""
