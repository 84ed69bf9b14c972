"""Compares the records of a partition with those of its copy in another cluster, in their order.
Pure.

Called by `mirror` with the records of both sides in pieces. Offsets may differ: MirrorMaker 2
writes what it reads, and counts anew. It may hold records of the source's aborted transactions, or
lack them: neither is a difference. A record is known by a hash of its timestamp, key, value and
headers. Where the sides part, both are searched for the place at which they meet again, at most
`WINDOW` records ahead. Where retention has deleted records of a side, before or while it is read,
the other side is read on up to the place at which they meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from plimsoll_spark.arrays import Bools, Ints

WINDOW = 20_000
DIFFERENCES_MAX = 100
"""The most differences of a partition that are kept, with the first of each kind; all are
counted."""
MirrorKind = Literal["unmirrored", "altered"]


class Piece(NamedTuple):
    """Consecutive records of one side: their offsets, and the hash of each. `aborted`: True for a
    record of a transaction that was aborted; None: there is none. `time_ms`: their timestamps;
    None: unknown. `cut`: True if retention deleted records before the first one while the side was
    read."""

    offset: Ints
    content: Ints
    aborted: Bools | None = None
    time_ms: Ints | None = None
    cut: bool = False


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
    mirror does not hold yet; `apart_from`: the offset of the source's first record from which on
    both sides hold records, but none that is the same, None if there is none."""

    compared: int
    differences: tuple[Difference, ...]
    counts: dict[str, int]
    extra: int
    behind: int
    apart_from: int | None = None


class _Side:
    """The records of one side that are not yet compared, up to a place at which retention deleted
    some. `begins`: True if it deleted nothing before them."""

    def __init__(self, pieces: Iterator[Piece], *, begins: bool) -> None:
        self._pieces = pieces
        self._behind_cut: Piece | None = None
        self.begins = begins
        self._clear()
        self.ended = False

    def _clear(self) -> None:
        self.offset, self.content, self._time_ms = (np.zeros(0, np.int64) for _ in range(3))
        self.aborted = np.zeros(0, np.bool_)

    def fill(self) -> None:
        """Read on until there are more than `WINDOW` records, retention has deleted the next ones,
        or the side has ended."""
        while not self.ended and self._behind_cut is None and len(self.offset) <= WINDOW:
            piece = next(self._pieces, None)
            if piece is None:
                self.ended = True
            elif piece.cut:
                self._behind_cut = piece
            else:
                self._add(piece)

    def pass_cut(self) -> bool:
        """If all records before a cut are compared, go on behind it. Return False if there is no
        cut, or there are records before it."""
        if len(self.offset) or self._behind_cut is None:
            return False
        self._add(self._behind_cut)
        self._behind_cut, self.begins = None, False
        return True

    def _add(self, piece: Piece) -> None:
        count = len(piece.offset)
        self.offset = np.concatenate((self.offset, piece.offset))
        self.content = np.concatenate((self.content, piece.content))
        aborted = np.zeros(count, np.bool_) if piece.aborted is None else piece.aborted
        self.aborted = np.concatenate((self.aborted, aborted))
        time_ms = np.zeros(count, np.int64) if piece.time_ms is None else piece.time_ms
        self._time_ms = np.concatenate((self._time_ms, time_ms))

    def drop(self, count: int) -> None:
        self.offset, self.content = self.offset[count:], self.content[count:]
        self.aborted, self._time_ms = self.aborted[count:], self._time_ms[count:]

    def drop_strange(self, other: _Side, *, older: bool = False) -> None:
        """Drop the next record, and those behind it up to the first that `other` holds near.
        `older`: True to drop only such as are older than the next one of `other`."""
        kept = np.isin(self.content[:WINDOW], other.content[:WINDOW])
        if older:
            kept |= self._time_ms[:WINDOW] >= other._time_ms[0]
        kept[0] = False
        self.drop(int(np.argmax(kept)) if kept.any() else len(kept))

    def is_older(self, other: _Side) -> bool:
        """Return True if the next record has a lower timestamp than that of `other`."""
        return bool(self._time_ms[0] < other._time_ms[0])

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
        is_first = kind not in self.counts
        self.counts[kind] = self.counts.get(kind, 0) + len(offsets)
        one = Difference(kind, int(offsets[0]), int(offsets[-1]), at)
        last = self.found[-1] if self.found else None
        if last is not None and last.kind == kind and last.last + 1 == one.first:
            self.found[-1] = last._replace(last=one.last)
        elif is_first or len(self.found) < DIFFERENCES_MAX:
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
    walk = _Walk(_Side(source, begins=source_begins), _Side(mirror, begins=mirror_begins))
    while walk.goes_on():
        walk.step()
    return walk.result()


