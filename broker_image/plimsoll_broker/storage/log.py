"""Log: one partition's log on disk: segments, leader epochs and producer states.

Called by LogWriter, which carries out what replicas decide, and by recovery. Synchronous: writes go
to the page cache. It never decides what may be read or must be truncated. A failing disk takes only
this log offline (`fault`). Source: the protocol's local storage rules.

`is_full`: the rule for rolling a log to its next segment. Segments cost files and memory, and
clients determine timestamps and topic configs. So a log with many segments starts no small ones,
and one with an owner that has used its share of memory (`SegmentRoom`) only large ones.
Source: Kafka's segment.bytes, segment.ms and segment.index.bytes.

`retained`: the rule for the segments that retention removes: the oldest, as a whole, never above
the high watermark. Age removes the newest segment, too, but not while it is written to: Kafka
checks every five minutes, and clients rely on reading back recent writes with old timestamps.
Called by `Log`, which drops them. Source: Kafka's retention.ms and retention.bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from plimsoll_broker.storage.aborted_search import AbortedSearch
from plimsoll_broker.storage.disk import Buffer, StorageError, StorageFault
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_reading import LogReader, RecentBatches
from plimsoll_broker.storage.log_values import (
    EpochFile,
    Flush,
    LogContents,
    LogNotes,
    LogPlace,
    Settling,
)
from plimsoll_broker.storage.offsets_by_time import Step, first_at_or_after, newest
from plimsoll_broker.storage.producer_snapshots import ProducerSnapshots
from plimsoll_broker.storage.segment import POSITION_MAX, Segment
from plimsoll_broker.storage.segment_room import LARGE_BYTES, SegmentCount
from plimsoll_broker.storage.unsynced import Unsynced
from plimsoll_core.replica.commit import countable_end
from plimsoll_wire.batches import TRANSACTIONAL, BatchError, BatchHeader

SEGMENTS_MANY = 1_000
SMALL_BYTES = 2**19
"""The size in bytes below which the last segment of a log with SEGMENTS_MANY segments is never full
by size, age or index."""


def is_full(
    segments: Sequence[Segment],
    config: LogConfig,
    size: int,
    last: BatchHeader,
    has_room: Callable[[int], bool],
) -> bool:
    """Return True if the log must roll to a new segment before batches of `size` bytes are
    appended. `last`: the header of the last of these batches. `has_room`: returns True if a log
    with so many segments may have another one (`SegmentCount`)."""
    segment = segments[-1]
    end = segment.size
    if not end:
        return False
    end += size
    if end > POSITION_MAX:
        return True
    if last.base_offset + last.last_offset_delta - segment.base_offset > POSITION_MAX:
        return True
    if len(segments) >= SEGMENTS_MANY and segment.size < SMALL_BYTES:
        return False
    if end <= config.segment_bytes and not _is_due(segment, config, last):
        return False
    return segment.size >= LARGE_BYTES or has_room(len(segments))


def _is_due(segment: Segment, config: LogConfig, last: BatchHeader) -> bool:
    """Return True if the segment's index is full (segment.index.bytes) or it is too old
    (segment.ms)."""
    if len(segment.time_index) >= config.segment_index_bytes // 12:
        return True
    first_ms = segment.first_timestamp
    if first_ms is None or first_ms < 0:
        return False
    return last.max_timestamp - first_ms > config.segment_ms


class Due(NamedTuple):
    """The result of `retained`. Records below `offset` may be deleted. `active`: True if even the
    active segment may be, and so the whole log."""

    offset: int
    active: bool


def retained(
    segments: Sequence[Segment],
    log_end_offset: int,
    config: LogConfig,
    now_ms: int | None,
    high_watermark: int,
) -> Due:
    """Return the offset below which retention deletes records: whole segments from the oldest on,
    while they are too old or the log exceeds its size, and end at or below the high watermark.
    `log_end_offset`: the end of the last segment. `now_ms`: the wall clock; None if it is not
    trusted, so that no record is too old."""
    offset = segments[0].base_offset
    if not config.delete:
        return Due(offset, active=False)
    size = sum(segment.size for segment in segments)
    ends = [following.base_offset for _, following in pairwise(segments)] + [log_end_offset]
    for segment, end in zip(segments, ends, strict=True):
        active = segment is segments[-1]
        surplus = config.retention_bytes is not None and (
            not active and size - segment.size >= config.retention_bytes
        )
        if end > high_watermark or not segment.size:
            break
        if not surplus and not _expired(segment, config.retention_ms, now_ms):
            break
        if active and _written_within(segment, config.active_kept_ms, now_ms):
            break
        size -= segment.size
        offset = end
        if active:
            return Due(offset, active=True)
    return Due(offset, active=False)


def note_written(segments: Sequence[Segment], since_ms: int) -> None:
    """Set the modification time of each segment file that was written since the last call to at
    least `since_ms`, the wall-clock time of that call. Records without a timestamp age by their
    file's modification time, which a wrong clock may have set too low."""
    for segment in reversed(segments):
        if not segment.note_written(since_ms):
            break


