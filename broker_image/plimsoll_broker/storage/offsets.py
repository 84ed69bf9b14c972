"""One of a volume's checkpoint files: an offset for each partition, on disk old or new.

The store has one each for high watermarks, recovery points and log starts.  A lower value says that
less of a log can be relied on than the file still claims, so it must be on disk before the log
changes.  `begin_save` may run in a thread, and never overwrites what was saved after it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

from plimsoll_broker.storage import checkpoints
from plimsoll_broker.storage.checkpoints import Partition
from plimsoll_broker.storage.disk import Disk


class OffsetFile:
    """Partitions that are not open keep what the file said."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[Partition, int] = {}
        self._unsaved = False
        self._saving = Lock()
        self._generation = 0

    def load(self) -> None:
        """A file that is missing or makes no sense only means more to read."""
        data = self._disk.read(self._path)
        self._offsets = (None if data is None else checkpoints.decode_offsets(data)) or {}

    def get(self, partition: Partition) -> int | None:
        return self._offsets.get(partition)

    def forget(self, partition: Partition) -> None:
        """In memory; `save_unsaved` brings it to the disk."""
        self._unsaved = self._offsets.pop(partition, None) is not None or self._unsaved

    def lower(self, partition: Partition, offset: int) -> None:
        """Not above `offset`, in memory; `save_unsaved` brings it to the disk."""
        if self._offsets.get(partition, 0) > offset:
            self._offsets[partition] = offset
            self._unsaved = True

    def save_unsaved(self) -> None:
        """What was forgotten or lowered is so on disk when this returns."""
        if self._unsaved:
            self.save({})

    def replace(self, offsets: Mapping[Partition, int | None]) -> None:
        """What is None needs no entry; written only if anything is another than it was."""
        for partition, offset in offsets.items():
            if offset is None:
                self.forget(partition)
            elif self._offsets.get(partition) != offset:
                self._offsets[partition] = offset
                self._unsaved = True
        self.save_unsaved()

    def save(self, offsets: Mapping[Partition, int]) -> None:
        self._offsets.update(offsets)
        with self._saving:
            self._generation += 1
            self._write(checkpoints.encode_offsets(self._offsets))
        self._unsaved = False

    def begin_save(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        self._offsets.update(offsets)
        data, generation = checkpoints.encode_offsets(self._offsets), self._generation

        def finish() -> None:
            with self._saving:
                if self._generation == generation:
                    self._write(data)

        return finish

    def _write(self, data: bytes) -> None:
        self._disk.replace(self._path, data, sync=True)
