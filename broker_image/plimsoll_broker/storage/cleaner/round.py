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

import msgspec

from plimsoll_broker.storage.cleaner.batch_file import SegmentRange, batches, keyed
from plimsoll_broker.storage.cleaner.offset_map import ENTRY_BYTES, LOAD_MAX, OffsetMap
from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.producer_snapshots import ProducerSnapshots
from plimsoll_broker.storage.segment import Segment, file_name
from plimsoll_core.compaction.retain import EmptyBatch, delete_horizon, is_expired, keeps_record
from plimsoll_core.compaction.swap import CLEANED, INDEXES, LOG
from plimsoll_wire.batches import BatchHeader, parse_header
from plimsoll_wire.keyed_records import rewrite

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
        # No more than there may be keys, for a short log.
        keys_max = int((job.end - job.first_dirty) / LOAD_MAX) + 2
        self._newest = OffsetMap(min(job.buffer_bytes, keys_max * ENTRY_BYTES))

    # --- the keys -------------------------------------------------------------------------------

    def measure(self) -> int:
        """Note the last offset of each key; returns how far that goes: the plan's end, or where
        the memory for keys was used up.  A batch with more keys than there is memory for supersedes
        nothing: the round gets past it."""
        job = self._job
        end = job.first_dirty
        self._producers = self._last_of_producers()
        for base, segment_end in job.segments:
            if segment_end <= job.first_dirty or base >= job.end:
                continue
            for header, batch in self._batches(base):
                if header.last_offset < job.first_dirty:
                    continue
                if header.base_offset >= job.end:
                    return end
                if not self._note(header, batch) and self._newest.count:
                    return end
                end = header.next_offset
        return max(end, job.end)

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

    def _batches(self, base: int) -> Iterator[tuple[BatchHeader, bytes]]:
        extent = SegmentRange(base, self._ends[base])
        return batches(self._disk, self._directory, extent, self._used)

    def _note(self, header: BatchHeader, batch: bytes) -> bool:
        """False: there is no room for its keys."""
        found = keyed(header, batch) if header.count else None
        if found is None:
            return True
        records = found[1]
        if len(records) > self._newest.room:
            return False
        for record in records:
            if record.key is not None:
                self._newest.put(record.key, header.base_offset + record.offset_delta)
        return True

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
        before: tuple[BatchHeader, bytes] | None = None
        for base in bases:
            for each in self._batches(base):
                if before is not None:
                    self._take(out, *before, counts, last=False)
                before = each
        if before is not None:
            self._take(out, *before, counts, last=True)
        self._flush(out)

    def _take(
        self, out: _Output, header: BatchHeader, batch: bytes, counts: _Counts, *, last: bool
    ) -> None:
        kind = EmptyBatch(
            ends_segment=last,
            begins_epoch=header.leader_epoch != self._epoch,
            of_producer=self._is_of_producer(header),
        )
        self._epoch = header.leader_epoch
        counts.bytes_before += len(batch)
        counts.records_before += header.count
        left = self._left(header, batch)
        if left is not batch:
            counts.same = False
            header = parse_header(left)
        if not header.count and not kind.stays:
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

    def _left(self, header: BatchHeader, batch: bytes) -> bytes:
        """The batch without what is superseded; itself, if nothing is."""
        found = keyed(header, batch) if header.count else None
        if found is None:
            return batch
        records, each = found
        now_ms = self._job.now_ms
        tombstones = any(record.tombstone and record.key is not None for record in each)
        horizon = delete_horizon(
            header.delete_horizon_ms, tombstones, self._job.delete_retention_ms, now_ms
        )
        expired = is_expired(horizon, now_ms)
        kept = [
            record
            for record in each
            # A record without a key is older than the topic's compaction.
            if record.key is None
            or keeps_record(
                header.base_offset + record.offset_delta,
                self._newest.get(record.key),
                expired_tombstone=expired and record.tombstone,
            )
        ]
        still = horizon.is_new and any(r.tombstone and r.key is not None for r in kept)
        if len(kept) == len(each) and not still:
            return batch
        return rewrite(header, records, kept, horizon.at_ms if still else None)
