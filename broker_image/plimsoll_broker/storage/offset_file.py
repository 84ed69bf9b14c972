"""OffsetFile: one of a volume's checkpoint files, with an offset for each partition, replaced
atomically.

The store has one each for high watermarks, recovery points and log starts. A lower value must be on
disk before the log changes, since less of the log can be relied on. The functions that `begin_save`
and `begin_replace` return may run in a thread, and never overwrite what was saved after they began.
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
    """Partitions that are not open keep the file's value.

    `_version` is the version in memory, `_written` that of the file, `_due` the one that
    `save_unsaved` must write.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[Partition, int] = {}
        self._saved: Mapping[Partition, int] = {}
        self._version = self._written = self._due = 0
        self._saving = Lock()
        # True if the file has a CRC, which version 0.1 did not write, or if there is no file.
        self.sealed = True

    def load(self) -> None:
        """Load the file. If it is missing or corrupt, more of the logs is read."""
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
        """Return the value in the file, or None."""
        return self._saved.get(partition)

    def forget_but(self, here: Container[Partition]) -> None:
        """Forget all other partitions."""
        for partition in [each for each in self._offsets if each not in here]:
            self.forget(partition)

    def clear(self, *, on_disk: bool) -> None:
        """Forget all. `on_disk`: remove the file, which needs no disk space."""
        with self._saving:
            self._offsets, self._saved = {}, {}
            self._version += 1
            self._written = self._due = self._version  # outdates a thread's pending write
            if on_disk:
                self._disk.remove(self._path)
                self._disk.sync_directory(self._path.parent)

    def forget(self, partition: Partition) -> None:
        """Forget the partition in memory; `save_unsaved` writes it."""
        if self._offsets.pop(partition, None) is not None:
            self._is_due()

    def lower(self, partition: Partition, offset: int) -> None:
        """Lower the value to at most `offset` in memory; `save_unsaved` writes it."""
        if self._offsets.get(partition, 0) > offset:
            self._offsets[partition] = offset
            self._is_due()

    def write_unsynced(self, partition: Partition, offset: int) -> None:
        """Write a value without a sync: it survives the process, and the next save syncs it."""
        with self._saving:
            self._offsets[partition] = offset
            self._version += 1
            self._disk.replace(
                self._path, checkpoint_formats.encode_offsets(self._offsets), sync=False
            )
            self._written = self._version  # outdates a thread's pending write
            self._is_due()

    def _is_due(self) -> None:
        self._version += 1
        self._due = self._version

    def save_unsaved(self) -> None:
        """Persist what was forgotten or lowered."""
        if self._written < self._due:
            self.save({})

    def replace(self, offsets: Mapping[Partition, int | None]) -> None:
        """Replace values and save if any has changed; None removes an entry."""
        self._take_over(offsets)
        self.save_unsaved()

    def begin_replace(self, offsets: Mapping[Partition, int | None]) -> Callable[[], None]:
        """As `replace`; the returned function may run in a thread."""
        self._take_over(offsets)
        return self.begin_save({}) if self._written < self._due else _nothing

    def _take_over(self, offsets: Mapping[Partition, int | None]) -> None:
        for partition, offset in offsets.items():
            if offset is None:
                self.forget(partition)
            elif self._offsets.get(partition) != offset:
                self.replace_in_memory(partition, offset)

    def replace_in_memory(self, partition: Partition, offset: int) -> None:
        """Set the value in memory; `save_unsaved` writes it."""
        self._offsets[partition] = offset
        self._is_due()

    def save(self, offsets: Mapping[Partition, int]) -> None:
        self.begin_save(offsets)()

    def begin_save(self, offsets: Mapping[Partition, int]) -> Callable[[], None]:
        """As `save`; the returned function may run in a thread."""
        self._offsets.update(offsets)
        self._version += 1
        # In this order: a value that is lowered meanwhile has a version that is still to be saved.
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
