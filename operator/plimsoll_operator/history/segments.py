"""The archive's segments: rows as compressed lines, the size of a segment, and which ones exceed
the budget.

Pure. A segment is one object of the API server or one file. The newest takes rows until it is full;
the oldest is deleted when it is too old, or when all of them together are too large.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from plimsoll_operator.history.changes import ChangeRow

SEGMENT_BYTES = 64 * 1024
"""Compressed size at which the next segment begins."""
LINES_BYTES_MAX = 8 * 1024 * 1024
"""Bound on the uncompressed bytes of one segment: the most that a reader unpacks."""
DAY_MS = 86_400_000

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ChangeRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The archive's reach: `days`, unless it would be larger than `bytes_max`."""

    days: int = 30
    bytes_max: int = 4 * 1024 * 1024


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Description of a segment. `end_offset`: this segment covers the metadata log from the end of
    the one before up to here. Times in milliseconds since 1970."""

    cluster_id: str
    sequence: int
    first_offset: int
    end_offset: int
    first_ms: int
    last_ms: int
    rows: int


def unreadable(name: str) -> Header | None:
    """Return a placeholder header for an unreadable segment, with the number from its `name`, so
    that no new segment gets that number. Return None if the name is not a segment's."""
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
    """`packed`: the rows, one per line, compressed."""

    header: Header
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored segment. `version`: a write over it must name this version."""

    header: Header
    size: int
    version: str


class UnreadableSegment(Exception):
    """The bytes are not a segment; the message is a sentence."""


def line(row: ChangeRow) -> bytes:
    return _encoder.encode(row) + b"\n"


def pack(text: bytes) -> bytes:
    return zlib.compress(text, 6)


def unpack(packed: bytes) -> bytes:
    """Decompress a segment. Raises `UnreadableSegment`."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, LINES_BYTES_MAX)
    except zlib.error as error:
        raise UnreadableSegment(f"cannot be decompressed: {error}") from error
    if not inflater.eof:
        raise UnreadableSegment("is truncated, or larger than a segment may be")
    return text


def rows_of(segment: ArchiveSegment) -> list[ChangeRow]:
    """Decode the rows of a segment. Raises `UnreadableSegment`."""
    try:
        return [_decoder.decode(line) for line in unpack(segment.packed).splitlines()]
    except msgspec.MsgspecError as error:
        raise UnreadableSegment(f"a row cannot be read: {error}") from error


def excess(stored: Sequence[Stored], budget: Budget, now_ms: int) -> list[Stored]:
    """Return the segments beyond the budget. `stored`: all segments in order; the newest is never
    returned."""
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
