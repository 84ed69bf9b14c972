"""The archive of one cluster: what is stored, and how rows are added to it.

One writer as a rule, the controller's process; a second one (a controller that was deposed) meets
`Conflict`, reads anew and leaves out what is there already.  Rows are facts that were committed, so
both write the same.
"""

from __future__ import annotations

import asyncio
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
    """The store cannot be read or written at the moment; a sentence."""


class ArchiveConflict(Exception):
    """Somebody else wrote meanwhile: open it anew."""


class SegmentStore(Protocol):
    """Where segments are.  Raises `ArchiveUnavailable` and, for writes, `ArchiveConflict`."""

    async def stored(self) -> list[tuple[Stored, ArchiveSegment]]:
        """All there are, by sequence; one that cannot be read with `segments.unreadable`."""

    async def write(self, segment: ArchiveSegment, over: Stored | None) -> Stored:
        """Make a segment, or write over what `over` stands for and nothing else."""

    async def delete(self, stored: Stored) -> None:
        """One that is gone already is none of its business."""


@dataclass(slots=True)
class _Newest:
    """The segment that takes rows."""

    stored: Stored
    text: bytes


class Archive:
    """`open` first, and again after any failure."""

    def __init__(self, store: SegmentStore, cluster_id: str, budget: Budget) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._budget = budget
        self._stored: list[Stored] = []
        self._newest: _Newest | None = None

    @property
    def end_offset(self) -> int:
        """Everything below it in the metadata log is archived, as far as the archive reaches."""
        return max((one.header.end_offset for one in self._stored), default=0)

    async def open(self) -> None:
        """Read what is there."""
        found = await self._store.stored()
        self._stored = [stored for stored, _ in found]
        self._newest = None
        if found:
            stored, segment = found[-1]
            try:
                text = await asyncio.to_thread(segments.unpack, segment.packed)
            except UnreadableSegment:
                return  # it stays as it is, and the next one takes what follows
            self._newest = _Newest(stored, text)

    async def add(self, text: bytes, rows: int, end_offset: int, now_ms: int) -> None:
        """Store lines of rows; with them, everything below `end_offset` is in the archive."""
        newest = self._newest
        if newest is not None and newest.stored.size < segments.SEGMENT_BYTES:
            over, before = newest.stored, newest.text
        else:
            over, before = None, b""
        header = self._header(over, rows, end_offset, now_ms)
        packed = await asyncio.to_thread(segments.pack, before + text)
        stored = await self._store.write(ArchiveSegment(header=header, packed=packed), over)
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
        """Delete what is too old or too much; how many segments went."""
        gone = segments.excess(self._stored, self._budget, now_ms)
        for one in gone:
            await self._store.delete(one)
            self._stored.remove(one)
        return len(gone)
