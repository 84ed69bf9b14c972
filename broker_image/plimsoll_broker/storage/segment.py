"""Segment: a run of batches in a file named by its base offset, with its indexes.

Called by `Log` and by recovery. It appends, finds, cuts and reads batches; it knows nothing of
leader epochs or other segments, and of producers only what it tells them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path

from plimsoll_broker.storage.disk import Buffer, Disk, DiskFile, StorageError, StorageFault
from plimsoll_broker.storage.index import (
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from plimsoll_core.replica.producer_states import ProducerStates
from plimsoll_wire.batches import (
    HEADER_SIZE,
    TRANSACTIONAL,
    BadBatch,
    BatchError,
    BatchHeader,
    check_crc,
    check_places,
    peek_header,
    whole_batches,
)
from plimsoll_wire.control_records import read_end_marker

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_SCAN_BYTES = 256 * 1024
SEARCH_BYTES = 4 * 2**20
"""How far one step of a search goes where the index is of no use: it holds the event loop."""
SEARCH_BATCHES = 1000
"""The most batches that one step of a search passes: some ten milliseconds. The largest distance of
two index entries has fewer."""
POSITION_MAX = 2**31 - 1
WRITE_BACK_BYTES = 2**20


class SearchUnfinished(Exception):
    """Raised if a step of a search ends before the batch is found, in front of the batch at
    `position`. The caller repeats its call in a later turn of the event loop."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the search continues at {position}")
        self.position = position


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def _is_step(batches: int, size: int) -> bool:
    return batches >= SEARCH_BATCHES or size > SEARCH_BYTES


_CUT_PART = 8
"""The divisor of a read's size: if less than 1/_CUT_PART of the bytes read must be cut off at the
end, the rest is not copied."""


