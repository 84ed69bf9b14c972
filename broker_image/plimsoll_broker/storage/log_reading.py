"""LogReader: finds the segment that holds an offset, and reads from there.

Called by `Log`. It never decides what may be read; a corrupt file is a `StorageError`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from plimsoll_broker.storage.disk import Buffer, StorageError, StorageFault
from plimsoll_broker.storage.recent_batches import RecentBatches
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_wire.batches import BadBatch, BatchError, BatchHeader, end_of_empty

_HINTS_MAX = 16
EMPTY_READS_MAX = 200
"""Reads of a file in one call."""


class LogReader:
    """Reads the log's list of segments, and remembers where the next readers will begin."""

    __slots__ = ("_directory", "_epochs", "_hints", "_recent", "_segments")

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
        self._hints: dict[int, tuple[Segment, int]] = {}

    def read(self, offset: int, max_bytes: int, up_to_offset: int | None) -> bytes | memoryview:
        """Return whole batches from the one that holds `offset`, below `up_to_offset` (None: all);
        at least one, even above `max_bytes`. If a cleaner left empty batches, batches with records
        follow, unless there is none for long: librdkafka reports a reply without any record as
        truncated."""
        data = self._read(offset, max_bytes, up_to_offset)
        parts = [data]
        while data and len(parts) < EMPTY_READS_MAX and (end := end_of_empty(data)) is not None:
            data = self._read(end, max_bytes, up_to_offset)
            parts.append(data)
        return data if len(parts) == 1 else b"".join(parts)

    def bytes_between(self, start: int, end: int) -> int:
        """Return the bytes from the batch that holds `start` to the one that holds `end`."""
        found = self._recent.bytes_between(start, end)
        if found is not None:
            return found
        try:
            first, last = self._locate(start), self._locate(end)
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

    def _read(self, offset: int, max_bytes: int, up_to_offset: int | None) -> bytes | memoryview:
        try:
            located = self._locate(offset)
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

    def _locate(self, offset: int) -> tuple[Segment, int, int] | None:
        """Return the segment, position and base offset of the batch that holds `offset`, or
        None."""
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            return *hint, offset
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        for segment in self._segments[max(at, 0) :]:
            found = segment.find(offset)
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
        """Note the log's new end and its place, since tails are read over and over. `keep`: the
        bytes do not change and may be returned from memory, so no place is remembered."""
        if keep:
            self._recent.keep(data, headers[0], segment.base_offset)
        else:
            self._recent.forget()
            self._remember(headers[0].base_offset, segment, position)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remember a position, so that the next reader of `offset` need not search."""
        hints = self._hints
        hints[offset] = (segment, position)
        if len(hints) > _HINTS_MAX:
            del hints[next(iter(hints))]

    def forget(self) -> None:
        """Forget positions and batches: segments were cut or removed, or the log is offline."""
        self._hints.clear()
        self._recent.forget()

    def _corrupt(self, error: BatchError) -> StorageError:
        return StorageError(StorageFault.CORRUPT, self._directory, str(error))
