"""The newest committed batches, kept in memory for the brokers' metadata streams.

`controller_term` fills it after each commit; the server asks it for updates. It is bounded in
bytes: a broker further behind gets a snapshot first. It also tells if a broker's log position
contradicts this log (the log went back in time, or it is another log).
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum

from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_process.waits import set_within

TAIL_BYTES_MAX = 8 * 1024 * 1024
UPDATE_BYTES_MAX = 4 * 1024 * 1024


class Standing(Enum):
    """Relation of a broker's (offset, nonce) to this log."""

    WITHIN = "within"
    TOO_OLD = "too old to tell"
    AHEAD = "ahead"
    DIFFERENT = "different"


class MetadataTail:
    """Newest batches, in order without gaps; `start` is the first offset still held."""

    def __init__(self, *, start: MetadataOffset, nonce: str | None) -> None:
        self.start = start
        self.end = start
        self._start_nonce = nonce
        self._batches: deque[MetadataBatchCopy] = deque()
        self._bytes = 0
        self._grown = asyncio.Event()

    @property
    def end_nonce(self) -> str | None:
        return self._batches[-1].nonce if self._batches else self._start_nonce

    def append(self, batch: MetadataBatchCopy) -> None:
        assert batch.base_offset == self.end, "the tail has no gaps"
        self._batches.append(batch)
        self._bytes += len(batch.records_json)
        self.end = MetadataOffset(batch.base_offset + batch.record_count)
        while self._bytes > TAIL_BYTES_MAX and len(self._batches) > 1:
            oldest = self._batches.popleft()
            self._bytes -= len(oldest.records_json)
            self.start = MetadataOffset(oldest.base_offset + oldest.record_count)
            self._start_nonce = oldest.nonce
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def standing(self, offset: MetadataOffset, nonce: str | None) -> Standing:
        """Return the standing of a broker that holds `offset` records, the last from the batch
        `nonce`."""
        if offset > self.end:
            return Standing.AHEAD
        if offset < self.start:
            return Standing.TOO_OLD
        if nonce is None or self._nonce_at(offset) == nonce:
            return Standing.WITHIN
        return Standing.DIFFERENT

    def read(self, offset: MetadataOffset) -> tuple[MetadataBatchCopy, ...]:
        """Return batches from `offset` on, at least one if there is one, bounded in bytes."""
        assert self.start <= offset <= self.end
        found: deque[MetadataBatchCopy] = deque()
        for batch in reversed(self._batches):
            if batch.base_offset < offset:
                break
            found.appendleft(batch)
        size = 0
        chosen: list[MetadataBatchCopy] = []
        for batch in found:
            size += len(batch.records_json)
            if chosen and size > UPDATE_BYTES_MAX:
                break
            chosen.append(batch)
        return tuple(chosen)

    async def wait_beyond(self, offset: MetadataOffset, timeout_ms: int) -> None:
        """Wait until the log has a record after `offset`, or the timeout."""
        if self.end > offset:
            return
        await set_within(self._grown, timeout_ms / 1000)

    def _nonce_at(self, offset: MetadataOffset) -> str | None:
        if offset == self.start:
            return self._start_nonce
        for batch in reversed(self._batches):
            end = batch.base_offset + batch.record_count
            if end == offset:
                return batch.nonce
            if end < offset:
                break
        return None
