"""Indexes of one segment: offset → file position, timestamp → offset, and aborted transactions.

Called by a segment. The first two are sparse and hints; all can be rebuilt from the log. Entries
are buffered and written in small groups, so that an append costs one write. Source: Kafka's index
formats (8, 12 and 34 bytes an entry, the first two with offsets relative to the segment's base). An
entry names the last offset of the batch at its position, as Kafka's dump tool expects.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from plimsoll_broker.storage.disk import Disk, DiskFile

_PENDING_ENTRIES_MAX = 64
_TRANSACTION_VERSION = 0


class _EntryFile:
    """An index file of fixed-size entries; the newest entries are still in memory. Base class of
    `OffsetIndex`, `TimeIndex` and `TransactionIndex`."""

    def __init__(self, disk: Disk, path: Path, entry: struct.Struct) -> None:
        self._disk = disk
        self._entry = entry
        self.open_file: DiskFile | None = None
        self.used = False
        self._pending = bytearray()
        # True if a write failed, which may have left a part of its entries behind the written ones.
        self._torn = False
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
        values = self._values(index)
        return values[0], values[1]

    def _values(self, index: int) -> tuple[int, ...]:
        size = self._entry.size
        if index >= self._written:
            return self._entry.unpack_from(self._pending, (index - self._written) * size)
        self.used = True
        file = self.open_file or self._opened()
        return self._entry.unpack(file.pread(size, index * size))

    def append(self, first: int, second: int) -> None:
        self._pending += self._entry.pack(first, second)
        self._last = (first, second)
        if len(self._pending) >= _PENDING_ENTRIES_MAX * self._entry.size:
            self.write()

    def write(self) -> None:
        """Write the entries that are still in memory; create the file if there is none. First
        remove what a failed write has left behind. Raise StorageError; the entries then stay in
        memory."""
        if self._pending or self._torn or not self._made:
            file = self._open()
            if self._torn:
                file.truncate(self._written * self._entry.size)
            self._torn = True
            file.append(self._pending)
            self._torn = False
            self._written += len(self._pending) // self._entry.size
            self._pending.clear()

    def truncate(self, count: int) -> None:
        """Remove all but the first `count` entries."""
        self._last = None
        if count < self._written:
            self._open().truncate(count * self._entry.size)
            self._written, self._torn = count, False
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
        file, after = self._open(), at + 1
        data = file.pread((self._written - after) * size, after * size)
        file.truncate(at * size)
        self._written, self._torn = at, False
        self._pending[:0] = data
        self.write()

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


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its producer, its first record, its marker, and the first offset of
    another transaction that was open at the marker, or the offset behind the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


_TRANSACTION = struct.Struct(">hqqqq")


def decode_transactions(data: bytes | None) -> list[AbortedTransaction]:
    """Return the whole entries of an index file; none if there is no file."""
    whole = memoryview(data or b"")
    whole = whole[: len(whole) // _TRANSACTION.size * _TRANSACTION.size]
    return [AbortedTransaction(*values[1:]) for values in _TRANSACTION.iter_unpack(whole)]


class TransactionIndex(_EntryFile):
    """The aborted transactions with a marker in the segment, in order of the markers. Its file
    exists, if empty, for each segment that has a transactional batch, and for those after it."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(disk, path, _TRANSACTION)

    def add(self, aborted: AbortedTransaction) -> None:
        """Add a transaction. Do nothing if the index reaches to its marker already, as where the
        log is read again."""
        if not len(self) or self._marker(len(self) - 1) < aborted.last_offset:
            self._pending += self._entry.pack(_TRANSACTION_VERSION, *aborted)
            if len(self._pending) >= _PENDING_ENTRIES_MAX * self._entry.size:
                self.write()

    def _marker(self, at: int) -> int:
        return self._values(at)[3]

    def count_below(self, offset: int) -> int:
        """Return the number of leading entries with a marker below `offset`."""
        return bisect_left(range(len(self)), offset, key=self._marker)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries with a marker at or above `offset`."""
        self.truncate(self.count_below(offset))

    def between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Return the entries with the numbers from `first` to before `end`."""
        size, written = self._entry.size, self._written
        stored, data = min(end, written), b""
        if first < stored:
            data = self.file.pread((stored - first) * size, first * size)
        data += self._pending[max(first - written, 0) * size : max(end - written, 0) * size]
        return decode_transactions(data)

    def sane(self, end_offset: int) -> bool:
        """Return True if the entries may be those of a segment that ends at this offset."""
        before = -1
        data = (self._disk.read(self.path) or b"")[: self._written * self._entry.size]
        for version, _, first, last, stable in self._entry.iter_unpack(data + self._pending):
            if version != _TRANSACTION_VERSION or not 0 <= first <= last < end_offset:
                return False
            if last <= before or not 0 <= stable <= last + 1:
                return False
            before = last
        return True
