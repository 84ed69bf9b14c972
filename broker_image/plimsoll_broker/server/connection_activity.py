"""Since when a connection has done, or owes, what its listener's limits allow for so long.

Owned by a `Session`, which writes it; by the event loop's clock, in seconds.  What follows from it
is `overdue_connections`' to say.
"""

from __future__ import annotations


class Activity:
    """Times are None while it is not so."""

    __slots__ = ("half_closed_s", "heard_s", "opened_s", "owing_s", "spoken", "starved_s")

    def __init__(self, now_s: float) -> None:
        self.opened_s = now_s
        # Its last byte; `opened_s` before the first.
        self.heard_s = now_s
        # Whether it has ever made a request, after its login.
        self.spoken = False
        # The first byte of a request that is not whole.
        self.owing_s: float | None = None
        # When memory for the rest of it was asked for.
        self.starved_s: float | None = None
        # When it said that it will send no more.
        self.half_closed_s: float | None = None

    def silent_for(self, now_s: float, muted_until_s: float, *, let_in: bool) -> float:
        """A connection that is muted is silent from the end of that on; one without its login has
        not said anything."""
        heard_s = max(self.heard_s, min(muted_until_s, now_s))
        return now_s - (heard_s if let_in else self.opened_s)

    def waits(self, now_s: float, *, owing: bool, starved: bool) -> None:
        """What it waits for, from now on or still: the rest of a request, memory for it."""
        self.owing_s = _since(self.owing_s, now_s) if owing else None
        self.starved_s = _since(self.starved_s, now_s) if starved else None


def _since(before_s: float | None, now_s: float) -> float:
    return now_s if before_s is None else before_s


def seconds_since(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else now_s - at_s
