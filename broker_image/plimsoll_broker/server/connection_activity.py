"""Activity: since when a connection has been silent, unfinished or starved, for its listener's
limits.

Owned and written by a `Session`. Times are seconds of the event loop's clock. `overdue_connections`
decides which connections are closed.
"""

from __future__ import annotations


class Activity:
    """Each time is None while its state does not apply."""

    __slots__ = ("half_closed_s", "heard_s", "opened_s", "owing_s", "spoken", "starved_s")

    def __init__(self, now_s: float) -> None:
        self.opened_s = now_s
        # Arrival of the last byte; `opened_s` before the first.
        self.heard_s = now_s
        # True once it has made a request after login.
        self.spoken = False
        # Arrival of the first byte of an unfinished request.
        self.owing_s: float | None = None
        # Since when it has waited for memory for the rest.
        self.starved_s: float | None = None
        # When the peer half-closed the connection.
        self.half_closed_s: float | None = None

    def silent_for(self, now_s: float, muted_until_s: float, *, let_in: bool) -> float:
        """Return the seconds since the last byte. For a muted connection silence begins when the
        muting ends; without login it begins at the connect."""
        heard_s = max(self.heard_s, min(muted_until_s, now_s))
        return now_s - (heard_s if let_in else self.opened_s)

    def waits(self, now_s: float, *, owing: bool, starved: bool) -> None:
        """Note that the connection still, or from now on, owes the rest of a request, or waits for
        memory."""
        self.owing_s = _since(self.owing_s, now_s) if owing else None
        self.starved_s = _since(self.starved_s, now_s) if starved else None


def _since(before_s: float | None, now_s: float) -> float:
    return now_s if before_s is None else before_s


def seconds_since(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else now_s - at_s