class _Walk:
    """A walk over both sides. `_begun`: True if they have met, since the start or the last cut."""

    def __init__(self, ours: _Side, theirs: _Side) -> None:
        self._ours, self._theirs = ours, theirs
        self._found = _Differences()
        self._compared = self._extra = 0
        self._begun = False
        self._apart_from: int | None = None

    def goes_on(self) -> bool:
        """Read on. Return False if a side has no more records."""
        while True:
            self._ours.fill()
            self._theirs.fill()
            if not any([self._ours.pass_cut(), self._theirs.pass_cut()]):
                return min(len(self._ours.offset), len(self._theirs.offset)) > 0
            self._begun = False

    def step(self) -> None:
        """Compare the next records, and drop those that are decided."""
        ours, theirs = self._ours, self._theirs
        both = min(len(ours.offset), len(theirs.offset))
        unequal = np.flatnonzero(ours.content[:both] != theirs.content[:both])
        if same := int(unequal[0]) if len(unequal) else both:
            self._compared += same
            self._begun, self._apart_from = True, None
            ours.drop(same)
            theirs.drop(same)
        elif left := ours.aborted_without(theirs):
            ours.drop(left)
        else:
            self._pass_difference()

    def _pass_difference(self) -> None:
        ours, theirs = self._ours, self._theirs
        if not self._begun and self._apart_from is None:
            self._apart_from = int(ours.offset[0])
        ahead = ours.find(int(theirs.content[0]))
        back = theirs.find(int(ours.content[0]))
        if ahead is not None and (back is None or ahead <= back):
            if self._begun or theirs.begins:
                self._found.add("unmirrored", ours.offset[:ahead][~ours.aborted[:ahead]])
            ours.drop(ahead)
        elif back is not None:
            self._extra += back if self._begun or ours.begins else 0
            theirs.drop(back)
        elif self._begun or (ours.begins and theirs.begins):
            self._found.add("altered", ours.offset[:1], int(theirs.offset[0]))
            ours.drop(1)
            theirs.drop(1)
        else:
            self._approach()

    def _approach(self) -> None:
        """Drop records of the side that holds older ones, since retention has deleted those of the
        other side. MirrorMaker 2 keeps timestamps."""
        ours, theirs = self._ours, self._theirs
        if ours.begins:
            ours.drop_strange(theirs)
        elif theirs.begins:
            theirs.drop_strange(ours)
        elif ours.is_older(theirs):
            ours.drop_strange(theirs, older=True)
        else:
            theirs.drop_strange(ours, older=True)

    def result(self) -> MirrorResult:
        """Return what was found, once a side has ended."""
        return MirrorResult(
            compared=self._compared,
            differences=tuple(self._found.found),
            counts=self._found.counts,
            extra=self._extra + len(self._theirs.offset),
            behind=_rest(self._ours),
            apart_from=self._apart_from,
        )


def _rest(source: _Side) -> int:
    """Read the side to its end, and return the number of records that were left, without those of
    aborted transactions."""
    count = 0
    while len(source.offset) or source.pass_cut():
        count += int((~source.aborted).sum())
        source.drop(len(source.offset))
        source.fill()
    return count
