"""When metadata was committed, as far back as it matters for how late a broker is.

One entry for each tenth of a second in which something was committed, so many at most.
"""

from __future__ import annotations

from collections import deque

ENTRIES_MAX = 4_096
APART_MS = 100


class CommitTimes:
    """Times are of the controller's clock, in milliseconds."""

    def __init__(self) -> None:
        # (records committed until then, when the first of them since the entry before was), in
        # order; the time of an entry holds for all of its records.
        self._entries: deque[tuple[int, int]] = deque(maxlen=ENTRIES_MAX)

    def begin(self, offset: int, now_ms: int) -> None:
        """A term begins: what was committed before is as old as the term."""
        self._entries.clear()
        self._entries.append((offset, now_ms))

    def committed(self, offset: int, now_ms: int) -> None:
        """The log has `offset` records now."""
        if len(self._entries) > 1 and now_ms - self._entries[-1][1] < APART_MS:
            self._entries[-1] = (offset, self._entries[-1][1])
        else:
            self._entries.append((offset, now_ms))

    def since_ms(self, offset: int, now_ms: int) -> int:
        """How long ago the record at `offset` was committed; at least so long ago, when that is
        not known any more."""
        for end, at_ms in self._entries:
            if end > offset:
                return max(0, now_ms - at_ms)
        return 0
