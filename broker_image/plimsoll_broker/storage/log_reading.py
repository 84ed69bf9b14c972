"""LogReader: finds the segment that holds an offset, and reads from there.

Called by `Log`. It never decides what may be read; a corrupt file is a `StorageError`.

`RecentBatches`: the newest batches of each log led here, in memory as they were written. Each `Log`
has a `RecentBatches`; all logs of a broker share one `RecentMemory`, which bounds them together.
Followers and consumers at a log's end get the very bytes that were appended, without a read or a
copy. It holds the end of its log without gaps: any truncation, replacement or failure clears it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from plimsoll_broker.storage.disk import Buffer, StorageError, StorageFault
from plimsoll_broker.storage.segment import SearchUnfinished, Segment
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_wire.batches import BadBatch, BatchError, Batches, BatchHeader, end_of_empty

MEMORY_BYTES = 8 * 2**20
"""The default memory, in bytes, for the newest batches of all logs of a broker."""
LOG_BYTES = 4 * 2**20
"""The most bytes kept in memory of one log. The followers of a busy log lag by a few fetches."""
LOG_BATCHES = 64
KEPT_BYTES = 256
"""The memory, in bytes, that a kept batch uses besides its own bytes."""
_BESIDE_MAX = 4 * 1024
"""The most other bytes in a request's buffer for which a batch is kept in that buffer, without a
copy."""
_COPIED_MAX = 16 * 1024
"""The largest batch, in bytes, that is copied to be kept if its request is larger. A larger batch
is not kept."""


class Kept:
    """One batch in memory. `segment`: the base offset of its segment. `charge`: the bytes that it
    counts for in the memory budget."""

    __slots__ = ("base_offset", "charge", "data", "next_offset", "segment")

    def __init__(self, header: BatchHeader, data: Buffer, segment: int, charge: int) -> None:
        self.base_offset = header.base_offset
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.data = data
        self.segment = segment
        self.charge = charge


class RecentMemory:
    """The memory budget for the newest batches of all logs of a broker. Beyond `limit` bytes the
    batches that were cached first are dropped, of any log. `used`: the bytes counted."""

    __slots__ = ("_kept", "limit", "used")

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self._kept: OrderedDict[Kept, RecentBatches] = OrderedDict()

    def take(self, kept: Kept, of: RecentBatches) -> None:
        """Count a batch of the log `of` against the memory limit, and drop the batches kept
        longest, of any log, while the limit is exceeded."""
        self._kept[kept] = of
        self.used += kept.charge
        while self.used > self.limit:
            next(iter(self._kept.values())).forget_first()

    def give_back(self, kept: Kept) -> None:
        """Stop counting a batch that was dropped."""
        del self._kept[kept]
        self.used -= kept.charge


class RecentBatches:
    """The newest batches of one log, in memory: the end of the log without gaps, or nothing.
    `used`: the number of bytes that they take from the memory budget."""

    __slots__ = ("_batches", "_memory", "used")

    def __init__(self, memory: RecentMemory) -> None:
        self._memory = memory
        self._batches: deque[Kept] = deque()
        self.used = 0

    def __len__(self) -> int:
        return len(self._batches)

    def keep(self, data: Buffer, header: BatchHeader, segment: int) -> None:
        """Cache the batch that was just appended, and drop the log's oldest batches beyond
        LOG_BYTES or LOG_BATCHES. `segment`: the base offset of its segment. `data` must not change
        any more. A batch that does not follow the cached ones, or is too large to copy, drops
        all."""
        batches = self._batches
        if batches and batches[-1].next_offset != header.base_offset:
            self.forget()
        whole = size = len(data)
        if isinstance(data, memoryview):
            whole = len(memoryview(data.obj))
            if whole - size > _BESIDE_MAX:
                data, whole = bytes(data[:_COPIED_MAX]), size
                if size > _COPIED_MAX:
                    self.forget()
                    return
        kept = Kept(header, data, segment, whole + KEPT_BYTES)
        batches.append(kept)
        self.used = used = self.used + kept.charge
        while used > LOG_BYTES or len(batches) > LOG_BATCHES:
            oldest = batches.popleft()
            self.used = used = used - oldest.charge
            if oldest is kept:
                return
            self._memory.give_back(oldest)
        self._memory.take(kept, self)

    def forget_first(self) -> None:
        """Drop the oldest batch."""
        oldest = self._batches.popleft()
        self.used -= oldest.charge
        self._memory.give_back(oldest)

    def forget(self) -> None:
        """Drop all batches, since they may no longer be the end of the log."""
        while self._batches:
            self.forget_first()

    def bytes_between(self, start: int, end: int) -> int | None:
        """Return the size in bytes of the batches from offset `start` to before `end`. Return None
        if no cached batch begins at `start`."""
        size = 0
        for kept in reversed(self._batches):
            if kept.next_offset <= end:
                size += len(kept.data)
            if kept.base_offset <= start:
                return size if kept.base_offset == start else None
        return None

    def read(self, offset: int, max_bytes: int, up_to_offset: int) -> Buffer | Batches | None:
        """Return the same as `Log.read`, but from memory, if a batch in memory begins at `offset`.
        Otherwise return None. The batches are of one segment, so that a follower's segments are no
        larger than its leader's."""
        batches = self._batches
        at = len(batches)
        for first in reversed(batches):  # nearly always one of the last
            at -= 1
            if first.base_offset <= offset:
                break
        else:
            return None
        if first.base_offset != offset:
            return None
        if first.next_offset > up_to_offset:
            return b""
        pieces = [first.data]
        size = len(first.data)
        for kept in islice(batches, at + 1, None):
            size += len(kept.data)
            if kept.next_offset > up_to_offset or size > max_bytes or kept.segment != first.segment:
                break
            pieces.append(kept.data)
        return Batches(pieces) if len(pieces) > 1 else first.data


