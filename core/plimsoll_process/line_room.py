"""LineRoom: log lines that clients can cause, bounded and shared fairly by principal.

Used by the audit log, one for each decision, and by whatever else writes a line for what a client
did.  Pure: what is noted is counted, and `due` gives what is to be written.  The same thing is
written once in `QUIET_S`; what happens meanwhile is counted in its next line.  Of a principal so
many different things are kept in that time as its share of the room (`FairPool`), so that is how
many lines it can cause; those that wait are written by turns, one of each principal.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from plimsoll_core.quotas.fair_pool import FairPool

T = TypeVar("T", bound=Hashable)

QUIET_S = 60.0
"""Interval in which the same thing is written once."""
ROOM = 2000
"""Different things of all principals that are kept; one alone has half, each of less than 1 KiB."""
FLOOR = 8
"""Entries that each principal may have, whatever the others hold, while there is room at all."""


class DueLine(NamedTuple, Generic[T]):
    """`times`: how often it happened since its last line.  `left_out`: of the same principal, how
    often something happened of which nothing is written."""

    what: T
    times: int
    left_out: int


class LineRoom(Generic[T]):
    """`dropped`: how often something happened of which nothing is written; a metric.  Times are in
    seconds, of any clock that only grows."""

    def __init__(self, room: int = ROOM, floor: int = FLOOR) -> None:
        self.dropped = 0
        self.pool = FairPool(room, floor=floor)
        # Occurrences of each since its last line.  Each of these, and each recently written one,
        # holds a place of the pool.
        self._counts: dict[tuple[str, T], int] = {}
        self._written_s: OrderedDict[tuple[str, T], float] = OrderedDict()
        # Entries that are due, by principal; the first principal is next.
        self._ready: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self._left_out: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """Return True if anything is to be written, now or later."""
        return bool(self._counts)

    def __len__(self) -> int:
        """Return the number of entries."""
        return self.pool.used

    def note(self, principal: str, what: T, now_s: float) -> None:
        """Count one occurrence."""
        key = principal, what
        if key in self._counts:
            self._counts[key] += 1
            return
        self._forget(now_s)
        if key not in self._written_s:
            if not self.pool.admit(principal, 1):
                self.dropped += 1
                if self.pool.held(principal):
                    self._left_out[principal] += 1
                return
            self._ready.setdefault(principal, OrderedDict())[what] = None
        self._counts[key] = 1

    def _forget(self, now_s: float) -> None:
        """Forget entries that were written more than `QUIET_S` ago."""
        while self._written_s:
            key, written_s = next(iter(self._written_s.items()))
            if now_s - written_s < QUIET_S:
                return
            del self._written_s[key]
            principal, what = key
            if key in self._counts:
                self._ready.setdefault(principal, OrderedDict())[what] = None
                continue
            self.pool.give_back(principal, 1)
            if not self.pool.held(principal):
                del self._left_out[principal]

    def due(self, now_s: float, most: int) -> Iterator[DueLine[T]]:
        """Yield at most so many lines to be written now."""
        self._forget(now_s)
        for _ in range(most):
            if not self._ready:
                return
            principal, waiting = self._ready.popitem(last=False)
            what, _none = waiting.popitem(last=False)
            if waiting:
                self._ready[principal] = waiting
            key = principal, what
            self._written_s[key] = now_s
            yield DueLine(what, self._counts.pop(key), self._left_out.pop(principal, 0))

    def rest(self, now_s: float) -> Iterator[DueLine[T]]:
        """Yield all counted lines, at the end."""
        for key in self._written_s:
            if key in self._counts:
                self._ready.setdefault(key[0], OrderedDict())[key[1]] = None
        self._written_s.clear()
        return self.due(now_s, len(self._counts))
