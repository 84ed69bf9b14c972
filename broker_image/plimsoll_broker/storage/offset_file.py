"""One of a volume's checkpoint files: an offset for each partition, on disk old or new.

The store has one each for high watermarks, recovery points and log starts.  A lower value says that
less of a log can be relied on than the file still claims, so it must be on disk before the log
changes.  What `begin_save` and `begin_replace` return may run in a thread, and never overwrites
what was saved after it began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from threading import Lock

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import Disk

logger = logging.getLogger("plimsoll.storage")


class OffsetFile:
    """Partitions that are not open keep what the file said.

    `_version` is that of what is in memory, `_written` that of the file; `_due`: the one that
    `save_unsaved` has to bring to the disk.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[Partition, int] = {}
        self._saved: Mapping[Partition, int] = {}
        self._version = self._written = self._due = 0
        self._saving = Lock()
        # Whether its writer sealed it with a CRC, which version 0.1 did not; also where none is.
        self.sealed = True

    def load(self) -> None:
        """A file that is missing or makes no sense only means more to read."""
        data = self._disk.read(self._path)
        offsets = None if data is None else checkpoint_formats.decode_offsets(data)
        if offsets is None and data is not None:
            logger.error("%s is corrupt: recovering its offsets from the logs", self._path)
        self._offsets = offsets or {}
        self._saved = dict(self._offsets)
        self.sealed = data is None or checkpoint_formats.is_sealed(data)

    def get(self, partition: Partition) -> int | None:
        return self._offsets.get(partition)

    def saved(self, partition: Partition) -> int | None:
        """What the file says now."""
        return self._saved.get(partition)

    def forget_but(self, here: Container[Partition]) -> None:
        """As `forget`, every other one."""
        for partition in [each for each in self._offsets if each not in here]:
            self.forget(partition)

    def clear(self, *, on_disk: bool) -> None:
        """Forget all; on the disk the file goes, which needs no room there."""
        with self._saving:
            self._offsets, self._saved = {}, {}
            self._version += 1
            self._written = self._due = self._version  # what a thread is about to write is old
            if on_disk:
                self._disk.remove(self._path)
                self._disk.sync_directory(self._path.parent)

    def forget(self, partition: Partition) -> None:
        """In memory; `save_unsaved` brings it to the disk."""
        if self._offsets.pop(partition, None) is not None:
            self._is_due()

    def lower(self, partition: Partition, offset: int) -> None:
        """Not above `offset`, in memory; `save_unsaved` brings it to the disk."""
        if self._offsets.get(partition, 0) > offset:
            self._offsets[partition] = offset
            self._is_due()

    def write_unsynced(self, partition: Partition, offset: int) -> None:
        """No kill takes it back, and it costs the caller no sync; the next save syncs it."""
        with self._saving:
            self._offsets[partition] = offset
            self._version += 1
            self._disk.replace(
                self._path, checkpoint_formats.encode_offsets(self._offsets), sync=False
            )
            self._written = self._version  # what a thread is about to write is old
            self._is_due()

    def _is_due(self) -> None:
        self._version += 1
        self._due = self._version

    def save_unsaved(self) -> None:
        """What was forgotten or lowered is so on disk when this returns."""
        if self._written < self._due:
            self.save({})

    def replace(self, offsets: Mapping[Partition, int | None]) -> None:
        """What is None needs no entry; written only if anything is another than it was."""
        self._take_over(offsets)
        self.save_unsaved()

    def begin_replace(self, offsets: Mapping[Partition, int | None]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        self._take_over(offsets)
        return self.begin_save({}) if self._written < self._due else _nothing

    def _take_over(self, offsets: Mapping[Partition, int | None]) -> None:
        for partition, offset in offsets.items():
            if offset is None:
                self.forget(partition)
            elif self._offsets.get(partition) != offset:
                self.replace_in_memory(partition, offset)

    def replace_in_memory(self, partition: Partition, offset: int) -> None:
        """`save_unsaved` brings it to the disk."""
        self._offsets[partition] = offset
        self._is_due()

    def save(self, offsets: Mapping[Partition, int]) -> None:
        self.begin_save(offsets)()

    def begin_save(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in a thread."""
        self._offsets.update(offsets)
        self._version += 1
        # In this order: what a thread lowers in between has a version that is still to be saved.
        version, copy = self._version, dict(self._offsets)

        def finish() -> None:
            with self._saving:
                if version > self._written:
                    self._disk.replace(
                        self._path, checkpoint_formats.encode_offsets(copy), sync=True
                    )
                    self._saved, self._written = copy, version

        return finish


def _nothing() -> None:
    """Nothing has changed."""
