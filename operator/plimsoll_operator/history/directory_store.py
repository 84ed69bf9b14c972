"""Stores the archive in a directory, beside the metadata log of `plimsoll local`: one file per
segment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from plimsoll_operator.history.archive import ArchiveUnavailable
from plimsoll_operator.history.segments import ArchiveSegment, Header, Stored, unreadable
from plimsoll_operator.metalog.directory import write_whole

GLOB = "history-*.zlib"


class DirectoryStore:
    """`archive.SegmentStore` over files in `path`. Its only writer holds the log's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def stored(self) -> list[tuple[Stored, ArchiveSegment]]:
        try:
            return await asyncio.to_thread(self._list)
        except OSError as error:
            raise ArchiveUnavailable(f"{self._path}: {error.strerror}") from error

    async def write(self, segment: ArchiveSegment, over: Stored | None) -> Stored:
        path = self._path / f"history-{segment.header.sequence:08d}.zlib"
        data = msgspec.json.encode(segment.header) + b"\n" + segment.packed
        try:
            await asyncio.to_thread(write_whole, path, data)
        except OSError as error:
            raise ArchiveUnavailable(f"{path}: {error.strerror}") from error
        return Stored(header=segment.header, size=len(segment.packed), version=path.name)

    async def delete(self, stored: Stored) -> None:
        try:
            (self._path / stored.version).unlink(missing_ok=True)
        except OSError as error:
            raise ArchiveUnavailable(f"{self._path}: {error.strerror}") from error

    def _list(self) -> list[tuple[Stored, ArchiveSegment]]:
        found = []
        for path in sorted(self._path.glob(GLOB)):
            head, _, packed = path.read_bytes().partition(b"\n")
            try:
                header = msgspec.json.decode(head, type=Header)
            except msgspec.MsgspecError:
                if (header_by_name := unreadable(path.name)) is None:
                    continue
                header, packed = header_by_name, b""
            stored = Stored(header=header, size=len(packed), version=path.name)
            found.append((stored, ArchiveSegment(header=header, packed=packed)))
        return found