_Hints = dict[int, tuple[Segment, int]]
_HINTS_MAX = 16
EMPTY_READS_MAX = 200
"""The most reads of a file in one call that passes over empty batches."""


class LogReader:
    """Reads batches of one log by offset. It remembers the file positions after recent reads, where
    the same readers will continue."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_hints",
        "_recent",
        "_searched",
        "_segments",
        "_stored_hints",
    )

    def __init__(
        self,
        directory: Path,
        segments: Sequence[Segment],
        epochs: EpochCache,
        recent: RecentBatches,
    ) -> None:
        self._directory = directory
        self._recent = recent
        self._epochs = epochs
        self._segments = segments
        self._hints: _Hints = {}
        self._stored_hints: _Hints = {}
        # By the offset that an auditor's read searches: where its last step ended.
        self._searched: _Hints = {}

    def read(
        self, offset: int, max_bytes: int, up_to_offset: int | None, *, in_steps: bool = False
    ) -> bytes | memoryview:
        """Return whole batches below `up_to_offset` (None: no bound), beginning with the one that
        holds `offset`; at least one, even above `max_bytes`. If compaction left only empty batches
        there, add further reads until there is a record, at most EMPTY_READS_MAX: librdkafka
        reports a reply without any record as truncated. `in_steps`: raise SearchUnfinished instead
        of searching for long; the next call continues the search."""
        data = self._read(offset, max_bytes, up_to_offset, in_steps=in_steps)
        parts = [data]
        while data and len(parts) < EMPTY_READS_MAX and (end := end_of_empty(data)) is not None:
            data = self._read(end, max_bytes, up_to_offset)
            parts.append(data)
        return data if len(parts) == 1 else b"".join(parts)

    def read_stored(
        self, offset: int, max_bytes: int, up_to_offset: int | None
    ) -> bytes | memoryview:
        """Return whole batches from the file of one segment as they are there, beginning with the
        one that holds `offset` or the next one. The batches may be damaged, so what is remembered
        of them serves only reads of this kind. Raise StorageError if none is found,
        SearchUnfinished if the next call continues the search."""
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        searched, reached = self._searched.pop(offset, (None, 0))
        if searched is not None and searched in self._segments:
            at = self._segments.index(searched)
        hinted, position = self._stored_hints.pop(offset, (None, 0))
        try:
            for segment in self._segments[max(at, 0) :]:
                begin = position if segment is hinted else None
                after = reached if segment is searched else 0
                try:
                    found = segment.find_stored(offset, begin, after)
                except SearchUnfinished as unfinished:
                    self._remember(offset, segment, unfinished.position, hints=self._searched)
                    raise
                if found is not None:
                    data, next_offset = segment.read_stored(found, max_bytes, up_to_offset)
                    self._remember(
                        next_offset, segment, found + len(data), hints=self._stored_hints
                    )
                    return data
        except BatchError as error:
            raise self._corrupt(error) from error
        raise self._corrupt(BatchError(BadBatch.TORN, self._segments[-1].size))

    def bytes_between(self, start: int, end: int) -> int:
        """Return the number of bytes from the batch that holds offset `start` to before the batch
        that holds `end`; up to the log's end if there is none, and 0 if no batch holds `start`.
        Raise StorageError, or SearchUnfinished if the next call continues a search."""
        found = self._recent.bytes_between(start, end)
        if found is not None:
            return found
        try:
            first = self._locate(start, in_steps=True)
            last = self._locate(end, in_steps=True)
        except BatchError as error:
            raise self._corrupt(error) from error
        if first is None:
            return 0
        newest = self._segments[-1]
        segment, position = (newest, newest.size) if last is None else last[:2]
        passed = (
            each.size
            for each in self._segments
            if first[0].base_offset <= each.base_offset < segment.base_offset
        )
        return max(sum(passed) - first[1] + position, 0)

    def _read(
        self, offset: int, max_bytes: int, up_to_offset: int | None, *, in_steps: bool = False
    ) -> bytes | memoryview:
        """Return whole batches from one segment, as `read` does; empty bytes at the log's end.
        Raise StorageError if they are corrupt."""
        try:
            located = self._locate(offset, in_steps=in_steps)
            if located is None:
                return b""
            segment, position, base = located
            epoch_at = self._epochs.epoch_at
            data, next_offset = segment.read(position, max_bytes, up_to_offset, base, epoch_at)
        except BatchError as error:
            raise self._corrupt(error) from error
        if next_offset >= 0:
            self._remember(next_offset, segment, position + len(data))
        return data

    def _locate(self, offset: int, *, in_steps: bool = False) -> tuple[Segment, int, int] | None:
        """Return the segment, file position and base offset of the batch that holds `offset`, or of
        the next one if compaction removed that. Return None at the log's end. Raise BatchError if a
        batch is missing in a log without holes."""
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            return *hint, offset
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        for segment in self._segments[max(at, 0) :]:
            found = segment.find_in_steps(offset) if in_steps else segment.find(offset)
            if found is None:
                continue
            position, header = found
            if header.base_offset > offset and not segment.holes:  # no reader may skip it silently
                raise BatchError(BadBatch.PLACE, position)
            return segment, position, header.base_offset
        return None

    def appended(
        self,
        data: Buffer,
        headers: Sequence[BatchHeader],
        segment: Segment,
        position: int,
        *,
        keep: bool,
    ) -> None:
        """Record batches that were appended at `position` of this segment. `keep`: True if `data`
        is one batch that will not change, so that it is held in memory for readers. Otherwise its
        position is remembered for the readers at the log's end."""
        if keep:
            self._recent.keep(data, headers[0], segment.base_offset)
        else:
            self._recent.forget()
            self._remember(headers[0].base_offset, segment, position)

    def _remember(
        self, offset: int, segment: Segment, position: int, hints: _Hints | None = None
    ) -> None:
        """Remember the file position of the batch at `offset`, so that its next reader need not
        search; beyond _HINTS_MAX forget the oldest. `hints`: the positions for this kind of reader;
        None for consumers and followers."""
        hints = self._hints if hints is None else hints
        hints[offset] = (segment, position)
        if len(hints) > _HINTS_MAX:
            del hints[next(iter(hints))]

    def forget(self) -> None:
        """Forget remembered positions and batches in memory. Called when segments were cut or
        removed, or the log is offline."""
        self._hints.clear()
        self._stored_hints.clear()
        self._searched.clear()
        self._recent.forget()

    def _corrupt(self, error: BatchError) -> StorageError:
        return StorageError(StorageFault.CORRUPT, self._directory, str(error))
