"""A line a second at most, for what others can cause as often as they like.

Pure: times are handed in.  Called by `loop_holds` and by the controllers' server.
"""

from __future__ import annotations

LINES_EVERY_S = 1.0


class LineLimit:
    """Limits the rate of one kind of log line."""

    def __init__(self) -> None:
        # When one was written last, None: never; and how many were not written since.
        self._said_s: float | None = None
        self._unsaid = 0

    def due(self, now_s: float) -> str | None:
        """Return the suffix of a line that is written now; None if it is only counted."""
        if self._said_s is not None and now_s - self._said_s < LINES_EVERY_S:
            self._unsaid += 1
            return None
        more = f" ({self._unsaid} more since the last line)" if self._unsaid else ""
        self._said_s, self._unsaid = now_s, 0
        return more
