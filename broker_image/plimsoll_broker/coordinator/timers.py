"""DeadlineTimer: one timer of the event loop, at the earliest deadline of a shard.

Owned by a shard. The soft state holds the deadlines; an expired one is decided like any other
operation. A few are handled at a time, so that other tasks run. After this process has been paused,
heartbeats that wait in the sockets count first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.late_timers import LateTimer

AT_ONCE = 20
"""Deadlines in one turn of the event loop."""


class DeadlineTimer:
    """`due` is called for each deadline that has passed."""

    __slots__ = (
        "_at_ms", "_deadlines", "_due", "_expected_ms", "_handle", "_late", "_not_before_ms",
        "_now_ms",
    )  # fmt: skip

    def __init__(
        self,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        due: Callable[[Hashable], None],
    ) -> None:
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._due = due
        # The time that the loop's timer is set to; None: it is not set.
        self._at_ms: int | None = None
        self._handle: asyncio.TimerHandle | None = None
        # When the loop's timer should fire: a deadline may have passed before it was set.
        self._expected_ms = 0
        self._late = LateTimer()
        # No deadline expires before this.
        self._not_before_ms = 0

    def arm(self) -> None:
        """Set the timer anew if the earliest deadline has changed."""
        earliest_ms = self._deadlines.earliest_ms()
        at_ms = None if earliest_ms is None else max(earliest_ms, self._not_before_ms)
        if at_ms == self._at_ms:
            return
        self.cancel()
        if at_ms is not None:
            now_ms = self._now_ms()
            self._at_ms, self._expected_ms = at_ms, max(at_ms, now_ms)
            wait_s = (self._expected_ms - now_ms) / 1000
            self._handle = asyncio.get_running_loop().call_later(wait_s, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._at_ms = None

    def _fired(self) -> None:
        self._handle = self._at_ms = None
        now_ms = self._now_ms()
        not_before_ms = self._late.not_before_ms(self._expected_ms, now_ms)
        if not_before_ms is not None:
            self._not_before_ms = not_before_ms
        else:
            for key in self._deadlines.take_due(now_ms, AT_ONCE):
                self._due(key)
        self.arm()
