"""The archive of one cluster's history of leaders and ISRs: opens its segments and appends rows to
them.

Normally the controller's process is the only writer. A second one (a deposed controller) gets
`ArchiveConflict`, opens the archive again and skips rows that are stored already. Rows are made of
committed records, so both write the same ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from plimsoll_operator.history import segments
from plimsoll_operator.history.segments import (
    ArchiveSegment,
    Budget,
    Header,
    Stored,
    UnreadableSegment,
)


class ArchiveUnavailable(Exception):
    """Raised if the store cannot be read or written at present. The message is a sentence."""


class ArchiveConflict(Exception):
    """Raised if another writer has changed the archive since it was opened. Open it again."""


class SegmentStore(Protocol):
    """Storage of an archive's segments, in ConfigMaps or files. Each method raises
    `ArchiveUnavailable` if the storage fails; `write` also raises `ArchiveConflict`."""

    def stored(self) -> AsyncGenerator[tuple[Stored, ArchiveSegment], None]:
        """Yield all segments, in any order, with few of them in memory at a time. A segment that
        cannot be read has the placeholder header of `segments.unreadable`."""

    async def write(self, segment: ArchiveSegment, over: Stored | None) -> Stored:
        """Create a segment if `over` is None. Otherwise replace exactly the stored version that
        `over` names, or raise `ArchiveConflict`. Return the stored segment's description."""

    async def delete(self, stored: Stored) -> None:
        """Delete the segment that `stored` describes, whatever its version. Do nothing if it is
        deleted already."""


@dataclass(slots=True)
class _Newest:
    """The segment that gets new rows, with its uncompressed content."""

    stored: Stored
    text: bytes


class Archive:
    """Appends rows to the newest segment of a store, and deletes the oldest segments. Call `open`
    first, and again after any exception: it reads the segments, and writes nothing. If the newest
    one is unreadable, the next rows begin a new segment."""

    def __init__(self, store: SegmentStore, cluster_id: str, budget: Budget) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._budget = budget
        self._stored: list[Stored] = []
        self._newest: _Newest | None = None
        # Where the archive ends although its segments say more; None: they say it.
        self._rewound: int | None = None

    @property
    def end_offset(self) -> int:
        """Return the metadata offset at which the archive ends, exclusive: rows of all records
        below it are stored, unless they were deleted as too old or for size. Return 0 for an empty
        archive."""
        if self._rewound is not None:
            return self._rewound
        readable = (one.header for one in reversed(self._stored) if one.header.cluster_id)
        return next((header.end_offset for header in readable), 0)

    def rewind(self, end_offset: int) -> None:
        """Continue at `end_offset`, below the present end, until the archive is opened again. The
        rows of the records from there on stay; the caller adds one that says what becomes of
        them."""
        self._rewound = end_offset

    async def open(self) -> None:
        found: list[Stored] = []
        last: ArchiveSegment | None = None
        async for one, segment in self._store.stored():
            found.append(one)
            if last is None or one.header.sequence > last.header.sequence:
                last = segment
        found.sort(key=lambda one: one.header.sequence)
        self._stored, self._newest, self._rewound = found, None, None
        if last is not None:
            try:
                text = await asyncio.to_thread(segments.unpack, last.packed)
            except UnreadableSegment:
                return  # leave it unchanged; the next segment takes new rows
            self._newest = _Newest(found[-1], text)

    async def add(self, text: bytes, rows: int, end_offset: int, now_ms: int) -> None:
        """Append rows to the newest segment, or to a new one if that is full or unreadable, or
        would have more text than readers accept. `text` holds one encoded row a line, `rows` is
        their number, `now_ms` the wall clock. Afterwards the archive ends at the metadata offset
        `end_offset`, exclusive. Raises what `SegmentStore.write` raises."""
        newest = self._newest
        fits = newest is not None and len(newest.text) + len(text) <= segments.LINES_BYTES_MAX
        if newest is not None and fits and newest.stored.size < segments.SEGMENT_BYTES:
            over, before = newest.stored, newest.text
        else:
            over, before = None, b""
        header = self._header(over, rows, end_offset, now_ms)
        packed = await asyncio.to_thread(segments.pack, before + text)
        stored = await self._store.write(ArchiveSegment(header=header, packed=packed), over)
        self._rewound = None
        if over is not None:
            self._stored.pop()
        self._stored.append(stored)
        self._newest = _Newest(stored, before + text)

    def _header(self, over: Stored | None, rows: int, end_offset: int, now_ms: int) -> Header:
        had = None if over is None else over.header
        sequence = self._stored[-1].header.sequence + 1 if self._stored else 0
        return Header(
            cluster_id=self._cluster_id,
            sequence=sequence if had is None else had.sequence,
            first_offset=self.end_offset if had is None else had.first_offset,
            end_offset=end_offset,
            first_ms=now_ms if had is None else had.first_ms,
            last_ms=now_ms,
            rows=rows + (0 if had is None else had.rows),
        )

    async def drop_excess(self, now_ms: int) -> int:
        """Delete the oldest segments until the rest fits the budget of age and size; the newest
        always stays. Return how many were deleted. `now_ms` is the wall clock. Raises
        ArchiveUnavailable."""
        gone = segments.excess(self._stored, self._budget, now_ms)
        for one in gone:
            await self._store.delete(one)
            self._stored.remove(one)
        return len(gone)