def _written_within(segment: Segment, kept_ms: int, now_ms: int | None) -> bool:
    """Return True if the segment was written less than `kept_ms` ago. Return False if its file's
    modification time is in the future (the clock was set back) or the clock is not trusted."""
    return now_ms is not None and 0 <= now_ms - segment.modified_ms() < kept_ms


def _expired(segment: Segment, retention_ms: int | None, now_ms: int | None) -> bool:
    """Return True if the segment's newest record is older than `retention_ms` (None: no limit) at
    `now_ms`; the file's modification time counts for a segment without timestamps, or with one in
    the future. Return False if `now_ms` is None."""
    if retention_ms is None or now_ms is None:
        return False
    newest = segment.max_timestamp
    if newest < 0 or newest > now_ms:
        # No time, or one in the future (in microseconds, for example), which would hold up all
        # later records for ever: use the file's time.
        newest = segment.modified_ms()
    return now_ms - newest > retention_ms


class Log:
    """One partition's log on disk, with offsets from `log_start_offset` to before `log_end_offset`.
    It has one owner and is not thread-safe.

    `make_durable`: makes a new log's directory durable before the first append; None once that is
    done. `unsynced`: keeps account of what may not be on the disk yet. `beginning_lost`: True if
    its first files are missing. `superseding_lost`: True if the cleaner removed records in favour
    of newer ones that the log has lost since. `fault`: the error that took the log offline, or
    None.
    """

    def __init__(
        self,
        place: LogPlace,
        config: LogConfig,
        contents: LogContents,
        notes: LogNotes,
    ) -> None:
        self._disk = place.disk
        self.directory = place.directory
        self.topic = place.topic
        self.topic_id = place.topic_id
        self.index = place.index
        self.config = config
        self.segments = contents.segments
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = contents.log_end_offset
        self.recovery_point = contents.recovery_point
        # Every batch below is on the disk; the recovery point is lower if indexes are not.
        self.flushed_end = contents.recovery_point
        self.epochs = contents.epochs
        self.producers = contents.producers
        self.fault: StorageError | None = None
        self.make_durable: Callable[[], None] | None = None
        self.beginning_lost = contents.beginning_lost
        self.superseding_lost = False
        self.notes = notes
        self._snapshots = ProducerSnapshots(place.disk, place.directory)
        self.recent = RecentBatches(place.recent)
        self.reader = LogReader(place.directory, self.segments, self.epochs, self.recent)
        self._epoch_file = EpochFile(place.disk, place.directory, self.epochs)
        self.unsynced = Unsynced(place.disk, place.directory)
        # True once the log has, or has had, a transactional batch.
        self.transactional = any(segment.aborted is not None for segment in self.segments)
        self._aborted = AbortedSearch(self.segments)
        self._count = SegmentCount(place.room)
        for segment in contents.rebuilt:
            if segment is not self.segments[-1]:
                self.unsynced.sealed(segment, synced=False)
        if self.recovery_point == self.log_end_offset:
            self.unsynced.all_flushed(self.segments[-1])

    @property
    def incomplete(self) -> bool:
        """True if the log lacks records below its end, so that it does not count as a copy."""
        return self.beginning_lost or self.superseding_lost

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def holes(self) -> bool:
        """True if offsets may be missing between records, since the log is or was compacted."""
        return self.config.holes

    @property
    def countable_end(self) -> int:
        """The offset up to which records may be acknowledged: the log end, or a lower offset while
        a flush that flush.messages requires is outstanding."""
        messages, end = self.config.flush_messages, self.log_end_offset
        return end if messages is None else countable_end(end, self.flushed_end, messages)

    def must_be_flushed(self, end: int) -> bool:
        """Return True if flush.messages would require a flush if the log ended at `end`."""
        messages = self.config.flush_messages
        return messages is not None and countable_end(end, self.flushed_end, messages) < end

    @property
    def cuts(self) -> int:
        """The number of truncations since the log was opened."""
        return self.unsynced.cuts

    # --- appending ------------------------------------------------------------------------------

    def append(self, data: Buffer, headers: Sequence[BatchHeader], *, keep: bool = False) -> None:
        """Write whole batches, unchanged, at the end of the log. `headers`: the headers of the
        batches, with offsets and leader epochs. `keep`: True if `data` is one batch that will not
        change, so that memory may hold it for readers. Raise StorageError if the disk fails: then
        none of `data` is in the log, and the log is offline."""
        if self.fault is not None:
            raise self.fault
        last, base, start = headers[-1], headers[0].base_offset, self.log_start_offset
        assert base >= self.log_end_offset or self.log_end_offset == start, "it grows at its end"
        try:
            if self.make_durable is not None:
                self.make_durable()
                self.make_durable = None
            if base < start:
                # The leader's log starts in the middle of this batch.
                self.discard_to(base)
                self.log_start_offset = start
            self._make_room(len(data), last)
            segment = self.segments[-1]
            position = segment.size
            segment.append(data, headers)
        except StorageError as error:
            self._fail(error)
            raise
        self.reader.appended(data, headers, segment, position, keep=keep)
        epochs = self.epochs
        at = 0
        for header in headers:
            if header.leader_epoch != epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                if header.attributes & TRANSACTIONAL:
                    self._transacted(segment, header, data, at)
                else:
                    self.producers.update(header)
            at += header.length
        self.log_end_offset = last.base_offset + last.last_offset_delta + 1
        if base < start:
            epochs.truncate_from_start(start, self.log_end_offset)

    def _make_room(self, size: int, last: BatchHeader) -> None:
        """Settle a truncation, and roll the log if the active segment is full for batches of this
        size. `last`: the header of the last of them."""
        if self.unsynced.unsettled is not None:
            self.settle()
        if is_full(self.segments, self.config, size, last, self._count.has_room):
            self.roll()

    def _transacted(self, segment: Segment, header: BatchHeader, data: Buffer, at: int) -> None:
        """Apply a transactional batch that was appended, at the position `at` of `data`. If the
        index of aborted transactions cannot be written, the log is offline; its next start finds
        the batch in the file."""
        try:
            if segment.aborted is None:
                self.unsynced.renamed()
                segment.begin_transactions()
                self.transactional = True
            segment.transacted(header, lambda: data[at : at + header.length], self.producers)
        except StorageError as error:
            self._fail(error)
            raise

    def _fail(self, error: StorageError) -> None:
        """Take the log offline, and remove a half-written batch from its file. If that fails,
        recovery removes it at the next start."""
        self.give_up(error)
        try:
            self.segments[-1].drop_tail()
        except StorageError as second:
            error.add_note(
                "and the incomplete record batch at the end of the log file could not be "
                f"removed: {second}"
            )

    def give_up(self, error: StorageError) -> None:
        """Take the log offline: `fault` is set to the error, unless there is an earlier one, and
        cached batches are dropped. Files are not changed."""
        self.fault = self.fault or error
        self.reader.forget()

    def roll(self) -> None:
        """Seal the active segment, save a producer snapshot, and append an empty segment that
        begins at the log end. Do nothing if the active segment is empty. Raise StorageError."""
        active, end = self.segments[-1], self.log_end_offset
        if not active.size:
            return
        self.settle()
        if len(self.segments) == 1:
            self.notes.before_second_file(self.log_start_offset)
        active.seal()
        self.unsynced.sealed(active, synced=self.recovery_point == end)
        self._snapshots.save(end, self.producers, sync=False)
        self.segments.append(self._new_segment(end))
        if active.aborted is not None:
            self.segments[-1].begin_transactions()
        self._count.set(self.config.owner, len(self.segments))
        self.unsynced.made(self.segments[-1])

    def _new_segment(self, base_offset: int) -> Segment:
        config = self.config
        made = Segment(self._disk, self.directory, base_offset, config.index_interval_bytes)
        made.holes = config.holes
        return made

    def configure(self, config: LogConfig) -> None:
        """Apply a new configuration."""
        self.config = config
        self._count.set(config.owner, len(self.segments))
        for segment in self.segments:
            segment.holes = config.holes

    def uncount_segments(self) -> None:
        """Count no segment of this log any more, since it is closed or another object has its
        place."""
        self._count.set("", 0)

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, up_to_offset: int, *, in_steps: bool = False
    ) -> bytes | memoryview:
        """Return whole batches below `up_to_offset`, beginning with the one that holds `offset`, or
        the next one if compaction removed that. Return at least one batch, even above `max_bytes`.
        Return empty bytes if `offset` is not below both `up_to_offset` and the log end. `in_steps`:
        raise SearchUnfinished instead of searching for long; the next call continues."""
        assert offset >= self.log_start_offset, "the caller answers OFFSET_OUT_OF_RANGE"
        end = self.log_end_offset
        if offset >= up_to_offset or offset >= end:
            return b""
        limit = None if up_to_offset >= end else up_to_offset
        return self.reader.read(offset, max_bytes, limit, in_steps=in_steps)

    def read_stored(self, offset: int, max_bytes: int, up_to_offset: int) -> bytes | memoryview:
        """Return whole batches as `read` does, but from the files alone and as they are there: the
        caller must check CRCs, gaps and leader epochs. Raise StorageError (CORRUPT) if there is no
        whole batch at `offset`, SearchUnfinished if the next call continues the search."""
        end = self.log_end_offset
        if offset >= up_to_offset or offset >= end:
            return b""
        limit = None if up_to_offset >= end else up_to_offset
        return self.reader.read_stored(offset, max_bytes, limit)

    def aborted_transactions(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return producer id and first offset of each aborted transaction that has records between
        `offset` and `end`, which must be at most the last stable offset. Raise SearchUnfinished if
        the next call continues the search: until then read no further than `aborted_up_to`."""
        return self._aborted.find(offset, end) if self.transactional else []

    def aborted_up_to(self, offset: int, end: int) -> int:
        """Return the end of the unfinished search from `offset`, or `end` if there is none."""
        return self._aborted.end_of(offset, end)

    def time_search(self, timestamp: int | None) -> Iterator[Step]:
        """Yield steps that search the first record with a time of at least `timestamp`; for None,
        the record with the greatest time. Each iteration, in the event loop, finds the place to
        read. The function that it yields reads there; it may run in a thread, and returns timestamp
        and offset, or None to continue. If no step returns a result there is no such record."""
        segments, start = self.segments, self.log_start_offset
        if timestamp is None:
            return newest(segments, start)
        return first_at_or_after(segments, start, timestamp)

    # --- cutting --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a last offset at or above `offset`, and the leader epochs that
        begin there, even if no batch is removed. Below the log start, remove everything and let the
        log begin at `offset`. The checkpoints are lowered first. The truncation is durable after
        `settle`, or after `begin_settle` and `settled`. Raise StorageError."""
        try:
            if offset < self.log_start_offset:
                self.discard_to(offset)
            elif offset < self.log_end_offset:
                self._cut_from(offset)
        except BatchError as error:
            raise StorageError(StorageFault.CORRUPT, self.directory, str(error)) from error
        self.epochs.truncate_from_end(offset)

    def _cut_from(self, offset: int) -> None:
        """Remove all batches with a last offset at or above `offset`, which lies between log start
        and log end. If no offset of the log would be left, remove everything and let the log begin
        at `offset`."""
        kept = max(bisect_left(self.segments, offset, key=lambda each: each.base_offset), 1)
        found = (segment := self.segments[kept - 1]).find(offset)
        # A batch that reaches beyond goes whole: nothing may count on its first records either.
        end = offset if found is None else min(offset, found[1].base_offset)
        if end < self.log_start_offset:  # and with the one that holds the start, all that was left
            self.discard_to(offset)
            return
        self._forget_flushed(end)
        while len(self.segments) > kept:
            self._remove(len(self.segments) - 1)
        # Neither a segment nor a producer snapshot of what was cut may be back after a power cut.
        self.unsynced.due(segment.file)
        if found is not None:
            segment.cut(found[0], end)
        self.log_end_offset = end
        # One at the end itself may be a roll's, with indexes that were never synced.
        self._snapshots.remove(above=end - 1)
        self._snapshots.rebuild(self.producers, self.segments, end)

    def discard_to(self, offset: int) -> None:
        """Remove all records, leader epochs and producers: the log is empty and starts at `offset`.
        Segments are removed from the newest on, so that a process killed meanwhile leaves the
        beginning. The recovery point is set once the removal is synced (`settled`)."""
        self.notes.before_discard(offset)
        self._forget_flushed(offset)
        self.unsynced.due()
        while len(self.segments) > 1:
            self._remove(len(self.segments) - 1)
        # It stands for the log until another is made, which the disk may refuse.
        (last,) = self.segments
        last.remove()
        self.unsynced.removed(last)
        self.epochs.clear()
        self.producers.clear()
        self._snapshots.remove(above=-1)
        self.segments[:] = [self._new_segment(offset)]
        self.unsynced.made(self.segments[0])
        self.log_start_offset = self.log_end_offset = offset
        self.beginning_lost = self.superseding_lost = False

    def begin_settle(self) -> Settling | None:
        """Return the files and the directory to sync after a truncation, or None if there was none
        since the last sync. If the caller does not sync them, the next append does."""
        return self.unsynced.begin_settle()

    def settled(self, settling: Settling) -> None:
        """Record that the files returned by `begin_settle` are synced. If no truncation followed
        and the log is empty, set the recovery point to its end."""
        if self.unsynced.settled(settling) and not self.size:
            self.recovery_point = self.flushed_end = self.log_end_offset

    def settle(self) -> None:
        """Sync the files of a truncation, if they are not synced yet."""
        if self.unsynced.unsettled is not None and (settling := self.begin_settle()) is not None:
            settling.sync()
            self.settled(settling)

    def _remove(self, at: int) -> None:
        """Remove the segment with number `at` and its files. If the removal fails, the segment
        stays in the log."""
        segment = self.segments[at]
        segment.remove()
        del self.segments[at]
        self._count.set(self.config.owner, len(self.segments))
        self.unsynced.removed(segment)

    def replaced(self, old: Sequence[Segment], cleaned: Segment) -> None:
        """Put the cleaned segment in the place of the `old` ones in memory. The caller removes
        their files."""
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [cleaned]
        self._count.set(self.config.owner, len(self.segments))
        self.reader.forget()
        for segment in old:
            self.unsynced.removed(segment)

    def distrust(self, offset: int) -> None:
        """Lower the recovery point, and the log's checkpoints on the disk, to `offset` if they are
        higher, so that the next start checks the log from `offset` on and truncates it at a bad
        batch. Raise StorageError."""
        self.recovery_point = min(self.recovery_point, offset)
        self.flushed_end = min(self.flushed_end, offset)
        self.notes.before_cut(offset)

    def _forget_flushed(self, offset: int) -> None:
        """Lower the recovery point to `offset`, because the log is truncated there, and clear the
        readers' cached batches and positions."""
        self.unsynced.cut()
        self.reader.forget()
        self._aborted.forget()
        self.distrust(offset)

    def advance_log_start(self, offset: int) -> None:
        """Raise the log start to `offset`, at most the log end: earlier records can no longer be
        read. A lower offset changes nothing. `remove_first` removes the files later."""
        assert offset <= self.log_end_offset, "an offset above the log's end means discard_to"
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset, self.log_end_offset)

    def apply_retention(self, now_ms: int | None, high_watermark: int) -> int:
        """Raise the log start behind segments that are too old or exceed the size, at most to the
        high watermark, and return it. `now_ms`: the wall clock; None if it is not trusted, so no
        record is too old. `remove_first` removes the files once the log start is saved."""
        due = retained(self.segments, self.log_end_offset, self.config, now_ms, high_watermark)
        if due.active:
            self.roll()
        self.advance_log_start(due.offset)
        return self.log_start_offset

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments, delete their files, and return them. At least one
        segment must stay; `replication.segment_removal` decides how many may be removed. The disk
        space is freed once the caller has dropped the result, possibly in a thread. Raise
        StorageError."""
        assert not count or count < len(self.segments), "no log is left without a segment"
        removed: list[Segment] = []
        while len(removed) < count:
            self.reader.forget()
            removed.append(self.segments[0])
            self._remove(0)
        if removed:
            self._snapshots.remove_below(self.segments[0].base_offset)
        return removed

    def prune_snapshots(self, committed: int | None = None) -> None:
        """Remove the producer snapshots that neither recovery nor a truncation to `committed` or
        later needs. `committed`: None if it is unknown."""
        bases = frozenset(segment.base_offset for segment in self.segments)
        self._snapshots.prune(bases, committed)

    # --- durability -----------------------------------------------------------------------------

    @property
    def unflushed_bytes(self) -> int:
        """An upper bound of the bytes that recovery would read after a crash."""
        return self.unsynced.bytes(self.segments)

    def begin_flush(self, *, checkpoint: bool = False) -> Flush:
        """Return the files to sync in order to move the recovery point to the log end. With
        `checkpoint` they include the active segment's indexes and a new producer snapshot, so that
        recovery reads nothing below the recovery point."""
        end = self.log_end_offset
        snapshot = self._snapshots.begin(end, self.producers) if checkpoint else None
        # The terms below a recovery point are never read from the batches again.
        terms = self._epoch_file.begin()
        return self.unsynced.begin(self.segments, self.recovery_point, end, terms, snapshot)

    def flushed(self, flush: Flush) -> None:
        """Record that `flush` was synced, and raise the recovery point to its end, but at most to
        the first sealed segment with unsynced indexes. If the log was truncated since the flush
        began, change nothing."""
        if not self.unsynced.done(flush):
            return
        self._epoch_file.synced(flush.terms)
        self.flushed_end = max(self.flushed_end, flush.up_to_offset)
        up_to = self.unsynced.believable(self.segments, flush.up_to_offset)
        self.recovery_point = max(self.recovery_point, up_to)
        if flush.snapshot is not None:
            flush.snapshot.keep()

    def flush(self, *, checkpoint: bool = False) -> None:
        """Sync everything appended so far, and raise the recovery point. If that fails, take the
        log offline and raise StorageError. `checkpoint`: see `begin_flush`."""
        flush = self.begin_flush(checkpoint=checkpoint)
        try:
            flush.sync()
        except StorageError as error:
            self.fault = error
            raise
        self.flushed(flush)

    def close(self, clean: bool) -> None:
        """Close the files. `clean`: True to sync everything first and save a producer snapshot;
        raise StorageError if that fails or the log is offline. Otherwise write nothing, and the
        next start recovers the log."""
        self.reader.forget()
        self.uncount_segments()
        if self.fault is not None and clean:
            raise self.fault
        if clean:
            self.flush(checkpoint=True)
            self.unsynced.sync_names()
            for segment in self.segments:
                segment.seal()
        for segment in self.segments:
            segment.close()
