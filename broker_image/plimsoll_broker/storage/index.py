"""Sparse indexes of one segment: offset → file position, and timestamp → offset.

Called by a segment. An index is a hint that can always be rebuilt from the log. Entries are
buffered and written in small groups, so that an append costs one write. Source: Kafka's index
formats (8 and 12 bytes an entry, offsets relative to the segment's base). An entry names the last
offset of the batch at its position, as Kafka's dump tool expects.
"""

from __future__ import annotations

import struct
from pathlib import Path

from plimsoll_broker.storage.disk import Disk, DiskFile

_PENDING_ENTRIES_MAX = 64


class _EntryFile:
    """An index file of fixed-size entries; the newest entries are still in memory. Base class of
    `OffsetIndex` and `TimeIndex`."""

    def __init__(self, disk: Disk, path: Path, entry: struct.Struct) -> None:
        self._disk = disk
        self._entry = entry
        self.open_file: DiskFile | None = None
        self.used = False
        self._pending = bytearray()
        # The newest entry, where it is known: the next one is compared with it.
        self._last: tuple[int, int] | None = None
        self.path = path
        found = disk.size(path)
        size = found or 0
        self._made = found is not None
        self._written = size // entry.size
        if size % entry.size:
            self._open().truncate(self._written * entry.size)

    def _open(self) -> DiskFile:
        """Open the file; create it if nothing was written yet. Raise StorageError if a file that
        was written is missing."""
        self.used = True
        file = self.open_file
        return file if file is not None else self._opened()

    def _opened(self) -> DiskFile:
        file = self._disk.open_kept(self, self.path, make=not self._written)
        self.open_file = file
        self._made = True
        return file

    def __len__(self) -> int:
        return self._written + len(self._pending) // self._entry.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        size = self._entry.size
        if index >= self._written:
            values = self._entry.unpack_from(self._pending, (index - self._written) * size)
        else:
            self.used = True
            file = self.open_file or self._opened()
            values = self._entry.unpack(file.pread(size, index * size))
        return values[0], values[1]

    def append(self, first: int, second: int) -> None:
        self._pending += self._entry.pack(first, second)
        self._last = (first, second)
        if len(self._pending) >= _PENDING_ENTRIES_MAX * self._entry.size:
            self.write()

    def write(self) -> None:
        """Write the entries that are still in memory; create the file if there is none."""
        if self._pending or not self._made:
            self._open().append(self._pending)
            self._written += len(self._pending) // self._entry.size
            self._pending.clear()

    def truncate(self, count: int) -> None:
        """Remove all but the first `count` entries."""
        self._last = None
        if count < self._written:
            self._open().truncate(count * self._entry.size)
            self._written = count
            self._pending.clear()
        else:
            del self._pending[(count - self._written) * self._entry.size :]

    def drop(self, at: int) -> None:
        """Remove the entry with number `at` (from 0), in the file or in memory, because it
        contradicts the log. Searches then start at an earlier entry."""
        self._last = None
        size = self._entry.size
        if at >= self._written:
            del self._pending[(at - self._written) * size : (at - self._written + 1) * size]
            return
        data = bytearray(self._open().pread(self._written * size, 0))
        del data[at * size : (at + 1) * size]
        self._open().truncate(at * size)
        self._open().append(data[at * size :])
        self._written -= 1

    def grows(self) -> bool:
        """Return True if the entries are in order: the first column strictly increases, the second
        never decreases. After a power cut they may not be."""
        data = (self._disk.read(self.path) or b"")[: self._written * self._entry.size]
        before = (-(2**63), -(2**63))
        for entry in self._entry.iter_unpack(data + self._pending):
            if entry[0] <= before[0] or entry[1] < before[1]:
                return False
            before = entry
        return True

    def count_until(self, value: int, column: int) -> int:
        """Return the number of leading entries with a value of at most `value` in this column (0 or
        1). The columns never decrease."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle][column] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def file(self) -> DiskFile:
        """The open file. The caller may sync it."""
        return self._open()

    def close(self) -> None:
        """Write the entries in memory and close the file. It is opened again when needed."""
        self.write()
        self.release()

    def rename(self, path: Path) -> None:
        self._disk.rename(self.path, path)
        self.path = path
        if self.open_file is not None:
            self.open_file.path = path

    def release(self) -> None:
        """Close the file, unless entries in memory are still to be written to it."""
        if not self._pending:
            self.let_go()

    def let_go(self) -> None:
        """Close the file as soon as it is unused; it is opened again on its next use."""
        self.open_file = None
        self._disk.files.closed(self)


class OffsetIndex(_EntryFile):
    """Maps the last offset of some batches to their positions in the log file."""

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        super().__init__(disk, path, struct.Struct(">ii"))
        self._base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.append(last_offset - self._base_offset, position)

    def entry_for(self, offset: int) -> tuple[int, int, int] | None:
        """Return the last entry with an offset of at most `offset`: its number, the last offset of
        its batch, and the position of that batch. Return None if there is none."""
        count = self.count_until(offset - self._base_offset, 0)
        if not count:
            return None
        relative, position = self[count - 1]
        return count - 1, relative + self._base_offset, position

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches with a last offset at or above `offset`."""
        self.truncate(self.count_until(offset - 1 - self._base_offset, 0))

    def sane(self, log_size: int) -> bool:
        """Return True if the first and last entries fit a log file of `log_size` bytes."""
        if not len(self):
            return True
        first, last = self[0], self[len(self) - 1]
        return 0 <= first[0] <= last[0] and 0 <= first[1] <= last[1] < log_size


class TimeIndex(_EntryFile):
    """Maps timestamps to offsets: each entry has the greatest timestamp so far and the last offset
    of the batch with it."""

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        super().__init__(disk, path, struct.Struct(">qi"))
        self._base_offset = base_offset

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest entry's timestamp and absolute offset, or None if the index is empty."""
        if self._last is None:
            if not len(self):
                return None
            self._last = self[len(self) - 1]
        timestamp, relative = self._last
        return timestamp, relative + self._base_offset

    def add(self, timestamp: int, last_offset: int) -> None:
        """Add an entry if `timestamp` (ms, at least 0) is greater than that of the last entry and
        `last_offset` is not lower; otherwise do nothing."""
        newest = self.last
        if timestamp < 0:
            return
        if newest is None or (timestamp > newest[0] and last_offset >= newest[1]):
            self.append(timestamp, last_offset - self._base_offset)

    def entry_for(self, timestamp: int) -> tuple[int, int, int] | None:
        """Return the last entry with a timestamp of at most `timestamp`: its number, its timestamp,
        and the last offset of its batch. Return None if there is none."""
        count = self.count_until(timestamp, 0)
        if not count:
            return None
        newest, relative = self[count - 1]
        return count - 1, newest, relative + self._base_offset

    def truncate_to(self, offset: int) -> None:
        """Remove the entries with an offset at or above `offset`."""
        self.truncate(self.count_until(offset - 1 - self._base_offset, 1))

    def sane(self) -> bool:
        """Return True if the first and last entries are in order."""
        if not len(self):
            return True
        first, last = self[0], self[len(self) - 1]
        return first[0] <= last[0] and 0 <= first[1] <= last[1]
