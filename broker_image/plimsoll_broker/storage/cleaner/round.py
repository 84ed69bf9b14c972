"""Round: one round of compaction of one log: find its keys, then rewrite segments without
superseded records.

Run by the broker's cleaning process, or in the simulator by the broker itself. It reads sealed
segments and writes files that end with `.cleaned`; the broker decides whether they replace the
log's. `plimsoll_core.compaction.retain` decides which records stay.

`CleaningWork`: the interface to the place where a round's work is done. The shipped broker uses a
process, since a thread would take the interpreter from the event loop; the simulator and tests use
a thread of the broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from plimsoll_broker.storage.cleaner.cleaned_transactions import CleanedTransactions
from plimsoll_broker.storage.cleaner.newest_keys import (
    Chunk,
    ChunkMarks,
    NewestKeys,
    SegmentRange,
    batch_keys,
    chunks,
    keyed,
    open_segment,
    opened_records,
    read_again,
)
from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.producer_snapshots import ProducerSnapshots
from plimsoll_broker.storage.segment import Segment, file_name
from plimsoll_core.compaction.retain import EmptyBatch, delete_horizon, is_expired, keeps_record
from plimsoll_core.compaction.swap import CLEANED, INDEXES, LOG, TRANSACTIONS
from plimsoll_wire.batches import HEADER_SIZE, BatchHeader, parse_header
from plimsoll_wire.keyed_records import picked, rewrite

WRITTEN_AT_ONCE = 256 * 1024


class CleaningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A log, and the part of it that a round cleans.

    `segments`: base and end offset of each sealed segment, oldest first. `transactional`: True if
    the log has transactions. `first_dirty`: the first
    offset that was never cleaned. `end`: the offset up to which to clean. `now_ms`: the wall clock;
    None if it is not trusted, so no tombstone is removed. `buffer_bytes`: the memory budget for
    keys.
    """

    directory: str
    segments: tuple[SegmentRange, ...]
    first_dirty: int
    end: int
    now_ms: int | None
    delete_retention_ms: int
    buffer_bytes: int
    index_interval_bytes: int
    transactional: bool = False


class CleanedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one group of segments. `changed`: False if no batch would change, so no file
    was written. The counts compare the group with the cleaned segment."""

    changed: bool
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(slots=True, kw_only=True)
class _Counts:
    """Counts for the group of segments in progress: bytes and records read (before) and written
    (after). `same`: True while no batch has changed and the group has one segment."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    same: bool = True


@dataclass(slots=True, kw_only=True)
class _Output:
    """The cleaned segment in progress, and batches that are not in its file yet."""

    segment: Segment
    data: bytearray = field(default_factory=bytearray)
    headers: list[BatchHeader] = field(default_factory=list)


class _MarkedBatch(NamedTuple):
    """A batch, and the marks of its chunk. If the marks are None, every record is kept. `first`:
    the number of its first record in the chunk."""

    header: BatchHeader
    data: bytes
    marks: ChunkMarks | None
    first: int


