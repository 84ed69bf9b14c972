"""How much of something came or went lately, by marks that are made whenever somebody looks.

A sender and a session own one each: a client is judged by what it did in the last seconds, and not
by an average since the beginning, which a fast beginning would keep high for hours.  Pure.
"""

from __future__ import annotations

from collections import deque

_MARKS = 16
"""To a window, however often it is looked at."""


class Progress:
    """`within` is called at each sweep."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        # When it was looked at, and how much there was in all by then.
        self._marks: deque[tuple[float, int]] = deque()

    def begins(self) -> None:
        """What was seen until now is over."""
        self._marks.clear()

    def within(self, now: float, total: int, window_s: float) -> int | None:
        """How much of `total` came in the last `window_s`; None while it was not looked at for as
        long.  Where it is looked at seldom, it is what came in a longer time."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now - window_s:
            marks.popleft()
        found = total - marks[0][1] if marks and marks[0][0] <= now - window_s else None
        if not marks or now - marks[-1][0] >= window_s / _MARKS:
            marks.append((now, total))
        return found
