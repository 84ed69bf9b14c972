"""Progress: how many bytes moved in a recent window, by marks made at each look.

A ReplySender and a RequestReceiver own one each. A client is judged by its rate in the last
seconds; an average since the beginning would stay high for hours after a fast start. Pure.
"""

from __future__ import annotations

from collections import deque

_MARKS = 16
"""Marks in a window, however often `within` is called."""


class Progress:
    """`within` is called at each sweep."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        # The time of each look, with the total at that time.
        self._marks: deque[tuple[float, int]] = deque()

    def begins(self) -> None:
        """Forget all marks."""
        self._marks.clear()

    def within(self, now: float, total: int, window_s: float) -> int | None:
        """Return how much of `total` came in the last `window_s`; None until it has been watched
        for that long. If looks are rare, the window is longer."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now - window_s:
            marks.popleft()
        found = total - marks[0][1] if marks and marks[0][0] <= now - window_s else None
        if not marks or now - marks[-1][0] >= window_s / _MARKS:
            marks.append((now, total))
        return found
