"""Compares the records of a partition with those of its copy in another cluster, in their order.
Pure.

Called by `mirror` with the records of both sides in pieces. Offsets may differ: MirrorMaker 2
writes what it reads, and counts anew. It may hold records of the source's aborted transactions, or
lack them: neither is a difference. A record is known by a hash of its timestamp, key, value and
headers. Where the sides part, both are searched for the place at which they meet again, at most
`WINDOW` records ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from plimsoll_spark.arrays import Bools, Ints

WINDOW = 20_000
DIFFERENCES_MAX = 100
"""The most differences of a partition that are kept; all are counted."""
MirrorKind = Literal["unmirrored", "altered"]


class Piece(NamedTuple):
    """Consecutive records of one side: their offsets, and the hash of each. `aborted`: True for a
    record of a transaction that was aborted; None: there is none."""

    offset: Ints
    content: Ints
    aborted: Bools | None = None


class Difference(NamedTuple):
    """Records at offsets of the source from `first` to `last`, both included. unmirrored: the
    mirror lacks them; altered: it holds another record in place of this one, at offset `at`."""

    kind: MirrorKind
    first: int
    last: int
    at: int | None = None


class MirrorResult(NamedTuple):
    """`compared`: number of records that both sides hold; `differences`: at most `DIFFERENCES_MAX`;
    `counts`: number of records by kind of difference; `extra`: number of records that only the
    mirror holds, such as second copies; `behind`: number of the source's last records that the
    mirror does not hold yet."""

    compared: int
    differences: tuple[Difference, ...]
    counts: dict[str, int]
    extra: int
    behind: int


class _Side:
    """The records of one side that are not yet compared."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self.offset, self.content = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.aborted = np.zeros(0, np.bool_)
        self.ended = False

    def fill(self) -> None:
        """Read on until there are more than `WINDOW` records, or the side has ended."""
        while not self.ended and len(self.offset) <= WINDOW:
            piece = next(self._pieces, None)
            if piece is None:
                self.ended = True
                return
            self.offset = np.concatenate((self.offset, piece.offset))
            self.content = np.concatenate((self.content, piece.content))
            aborted = (
                np.zeros(len(piece.offset), np.bool_) if piece.aborted is None else piece.aborted
            )
            self.aborted = np.concatenate((self.aborted, aborted))

    def drop(self, count: int) -> None:
        self.offset, self.content = self.offset[count:], self.content[count:]
        self.aborted = self.aborted[count:]

    def aborted_without(self, other: _Side) -> int:
        """Return the number of records of aborted transactions before the first other record, and
        before the first that `other` holds near."""
        lead = self.aborted[:WINDOW]
        count = len(lead) if lead.all() else int(np.argmin(lead))
        held = np.flatnonzero(np.isin(self.content[:count], other.content[:WINDOW]))
        return int(held[0]) if len(held) else count

    def find(self, content: int) -> int | None:
        """Return the number of records before the next one with this hash; None: it is not
        near."""
        found = np.flatnonzero(self.content[:WINDOW] == content)
        return int(found[0]) if len(found) else None


class _Differences:
    """Collects differences; adjacent ones of one kind become one."""

    def __init__(self) -> None:
        self.found: list[Difference] = []
        self.counts: dict[str, int] = {}

    def add(self, kind: MirrorKind, offsets: Ints, at: int | None = None) -> None:
        if not len(offsets):
            return
        self.counts[kind] = self.counts.get(kind, 0) + len(offsets)
        one = Difference(kind, int(offsets[0]), int(offsets[-1]), at)
        last = self.found[-1] if self.found else None
        if last is not None and last.kind == kind and last.last + 1 == one.first:
            self.found[-1] = last._replace(last=one.last)
        elif len(self.found) < DIFFERENCES_MAX:
            self.found.append(one)


def compare_mirror(
    source: Iterator[Piece],
    mirror: Iterator[Piece],
    *,
    source_begins: bool,
    mirror_begins: bool,
) -> MirrorResult:
    """Compare a partition's records, `source`, with those of its copy, `mirror`. `source_begins`,
    `mirror_begins`: True if retention has deleted nothing of this side: what the other side has
    before its first record is then a difference. The last records of the source that the mirror
    lacks are not judged, since it may be behind."""
    ours, theirs, found = _Side(source), _Side(mirror), _Differences()
    compared = extra = 0
    begun = False
    while True:
        ours.fill()
        theirs.fill()
        both = min(len(ours.offset), len(theirs.offset))
        if not both:
            break
        unequal = np.flatnonzero(ours.content[:both] != theirs.content[:both])
        same = int(unequal[0]) if len(unequal) else both
        if same:
            compared, begun = compared + same, True
            ours.drop(same)
            theirs.drop(same)
            continue
        if left := ours.aborted_without(theirs):
            ours.drop(left)
            continue
        ahead = ours.find(int(theirs.content[0]))
        back = theirs.find(int(ours.content[0]))
        if ahead is not None and (back is None or ahead <= back):
            if begun or mirror_begins:
                found.add("unmirrored", ours.offset[:ahead][~ours.aborted[:ahead]])
            ours.drop(ahead)
        elif back is not None:
            extra += back if begun or source_begins else 0
            theirs.drop(back)
        elif not begun and not source_begins:
            theirs.drop(1)  # retention has deleted it at the source
        elif not begun and not mirror_begins:
            ours.drop(1)
        else:
            found.add("altered", ours.offset[:1], int(theirs.offset[0]))
            ours.drop(1)
            theirs.drop(1)
    extra += len(theirs.offset)
    return MirrorResult(compared, tuple(found.found), found.counts, extra, _rest(ours))


def _rest(source: _Side) -> int:
    """Read the side to its end, and return the number of records that were left, without those of
    aborted transactions."""
    count = 0
    while len(source.offset):
        count += int((~source.aborted).sum())
        source.drop(len(source.offset))
        source.fill()
    return count