class Segment:
    """One segment of a log: the file `<base offset>.log`, with `.index` and `.timeindex` beside it,
    and `.txnindex` once the log has transactions (`aborted`; None before). The log file is opened
    when it is used."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        base_offset: int,
        index_interval_bytes: int,
        suffix: str = "",
    ) -> None:
        """Open the segment's files, or make an empty log file. `suffix`: an addition to the files'
        usual names, until the files belong to the log."""
        self._disk = disk
        self._index_interval_bytes = index_interval_bytes
        self.bytes_since_index = 0
        self.base_offset = base_offset
        # Base offset and position of the batches at which steps of searches ended, in order.
        self._reached: list[tuple[int, int]] = []
        # True if offsets may be sparse: the topic is or was compacted.
        self.holes = False
        # During a swap, the file that a start would use instead of or besides this one; removed
        # when this one is cut or removed.
        self.beside: Path | None = None
        self.path = directory / file_name(base_offset, ".log" + suffix)
        # None: it is closed, and opened on its next use.
        self.open_file: DiskFile | None = None
        self.used = False
        self._gone = False
        found = disk.size(self.path)
        if found is None:
            self._opened(make=True)
        self.size = self._begun = self._found_bytes = self._noted_bytes = found or 0
        self.offset_index = OffsetIndex(
            disk, directory / file_name(base_offset, ".index" + suffix), base_offset
        )
        self.time_index = TimeIndex(
            disk, directory / file_name(base_offset, ".timeindex" + suffix), base_offset
        )
        self.aborted: TransactionIndex | None = None
        newest = self.time_index.last
        self.max_timestamp = newest[0] if newest else -1
        self.max_timestamp_offset = newest[1] if newest else base_offset
        self.first_timestamp: int | None = None

    # --- its file -------------------------------------------------------------------------------

    @property
    def file(self) -> DiskFile:
        """The open log file; it stays open while it is referred to. Pass it to a thread as an
        argument, since the path may be another segment's when the thread runs. Raises
        StorageError."""
        self.used = True
        file = self.open_file
        return file if file is not None else self._opened(make=False)

    def _opened(self, *, make: bool) -> DiskFile:
        """Open the log file. Raise StorageError if that fails or the segment is closed."""
        if self._gone:
            raise StorageError(StorageFault.IO, self.path, "the log segment is closed")
        file = self.open_file = self._disk.open_kept(self, self.path, make=make)
        return file

    def close(self) -> None:
        """Close the log file and never open it again, since its path may be another log's later.
        Readers of the open file may continue."""
        self._gone = True

    def let_go(self) -> None:
        """Drop the open log file. It is closed as soon as no reader uses it."""
        self.open_file = None
        self._disk.files.closed(self)

    # --- appending ------------------------------------------------------------------------------

    def append(self, data: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write the batches at the end of the log file. After a StorageError the file may hold a
        part of them; `drop_tail` cuts it."""
        self.used = True
        (self.open_file or self._opened(make=False)).append(data)
        position = self.size
        for header in headers:
            self._note(header, position)
            position += header.length
        assert position == self.size + len(data), "headers do not cover the data"
        self.size = position

    def begin_write_back(self) -> Callable[[], None] | None:
        """Return a function that has the kernel write the appends since the last such call to the
        disk; it may wait for the disk, and run in a thread. Return None if they are fewer than
        WRITE_BACK_BYTES. Without this the kernel writes a large copy all at once, seconds later,
        and delays other logs."""
        begun, size = self._begun, self.size - self._begun
        if size < WRITE_BACK_BYTES:
            return None
        self._begun = self.size
        return partial(self.file.begin_writing, begun, size)

    def drop_tail(self) -> None:
        """Cut the file at the segment's size and sync it, because a failed append, or recovery,
        left bytes behind the last valid batch."""
        self.file.truncate(self.size)
        self.file.fsync()

    def _note(self, header: BatchHeader, position: int) -> None:
        """Update the timestamps and the indexes for a batch at this position."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp is None:
            self.first_timestamp = header.max_timestamp
        if self.bytes_since_index > self._index_interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += header.length

    def begin_transactions(self) -> TransactionIndex:
        """Open the index of aborted transactions; make its file if there is none."""
        name = self.path.name.replace(".log", ".txnindex")
        self.aborted = TransactionIndex(self._disk, self.path.with_name(name))
        self.aborted.write()
        return self.aborted

    def transacted(
        self, header: BatchHeader, batch: Callable[[], Buffer], producers: ProducerStates
    ) -> None:
        """Apply a transactional batch of this segment to the producers, and add the transaction
        that it aborts, if any, to the index. `batch`: returns all of the batch's bytes."""
        aborted = self.aborted
        if aborted is None:  # an empty index is false
            aborted = self.begin_transactions()
        if not header.is_control:
            producers.update_transactional(header)
            return
        marker = read_end_marker(header, batch())
        if marker is None:
            return
        ended = producers.end_transaction(header, marker.coordinator_epoch)
        if ended is not None and not marker.commits:
            aborted.add(AbortedTransaction(*ended))

    @property
    def _indexes(self) -> Sequence[OffsetIndex | TimeIndex | TransactionIndex]:
        if self.aborted is None:
            return self.offset_index, self.time_index
        return self.offset_index, self.time_index, self.aborted

    def seal(self) -> None:
        """Write all index entries and close the indexes, since nothing more is appended."""
        self.write_indexes()
        for index in self._indexes:
            index.close()

    def release_indexes(self) -> None:
        """Close the index files until they are needed, so that an idle segment holds one
        descriptor, not three."""
        for index in self._indexes:
            index.release()

    def index_files(self) -> Sequence[DiskFile]:
        """Write all index entries. Return the index files for the caller to sync."""
        self.write_indexes()
        return [index.file for index in self._indexes]

    def write_indexes(self) -> None:
        """Write all index entries to the files."""
        if self.size:
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        for index in self._indexes:
            index.write()

    # --- reading --------------------------------------------------------------------------------

    def headers(
        self, position: int = 0, file: DiskFile | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch from `position` on, where a batch must begin.
        `file`: this segment's open file, for use in a thread.

        Raise BatchError at a batch that is incomplete, invalid or does not begin where the previous
        one ends. CRCs are not checked.
        """
        return self._scan(position, None if position else self.base_offset, file or self.file)

    def checked_headers(
        self, position: int, next_offset: int, leader_epoch: int = -1
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Do what `headers` does, but read every byte. Raise BatchError also if a CRC is wrong, the
        first batch does not begin at `next_offset`, or a leader epoch is lower than the one before
        (`leader_epoch`: that before the first batch)."""
        return self._scan(position, next_offset, self.file, leader_epoch, checked=True)

    def _scan(
        self,
        position: int,
        next_offset: int | None,
        file: DiskFile,
        leader_epoch: int = -1,
        *,
        checked: bool = False,
        anywhere: bool = False,
    ) -> Iterator[tuple[int, BatchHeader]]:
        chunk, start = b"", position
        while position < self.size:
            if position - start + HEADER_SIZE > len(chunk):
                chunk, start = file.pread(_SCAN_BYTES, position), position
            header = self._whole(chunk, position - start, position)
            if next_offset is not None and not (anywhere or self._follows(header, next_offset)):
                raise BatchError(BadBatch.PLACE, position)
            if checked:
                if header.last_offset - self.base_offset > POSITION_MAX:
                    raise BatchError(BadBatch.OFFSETS, position)
                if header.leader_epoch < leader_epoch:
                    raise BatchError(BadBatch.EPOCH, position)
                if position - start + header.length > len(chunk):
                    chunk, start = file.pread(max(_SCAN_BYTES, header.length), position), position
                if not check_crc(chunk, position - start, header.length):
                    raise BatchError(BadBatch.CRC, position)
            next_offset, leader_epoch = header.next_offset, header.leader_epoch
            yield position, header
            position += header.length

    def _whole(self, chunk: bytes, at: int, position: int) -> BatchHeader:
        try:
            header = peek_header(chunk, at)
        except BatchError as error:
            raise BatchError(error.reason, position) from None
        if position + header.length > self.size:
            raise BatchError(BadBatch.TORN, position)
        return header

    def _follows(self, header: BatchHeader, next_offset: int) -> bool:
        """Return True if the batch may follow one that ends at `next_offset`."""
        base = header.base_offset
        return base == next_offset or (self.holes and base > next_offset)

    def position_for(self, offset: int) -> int:
        """Return the position of a batch at or before the one that holds `offset`, from which the
        caller searches; 0 without an index entry. Remove each index entry met that contradicts its
        batch."""
        index = self.offset_index
        while (entry := index.entry_for(offset)) is not None:
            at, last_offset, position = entry
            if 0 <= position < self.size and self._ends_at(position) == last_offset:
                return position
            index.drop(at)
        return 0

    def _ends_at(self, position: int) -> int | None:
        """Return the last offset of the batch at this position. Return None if it is invalid."""
        try:
            return peek_header(self.file.pread(HEADER_SIZE, position)).last_offset
        except BatchError:
            return None

    def offset_before(self, timestamp: int) -> int:
        """Return an offset at or before the first record with a timestamp of at least `timestamp`,
        from which the caller searches for that record. Remove each time index entry met that
        contradicts its batch."""
        index = self.time_index
        while (entry := index.entry_for(timestamp)) is not None:
            at, newest, last_offset = entry
            found = self.find(last_offset)
            if found is not None and names(found[1], newest, last_offset):
                return last_offset
            index.drop(at)
        return self.base_offset

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the batch that holds `offset`, or of the first one after
        it. Return None if there is none in this segment."""
        for at, header in self.headers(self.position_for(offset)):
            if header.last_offset >= offset:
                return at, header
        return None

    def find_in_steps(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Do one step of what `find` does. Raise SearchUnfinished if more steps are needed: the
        next call continues there. Call it in the event loop only."""
        before = bisect_right(self._reached, offset, key=itemgetter(0)) - 1
        reached = self._reached[before][1] if before >= 0 else 0
        start = max(self.position_for(offset), reached)
        for number, (at, header) in enumerate(self.headers(start)):
            if header.last_offset >= offset:
                return at, header
            if number and _is_step(number, at - start):
                self._reached.insert(before + 1, (header.base_offset, at))
                raise SearchUnfinished(at)
        return None

    def read(
        self,
        position: int,
        max_bytes: int,
        up_to_offset: int | None,
        base_offset: int,
        epoch_at: Callable[[int], int | None],
    ) -> tuple[bytes | memoryview, int]:
        """Return whole batches from `position`, and the offset after them (-1 if it was not
        determined or nothing was read). Return at least one batch, unless the first reaches
        `up_to_offset`.

        `up_to_offset`: None if all of the segment may be read. Batches that an earlier process
        wrote are checked: the first must begin at `base_offset`, leader epochs must be as
        `epoch_at` returns, and CRCs must match. Raise BatchError.
        """
        data, next_offset = self._read(position, max_bytes, up_to_offset)
        if position < self._found_bytes:
            check_places(data, base_offset, epoch_at, position, holes=self.holes)
        return data, next_offset

    def find_stored(self, offset: int, position: int | None, reached: int = 0) -> int | None:
        """Return the position of the batch that holds `offset`, or of a later one, whatever is
        before it in the file. `position`: where to look first, None if unknown; `reached`: where
        the previous step of this search ended. Return None if it is not in this segment. Raise
        BatchError if that cannot be determined, SearchUnfinished if more steps are needed."""
        if position is not None and (self._ends_at(position) or -1) >= offset:
            return position
        start = max(self.position_for(offset), reached)
        scanned = self._scan(start, None, self.file, anywhere=True)
        for number, (at, header) in enumerate(scanned):
            if header.last_offset >= offset:
                return at
            if number and _is_step(number, at - start):
                raise SearchUnfinished(at)
        return None

    def read_stored(
        self, position: int, max_bytes: int, up_to_offset: int | None
    ) -> tuple[bytes | memoryview, int]:
        """Return whole batches from `position` as the file holds them, unchecked, and the offset
        after them as the last one states it (-1 if it was not determined). Raise BatchError if the
        file ends before the first one does."""
        data, next_offset = self._read(position, max_bytes, up_to_offset)
        if not data:
            header = peek_header(self.file.pread(HEADER_SIZE, position))
            if up_to_offset is None or header.last_offset < up_to_offset:
                raise BatchError(BadBatch.TORN, position)
        return data, next_offset

    def _read(
        self, position: int, max_bytes: int, up_to_offset: int | None
    ) -> tuple[bytes | memoryview, int]:
        # Never ask for more than there is: the buffer is allocated before the read.
        self.used = True
        file = self.open_file or self._opened(make=False)
        data = file.pread(min(max(max_bytes, HEADER_SIZE), self.size - position), position)
        written_here = position >= self._found_bytes
        whole = position + len(data) == self.size and len(data) <= max_bytes
        if up_to_offset is None and whole and written_here:
            return data, -1
        if len(data) >= HEADER_SIZE and (length := peek_header(data).length) > len(data):
            if length > self.size - position:
                raise BatchError(BadBatch.TORN, position)
            data = file.pread(length, position)
        limit = 2**63 - 1 if up_to_offset is None else up_to_offset
        end, next_offset = whole_batches(data, limit, max_bytes)
        cut = len(data) - end
        if not cut:
            return data, next_offset
        # A view keeps the whole buffer, but only its length is charged.
        return (memoryview(data)[:end] if _CUT_PART * cut <= end else data[:end]), next_offset

    def replay(self, offset: int, producers: ProducerStates) -> None:
        """Apply the batches of idempotent producers with a base offset of at least `offset` to the
        producers. Raise BatchError or StorageError."""
        for at, header in self.headers(self.position_for(offset)):
            if header.base_offset >= offset and header.producer_id >= 0:
                self.apply(at, header, producers)

    def apply(self, position: int, header: BatchHeader, producers: ProducerStates) -> None:
        """Apply a batch of a producer, at this position of the file, to the producers."""
        if header.attributes & TRANSACTIONAL:
            read = partial(self.file.pread, header.length, position)
            self.transacted(header, read, producers)
        else:
            producers.update(header)

    # --- cutting --------------------------------------------------------------------------------

    def cut(self, position: int, offset: int) -> None:
        """Remove all bytes from `position` on, where a batch at `offset` or later begins. The
        caller must sync the file before the next append: after a roll at `offset` no flush would,
        and a power cut could restore the old records below the recovery point."""
        self._remove_beside()
        self.file.truncate(position)
        self.size = position
        self._begun = min(self._begun, position)
        self._found_bytes = min(self._found_bytes, position)
        self._reached = [each for each in self._reached if each[1] < position]
        for index in self._indexes:
            index.truncate_to(offset)
        self.bytes_since_index = 0
        if not position:
            self.first_timestamp = None
        newest = self.time_index.last
        self.max_timestamp = newest[0] if newest else -1
        self.max_timestamp_offset = newest[1] if newest else self.base_offset
        start = 0
        if len(self.offset_index):
            start = self.offset_index[len(self.offset_index) - 1][1]
        for _, header in self.headers(start):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset

    def reset_indexes(self) -> None:
        """Empty the indexes of offsets and times. The caller fills them again by calling `index`
        for each batch."""
        self.offset_index.truncate(0)
        self.time_index.truncate(0)
        self.bytes_since_index = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp = None

    def index(self, position: int, header: BatchHeader) -> None:
        """Add a batch that is already in the file to the indexes."""
        self._note(header, position)

    def indexes_sane(self) -> bool:
        """Return True if both indexes exist and their ends fit the log file."""
        if self.size and not len(self.time_index):
            return False  # incomplete, or made empty: rebuild it
        return (
            self._disk.exists(self.offset_index.path)
            and self._disk.exists(self.time_index.path)
            and self.offset_index.sane(self.size)
            and self.time_index.sane()
        )

    def modified_ms(self) -> int:
        return self._disk.modified_ms(self.path)

    def note_written(self, since_ms: int) -> bool:
        """If the segment's size has changed since the last call, raise its file's modification time
        to at least `since_ms`, the wall-clock time of that call, and return True. Otherwise return
        False."""
        if self.size == self._noted_bytes:
            return False
        self._noted_bytes = self.size
        self.is_from(since_ms)
        return True

    def is_from(self, modified_ms: int) -> None:
        """Raise the file's modification time to at least `modified_ms`, in ms since 1970."""
        if self.modified_ms() < modified_ms:
            self._disk.set_modified(self.path, modified_ms)

    def remove(self) -> None:
        """Delete the log file and the indexes. Readers of the open file continue."""
        self._gone = True
        self._remove_beside()
        self._disk.remove(self.path)
        for index in self._indexes:
            self._disk.remove(index.path)

    # --- taking the place of others -------------------------------------------------------------

    def _remove_beside(self) -> None:
        """Delete the file with the suffix `.swap`, if there is one: recovery would use it in the
        place of this segment."""
        if self.beside is not None:
            self._disk.remove(self.beside)
            self.beside = None

    def rename(self, suffix: str) -> None:
        """Rename the log file to its name with this suffix."""
        path = self.path.with_name(file_name(self.base_offset, ".log" + suffix))
        self._disk.rename(self.path, path)
        self.path = path
        if self.open_file is not None:
            self.open_file.path = path

    def rename_indexes(self) -> None:
        """Rename the indexes to their final names. Files that have these names are replaced."""
        for index, suffix in zip(self._indexes, INDEX_SUFFIXES, strict=False):
            index.rename(self.path.with_name(file_name(self.base_offset, suffix)))


def names(header: BatchHeader, timestamp: int, last_offset: int) -> bool:
    """Return True if a time index entry with this timestamp and offset agrees with the batch."""
    return header.last_offset == last_offset and header.max_timestamp == timestamp
