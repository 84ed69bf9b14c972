"""Segments of the history archive: their header, their rows as compressed lines, and which segments
exceed the budget. Pure.

A segment is one object of the API server or one file. The newest segment takes rows until it is
full. The oldest is deleted when it is too old, or when all segments together are too large.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from plimsoll_operator.history.changes import ChangeRow

SEGMENT_BYTES = 64 * 1024
"""Compressed size in bytes at which a segment is full and the next one begins."""
LINES_BYTES_MAX = 8 * 1024 * 1024
"""Maximum uncompressed size of one segment in bytes, which bounds a reader's memory."""
DAY_MS = 86_400_000

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ChangeRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much history an archive keeps: segments written to in the last `days` days, but at most
    `bytes_max` compressed bytes."""

    days: int = 30
    bytes_max: int = 4 * 1024 * 1024


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Description of a segment. It covers the metadata log from `first_offset`, where the segment
    before it ends, up to `end_offset`, exclusive. `first_ms` and `last_ms` are the times of its
    first and last write, in milliseconds since 1970. `rows` is the number of its rows."""

    cluster_id: str
    sequence: int
    first_offset: int
    end_offset: int
    first_ms: int
    last_ms: int
    rows: int


def unreadable(name: str) -> Header | None:
    """Return a placeholder header for an unreadable segment: the number from `name`, an empty
    cluster id, and zeros. With it no new segment gets that number. Return None if the name is not a
    segment's."""
    number = name.removesuffix(".zlib").rpartition("-")[2]
    if not number.isdecimal():
        return None
    return Header(
        cluster_id="",
        sequence=int(number),
        first_offset=0,
        end_offset=0,
        first_ms=0,
        last_ms=0,
        rows=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSegment:
    """A segment to write, or one that was read. `packed`: its rows, one JSON array a line,
    compressed with zlib."""

    header: Header
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Description of a segment in a store. `size`: its compressed size in bytes. `version`:
    identifies this version of the segment for `SegmentStore.write` and `delete`."""

    header: Header
    size: int
    version: str


class UnreadableSegment(Exception):
    """Raised if bytes are not a segment. The message is a sentence."""


def line(row: ChangeRow) -> bytes:
    return _encoder.encode(row) + b"\n"


def pack(text: bytes) -> bytes:
    return zlib.compress(text, 6)


def unpack(packed: bytes) -> bytes:
    """Return the uncompressed rows of a segment. Raise `UnreadableSegment` if it is damaged,
    truncated or too large."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, LINES_BYTES_MAX)
    except zlib.error as error:
        raise UnreadableSegment(
            f"this part of the archive cannot be decompressed: {error}"
        ) from error
    if not inflater.eof:
        raise UnreadableSegment("this part of the archive is truncated, or larger than allowed")
    return text


def rows_of(segment: ArchiveSegment) -> list[ChangeRow]:
    """Return the rows of a segment. Raise `UnreadableSegment` if they cannot be decoded."""
    try:
        return [_decoder.decode(line) for line in unpack(segment.packed).splitlines()]
    except msgspec.MsgspecError as error:
        raise UnreadableSegment(
            f"a change in this part of the archive cannot be read: {error}"
        ) from error


def excess(stored: Sequence[Stored], budget: Budget, now_ms: int) -> list[Stored]:
    """Return the oldest segments that must be deleted to keep the budget, empty if none. `stored`
    holds all segments, oldest first; the newest is never returned. `now_ms` is in milliseconds
    since 1970."""
    total = sum(one.size for one in stored)
    gone = []
    for one, following in pairwise(stored):
        # An unreadable one ends where the next one begins.
        ends_ms = one.header.last_ms or following.header.first_ms
        too_old = ends_ms < now_ms - budget.days * DAY_MS
        if not too_old and total <= budget.bytes_max:
            break
        gone.append(one)
        total -= one.size
    return gone