class Round:
    """One round of compaction. Call `measure` first, then `clean` for each group of segments,
    oldest first. Both raise StorageError, and BatchError if a segment is damaged. `used`: called
    with the bytes read or written; it may sleep."""

    def __init__(self, disk: Disk, job: CleaningJob, used: Callable[[int], None]) -> None:
        self._disk = disk
        self._job = job
        self._directory = Path(job.directory)
        self._used = used
        self._ends = dict(job.segments)
        # Last offsets of the batches that identify retries; None: those of any producer.
        self._producers: frozenset[int] | None = None
        # The transactions of the log; None if it has none.
        self._transactions: CleanedTransactions | None = None
        # The leader epoch of the last batch that `clean` visited.
        self._epoch: int | None = None
        self._newest = NewestKeys(job.buffer_bytes)
        # The keys are noted up to this offset.
        self._end = job.end
        # By segment and position; a chunk without marks keeps all batches.
        self._marks: dict[tuple[int, int], ChunkMarks] = {}

    # --- the keys -------------------------------------------------------------------------------

    def measure(self) -> int:
        """Find the last record of each key in the part from `first_dirty` to `end` of the job.
        Return the offset up to which the round cleans: the job's end, or the end of an earlier
        batch if the keys up to the job's end do not fit in memory."""
        job = self._job
        self._producers = self._last_of_producers()
        if job.transactional:
            bases = [*self._ends, job.segments[-1].end_offset]
            self._transactions = CleanedTransactions(self._disk, self._directory, bases)
        end, first_end = job.end, self._first_batch_end()
        while (full := self._note_back_from(end, first_end)) is not None:
            self._newest, self._marks = NewestKeys(job.buffer_bytes), {}
            covered = end - full.end_offset
            # Another part has about as many keys, not exactly as many.
            end = job.first_dirty + covered * 3 // 4 if covered > 0 else full.base_offset
            end = max(end, first_end)
        return self._end

    def _first_batch_end(self) -> int:
        """Return the offset after the first batch that reaches `first_dirty`; the job's end if
        there is none. A round that cleans at least up to there makes progress."""
        for base, segment_end in self._job.segments:
            if segment_end <= self._job.first_dirty:
                continue
            for chunk in self._chunks(base):
                for header in chunk.headers():
                    if header.last_offset >= self._job.first_dirty:
                        return header.next_offset
        return self._job.end

    def _chunks(self, base: int) -> Iterator[Chunk]:
        file = open_segment(self._disk, self._directory, base)
        return chunks(file, SegmentRange(base, self._ends[base]), self._used)

    def _note_back_from(self, end: int, first_end: int) -> SegmentRange | None:
        """Remember the keys of the batches from `first_dirty` to before offset `end`, the last
        batch first, and mark their live records.

        Return the offsets of the first batch met with keys that do not fit in memory, or None if
        all fit. A batch that ends at or below `first_end` is passed even then: it supersedes
        nothing and is kept."""
        self._end = end
        for base, segment_end in reversed(self._job.segments):
            if base >= end or segment_end <= self._job.first_dirty:
                continue
            file = open_segment(self._disk, self._directory, base)
            places = [(one.position, len(one.data)) for one in self._chunks(base)]
            for position, size in reversed(places):
                chunk = read_again(file, position, size, self._used)
                found = chunk.headers()
                if not found:
                    continue
                marks = self._newest.marks(sum(header.count for header in found))
                full = self._note_chunk(chunk, found, marks, end)
                if full is not None and full.end_offset > first_end:
                    return full
                if marks is not None:
                    self._marks[base, position] = marks
        return None

    def _last_of_producers(self) -> frozenset[int] | None:
        """Return the set of the last offsets of all producers as of the job's end; the batches that
        hold them must stay, so that retries are recognised. Later batches do not count, since they
        may be truncated. Return None if there is no valid producer snapshot at that offset; then
        all batches of producers stay."""
        known = ProducerSnapshots(self._disk, self._directory).load(self._job.end)
        if known is None:
            return None
        return frozenset(entry.last_offset for entry in known.snapshot())

    def _is_of_producer(self, header: BatchHeader) -> bool:
        """Return True if the batch must stay, if only as a header, so that retries of its producer
        are recognised."""
        if self._producers is None:
            return header.producer_id >= 0
        return header.last_offset in self._producers

    def _note_chunk(
        self, chunk: Chunk, found: list[BatchHeader], marks: ChunkMarks | None, end: int
    ) -> SegmentRange | None:
        """Remember the keys of the chunk's batches from `first_dirty` to before offset `end`, the
        last batch first, and mark their live records. Return the offsets of the first batch met
        with keys that do not fit in memory, or None if all fit. `found`: the headers of the chunk's
        batches. `marks`: None if not even the marks fit."""
        number, at = sum(header.count for header in found), len(chunk.data)
        for header in reversed(found):
            number, at = number - header.count, at - header.length
            if header.base_offset >= end:
                continue
            if header.last_offset < self._job.first_dirty:
                break
            self._end = max(self._end, header.next_offset)
            if marks is None:
                return SegmentRange(header.base_offset, header.next_offset)
            if not self._note(header, chunk.data[at : at + header.length], marks, number):
                marks.keep_all(number, header.count)
                return SegmentRange(header.base_offset, header.next_offset)
        return None

    def _note(self, header: BatchHeader, batch: bytes, marks: ChunkMarks, number: int) -> bool:
        """Add the keys of one batch to the known keys, and mark its live records. `number`: the
        number of the batch's first record in the chunk. Return False if the keys do not fit in
        memory. Records of aborted transactions supersede nothing, and are not live."""
        if self._transactions is not None and self._transactions.is_aborted(header):
            return True
        records = opened_records(header, batch)
        keys = None if records is None else batch_keys(header, records)
        if keys is None:
            marks.keep_all(number, header.count)
            return True
        if keys.tombstones:
            marks.note_tombstones(number)
        return self._newest.note(marks, number, keys)

    # --- the segments ---------------------------------------------------------------------------

    def clean(self, bases: Sequence[int]) -> CleanedSegment:
        """Write the cleaned segment of a group of neighbouring segments, `bases` being their base
        offsets in order. Its files are synced when this returns. If nothing would change, or on an
        error, no file is left."""
        self.discard(bases[0])
        interval = self._job.index_interval_bytes
        made = Segment(self._disk, self._directory, bases[0], interval, CLEANED)
        made.holes = True
        out, counts = _Output(segment=made), _Counts(same=len(bases) == 1)
        try:
            self._write(out, bases, counts)
            changed = not counts.same
            if changed and self._transactions is not None:
                index = made.begin_transactions()
                for each in self._transactions.left_in(bases, self._end):
                    index.add(each)
            if changed:
                made.seal()
                for file in (made.file, *made.index_files()):
                    file.fsync()
                made.release_indexes()
                self._disk.sync_directory(self._directory)
        except BaseException:
            # On a full disk, free what was written.
            with contextlib.suppress(StorageError):
                self.discard(bases[0])
            raise
        if not changed:
            self.discard(bases[0])
        return CleanedSegment(
            changed=changed,
            bytes_before=counts.bytes_before,
            bytes_after=counts.bytes_after,
            records_before=counts.records_before,
            records_after=counts.records_after,
        )

    def discard(self, base_offset: int) -> None:
        """Remove the files of the cleaned segment with this base offset, which is unfinished or not
        used."""
        suffixes = (LOG, *INDEXES, *((TRANSACTIONS,) if self._job.transactional else ()))
        for suffix in suffixes:
            self._disk.remove(self._directory / file_name(base_offset, suffix + CLEANED))

    def _write(self, out: _Output, bases: Sequence[int], counts: _Counts) -> None:
        """Write to the cleaned segment what stays of each batch in the group, in order, and count
        the batches."""
        before: _MarkedBatch | None = None
        for base in bases:
            for batch in self._batches(base):
                if before is not None:
                    self._take(out, before, counts, last=False)
                before = batch
        if before is not None:
            self._take(out, before, counts, last=True)
        self._flush(out)

    def _batches(self, base: int) -> Iterator[_MarkedBatch]:
        """Yield the batches of a segment with their marks."""
        for chunk in self._chunks(base):
            marks = self._marks.get((base, chunk.position))
            at = number = 0
            for header in chunk.headers():
                end = at + header.length
                yield _MarkedBatch(header, chunk.data[at:end], marks, number)
                at, number = end, number + header.count

    def _take(self, out: _Output, batch: _MarkedBatch, counts: _Counts, *, last: bool) -> None:
        """Append the rest of a batch to the cleaned segment, and count it; nothing if no record
        stays and the header is not needed. `last`: True for the last batch of the group, which
        stays if only as a header."""
        header = batch.header
        kind = EmptyBatch(
            ends_segment=last,
            begins_epoch=header.leader_epoch != self._epoch,
            of_producer=self._is_of_producer(header),
        )
        self._epoch = header.leader_epoch
        counts.bytes_before += header.length
        counts.records_before += header.count
        left = self._left(batch) if self._transactions is None else self._decided(batch)
        if left is not batch.data:
            counts.same = False
        if left is None:
            if not kind.stays:
                return
            left = rewrite(header, b"", (), None)
        if left is not batch.data:
            header = parse_header(left)
        elif not header.count and not kind.stays:
            counts.same = False
            return
        counts.bytes_after += len(left)
        counts.records_after += header.count
        out.data += left
        out.headers.append(header)
        if len(out.data) >= WRITTEN_AT_ONCE:
            self._flush(out)

    def _decided(self, batch: _MarkedBatch) -> bytes | None:
        """Do what `_left` does in a log with transactions: remove the records of aborted ones, and
        markers that are not needed any more."""
        header, transactions = batch.header, self._transactions
        assert transactions is not None, "the log has transactions"
        unneeded = transactions.met(header)
        if not header.count or header.base_offset >= self._end:
            return batch.data
        if transactions.is_aborted(header):
            return None
        return self._without_marker(batch) if unneeded else self._left(batch)

    def _without_marker(self, batch: _MarkedBatch) -> bytes | None:
        """Return the batch of a marker that is not needed any more: with a delete horizon, or None
        once that has passed. Return `batch.data` while the wall clock is not trusted, or if it
        cannot be parsed."""
        header, job = batch.header, self._job
        horizon = delete_horizon(
            header.delete_horizon_ms, True, job.delete_retention_ms, job.now_ms
        )
        if is_expired(horizon, job.now_ms):
            return None
        records = batch.data[HEADER_SIZE:]
        each = keyed(header, records) if horizon.is_new and not header.codec else None
        return batch.data if each is None else rewrite(header, records, each, horizon.at_ms)

    def _flush(self, out: _Output) -> None:
        if out.headers:
            out.segment.append(out.data, out.headers)
            self._used(len(out.data))
            out.data, out.headers = bytearray(), []

    def _left(self, batch: _MarkedBatch) -> bytes | None:
        """Return the batch without its superseded records and expired tombstones: `batch.data`
        itself if nothing changes, None if no record is left. A batch at or above the round's end,
        or one that cannot be parsed, is returned as it is."""
        header, marks, first = batch.header, batch.marks, batch.first
        if not header.count or header.base_offset >= self._end:
            return batch.data
        whole = (1 << header.count) - 1
        records = None
        if header.last_offset < self._job.first_dirty:
            records = opened_records(header, batch.data)
            keys = None if records is None else batch_keys(header, records)
            if keys is None:
                return batch.data
            live = self._newest.live_in(keys)
            may_delete = keys.tombstones
        elif marks is None:
            return batch.data
        else:
            live = marks.live_of(first, header.count)
            may_delete = marks.may_delete(first)
        if not live:
            return None
        if live == whole and not may_delete:
            return batch.data
        if records is None:
            records = opened_records(header, batch.data)
        assert records is not None, "they were opened before"
        if may_delete or header.delete_horizon_ms is not None:
            return self._without_tombstones(batch, records, live)
        return picked(header, records, live)

    def _without_tombstones(self, batch: _MarkedBatch, records: bytes, live: int) -> bytes | None:
        """Return the batch without superseded records and expired tombstones. A batch that keeps
        tombstones gets a delete horizon. Return the same object if nothing changes, and None if no
        record is left."""
        header, now_ms = batch.header, self._job.now_ms
        each = keyed(header, records)
        assert each is not None, "their keys were read before"
        tombstones = any(record.tombstone and record.key is not None for record in each)
        horizon = delete_horizon(
            header.delete_horizon_ms, tombstones, self._job.delete_retention_ms, now_ms
        )
        expired = is_expired(horizon, now_ms)
        kept = [
            record
            for number, record in enumerate(each)
            # A record without a key is older than the topic's compaction.
            if record.key is None
            or keeps_record(
                superseded=not live >> number & 1, expired_tombstone=expired and record.tombstone
            )
        ]
        if not kept:
            return None
        still = horizon.is_new and any(r.tombstone and r.key is not None for r in kept)
        if len(kept) == len(each) and not still:
            return batch.data
        return rewrite(header, records, kept, horizon.at_ms if still else None)


class CleaningFailed(Exception):
    """Raised if a round ended early; the message says why. `damaged`: True if a segment is corrupt,
    so that no later round can succeed."""

    def __init__(self, sentence: str, *, damaged: bool = False) -> None:
        super().__init__(sentence)
        self.damaged = damaged


class CleaningWork(Protocol):
    """The interface to the place where rounds run: a thread (`CleaningInThread`) or a process
    (`CleaningProcess`). It runs one round at a time. Each method may raise CleaningFailed.
    `in_brokers_share`: True if the work uses the broker's own share of processor time."""

    in_brokers_share: bool

    async def begin(self, job: CleaningJob) -> int:
        """Begin a round and return the result of `Round.measure`."""

    async def clean(self, bases: Sequence[int]) -> CleanedSegment:
        """Return the result of `Round.clean` in the present round."""

    async def end(self) -> None:
        """End the round and release its memory."""

    async def close(self) -> None:
        """Release all resources, such as the process. Called when no log is due."""
