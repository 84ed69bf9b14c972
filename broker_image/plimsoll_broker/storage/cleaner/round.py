"""One round of compaction over one log: which keys there are, then segment after segment without
what they supersede.

Run by the broker's cleaning process, or in the simulator by the broker itself.  It reads sealed
segments and writes files that end with `.cleaned`; whether they take their place in the log, the
broker decides.  What stays, `plimsoll_core.compaction.retain` says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from plimsoll_broker.storage.cleaner.batch_file import (
    Chunk,
    SegmentRange,
    batch_keys,
    chunks,
    keyed,
    open_segment,
    opened_records,
    read_again,
)
from plimsoll_broker.storage.cleaner.newest_keys import ChunkMarks, NewestKeys
from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.producer_snapshots import ProducerSnapshots
from plimsoll_broker.storage.segment import Segment, file_name
from plimsoll_core.compaction.retain import EmptyBatch, delete_horizon, is_expired, keeps_record
from plimsoll_core.compaction.swap import CLEANED, INDEXES, LOG
from plimsoll_wire.batches import BatchHeader, parse_header
from plimsoll_wire.keyed_records import picked, rewrite

WRITTEN_AT_ONCE = 256 * 1024


class CleaningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A log and how far it is to be cleaned.

    `segments`: where each sealed one begins and ends, oldest first.  `now_ms` None: the wall clock
    is not to be believed, no tombstone goes.
    """

    directory: str
    segments: tuple[SegmentRange, ...]
    first_dirty: int
    end: int
    now_ms: int | None
    delete_retention_ms: int
    buffer_bytes: int
    index_interval_bytes: int


class CleanedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of a group; `changed` False: nothing would be different, there is no file."""

    changed: bool
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(slots=True, kw_only=True)
class _Counts:
    """Of one group; `same`: every batch so far stays as it was."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    same: bool = True


@dataclass(slots=True, kw_only=True)
class _Output:
    """The cleaned segment, and what is not in its file yet."""

    segment: Segment
    data: bytearray = field(default_factory=bytearray)
    headers: list[BatchHeader] = field(default_factory=list)


class _MarkedBatch(NamedTuple):
    """`marks`: of its chunk, in which its first record has the number `first`."""

    header: BatchHeader
    data: bytes
    marks: ChunkMarks | None
    first: int


class Round:
    """`measure` comes first, then `clean` for each group, oldest first.  Both raise StorageError,
    and BatchError where a segment is damaged.  `used` is told of bytes that were read or written,
    and may take its time."""

    def __init__(self, disk: Disk, job: CleaningJob, used: Callable[[int], None]) -> None:
        self._disk = disk
        self._job = job
        self._directory = Path(job.directory)
        self._used = used
        self._ends = dict(job.segments)
        # The last offsets of the batches by which retries are recognised; None: of any producer's.
        self._producers: frozenset[int] | None = None
        # The leader epoch of the last batch that was looked at by `clean`.
        self._epoch: int | None = None
        self._newest = NewestKeys(job.buffer_bytes)
        # What was noted goes so far.
        self._end = job.end
        # By segment and position; of a chunk without any, all batches stay.
        self._marks: dict[tuple[int, int], ChunkMarks] = {}

    # --- the keys -------------------------------------------------------------------------------

    def measure(self) -> int:
        """Find the last record of each key; returns up to where: the plan's end, or, if there is
        not memory for so many keys, an earlier batch's."""
        job = self._job
        self._producers = self._last_of_producers()
        end, first_end = job.end, self._first_batch_end()
        while (full := self._note_back_from(end, first_end)) is not None:
            self._newest, self._marks = NewestKeys(job.buffer_bytes), {}
            covered = end - full.end_offset
            # Another part has about as many keys, but not just as many.
            end = job.first_dirty + covered * 3 // 4 if covered > 0 else full.base_offset
            end = max(end, first_end)
        return self._end

    def _first_batch_end(self) -> int:
        """A round that gets so far is not for nothing."""
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
        """Take up the batches that begin in the dirty part before `end`, the last one first.

        Where there is no room any more: the batch, or batches, for which there was none.  The first
        batch is passed even then: it supersedes nothing and stays.
        """
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
        """As of the round's end: what lies above may still be cut, and then these are the last
        ones again.  None: no snapshot says, which costs a header for each of their batches."""
        known = ProducerSnapshots(self._disk, self._directory).load(self._job.end)
        if known is None:
            return None
        return frozenset(entry.last_offset for entry in known.snapshot())

    def _is_of_producer(self, header: BatchHeader) -> bool:
        if self._producers is None:
            return header.producer_id >= 0
        return header.last_offset in self._producers

    def _note_chunk(
        self, chunk: Chunk, found: list[BatchHeader], marks: ChunkMarks | None, end: int
    ) -> SegmentRange | None:
        """The last batch for which there was no room, if there is one."""
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
        """False: there is no room for its keys."""
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
        """Write one segment for these neighbours; it is on the disk when this returns."""
        self.discard(bases[0])
        interval = self._job.index_interval_bytes
        made = Segment(self._disk, self._directory, bases[0], interval, CLEANED)
        made.holes = True
        out, counts = _Output(segment=made), _Counts(same=len(bases) == 1)
        try:
            self._write(out, bases, counts)
            changed = not counts.same
            if changed:
                made.seal()
                for file in (made.file, *made.index_files()):
                    file.fsync()
                made.release_indexes()
                self._disk.sync_directory(self._directory)
        except BaseException:
            # Of a disk that has no room the little that was written is given back at once.
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
        """Files of a cleaned segment that does not come into its log."""
        for suffix in (LOG, *INDEXES):
            self._disk.remove(self._directory / file_name(base_offset, suffix + CLEANED))

    def _write(self, out: _Output, bases: Sequence[int], counts: _Counts) -> None:
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
        for chunk in self._chunks(base):
            marks = self._marks.get((base, chunk.position))
            at = number = 0
            for header in chunk.headers():
                end = at + header.length
                yield _MarkedBatch(header, chunk.data[at:end], marks, number)
                at, number = end, number + header.count

    def _take(self, out: _Output, batch: _MarkedBatch, counts: _Counts, *, last: bool) -> None:
        header = batch.header
        kind = EmptyBatch(
            ends_segment=last,
            begins_epoch=header.leader_epoch != self._epoch,
            of_producer=self._is_of_producer(header),
        )
        self._epoch = header.leader_epoch
        counts.bytes_before += header.length
        counts.records_before += header.count
        left = self._left(batch)
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

    def _flush(self, out: _Output) -> None:
        if out.headers:
            out.segment.append(out.data, out.headers)
            self._used(len(out.data))
            out.data, out.headers = bytearray(), []

    def _left(self, batch: _MarkedBatch) -> bytes | None:
        """The batch without what is superseded; itself, if nothing is; None: no record is left."""
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
        """As `_left`, of a batch that has or had tombstones."""
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
