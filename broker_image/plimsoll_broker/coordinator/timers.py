"""Has a shard do what is due: one timer of the event loop, at the earliest deadline.

Owned by a shard.  Which deadlines there are is soft state's; what follows from one is decided like
anything else that is asked.  A few at a time, so that others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from plimsoll_core.coordination.deadlines import Deadlines

AT_ONCE = 20
"""Deadlines in one turn of the event loop."""


class DeadlineTimer:
    """`due`: called for each deadline that has come."""

    __slots__ = ("_at_ms", "_deadlines", "_due", "_handle", "_now_ms")

    def __init__(
        self,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        due: Callable[[Hashable], None],
    ) -> None:
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._due = due
        # What the loop's timer is set to; None: it is not set.
        self._at_ms: int | None = None
        self._handle: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """The deadlines may have changed."""
        at_ms = self._deadlines.earliest_ms()
        if at_ms == self._at_ms:
            return
        self.cancel()
        if at_ms is not None:
            wait_s = max(at_ms - self._now_ms(), 0) / 1000
            self._at_ms = at_ms
            self._handle = asyncio.get_running_loop().call_later(wait_s, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._at_ms = None

    def _fired(self) -> None:
        self._handle = self._at_ms = None
        for key in self._deadlines.take_due(self._now_ms(), AT_ONCE):
            self._due(key)
        self.arm()
