"""The archive's pieces: rows as compressed lines, how much fits one piece, which are too many.

Pure.  A piece (segment) is one object of the API server or one file.  The newest takes rows until
it is full; the oldest goes when it is too old, or when all of them together are too large.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from plimsoll_operator.history.changes import ChangeRow

SEGMENT_BYTES = 64 * 1024
"""Compressed, from which the next segment begins."""
LINES_BYTES_MAX = 8 * 1024 * 1024
"""Of one segment, not compressed: what a reader unpacks at most."""
DAY_MS = 86_400_000

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ChangeRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How far back the archive reaches: `days`, unless it would be larger than `bytes_max`."""

    days: int = 30
    bytes_max: int = 4 * 1024 * 1024


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a segment says of itself.  `end_offset`: everything below it in the metadata log that
    comes after the segment before is in this one.  Times in milliseconds since 1970."""

    cluster_id: str
    sequence: int
    first_offset: int
    end_offset: int
    first_ms: int
    last_ms: int
    rows: int


def unreadable(name: str) -> Header | None:
    """What is said of a segment that does not say so itself: its number, by its `name`, lest it is
    given to another one.  None: the name is none of ours."""
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
    """`packed`: the rows, one a line, compressed."""

    header: Header
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A segment as a store has it.  `version`: what a write over it must name."""

    header: Header
    size: int
    version: str


class UnreadableSegment(Exception):
    """Somebody else's bytes; a sentence."""


def line(row: ChangeRow) -> bytes:
    return _encoder.encode(row) + b"\n"


def pack(text: bytes) -> bytes:
    return zlib.compress(text, 6)


def unpack(packed: bytes) -> bytes:
    """Raises `UnreadableSegment`."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, LINES_BYTES_MAX)
    except zlib.error as error:
        raise UnreadableSegment(f"cannot be decompressed: {error}") from error
    if not inflater.eof:
        raise UnreadableSegment("is truncated, or larger than a segment may be")
    return text


def rows_of(segment: ArchiveSegment) -> list[ChangeRow]:
    """Raises `UnreadableSegment`."""
    try:
        return [_decoder.decode(line) for line in unpack(segment.packed).splitlines()]
    except msgspec.MsgspecError as error:
        raise UnreadableSegment(f"a row cannot be read: {error}") from error


def excess(stored: Sequence[Stored], budget: Budget, now_ms: int) -> list[Stored]:
    """Segments that go, of all there are in order; never the newest."""
    total = sum(one.size for one in stored)
    gone = []
    for one, following in pairwise(stored):
        # One that cannot be read ends where the next one begins.
        ends_ms = one.header.last_ms or following.header.first_ms
        too_old = ends_ms < now_ms - budget.days * DAY_MS
        if not too_old and total <= budget.bytes_max:
            break
        gone.append(one)
        total -= one.size
    return gone
