"""NewLogs: logs whose identity a power cut may still remove; it must be durable before their first
record.

Owned by `LogStore`. A thread removes logs that it made durable, while the event loop may give the
same name to another topic's log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from plimsoll_broker.storage.checkpoint_formats import PARTITION_METADATA, Partition
from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.log import Log


class NewLogs:
    """The new logs in `directory`. A method that begins with `begin` returns a function that may
    run in a thread."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._new: dict[Partition, Path] = {}
        self._changing = threading.Lock()
        # New logs whose sync failed: a repeated sync may succeed although the first lost data.
        # Their appends raise the error.
        self._undurable: dict[Partition, StorageError] = {}

    def add(self, partition: Partition, log: Log) -> None:
        """Add a log that is new, or was made by a process that may have died before it was
        durable."""
        with self._changing:
            self._new[partition] = log.directory
        log.make_durable = partial(self._make_one_durable, partition)

    def forget(self, partition: Partition) -> None:
        """Forget a log that is no longer here."""
        self._new.pop(partition, None)
        self._undurable.pop(partition, None)

    def reopened(self, partition: Partition, log: Log) -> None:
        """Try a reopened log again."""
        if partition in self._new:
            self._undurable.pop(partition, None)
            log.make_durable = partial(self._make_one_durable, partition)

    def __bool__(self) -> bool:
        return bool(self._new)

    def among(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return those that must be made durable before their first append."""
        return [at for at in partitions if at in self._new] if self._new else []

    def begin_of(self, partitions: Iterable[Partition]) -> Callable[[], None]:
        """As `begin`, for these."""
        return partial(self._make_durable, partitions)

    def begin(self) -> Callable[[], None] | None:
        """Return a function that makes all new logs durable, or None if there are none."""
        new = tuple(at for at in self._new if at not in self._undurable)
        return partial(self._make_durable, new) if new else None

    def _make_durable(self, partitions: Iterable[Partition]) -> None:
        """Make logs durable. A log whose sync fails stays new; the others do not wait for it."""
        wanted = [at for at in partitions if at not in self._undurable]
        paths = {at: path for at in wanted if (path := self._new.get(at)) is not None}
        failed = {at: error for at, path in paths.items() if (error := _sync(self._disk, path))}
        if paths:
            try:
                self._disk.sync_directory(self._directory)
            except StorageError as error:
                failed = dict.fromkeys(paths, error)
        for partition, path in paths.items():
            with self._changing:
                if self._new.get(partition) is not path:
                    continue
                if partition in failed:
                    self._undurable[partition] = failed[partition]
                else:
                    self._new.pop(partition, None)

    def _make_one_durable(self, partition: Partition) -> None:
        self._make_durable((partition,))
        if (error := self._undurable.get(partition)) is not None:
            raise error


def _sync(disk: Disk, path: Path) -> StorageError | None:
    """Sync a new log's files. Return the error, or None, also if the log was deleted meanwhile."""
    if not disk.exists(path):
        return None
    try:
        disk.sync(path / PARTITION_METADATA)
        disk.sync_directory(path)
    except StorageError as error:
        return error if disk.exists(path) else None
    return None
