"""Delays a timer that judges the silence of others if this process itself did not run. Pure.

A late timer proves nothing about the peers that it judges: this process was stopped or busy, and
their messages may be unread. A stop interrupts `epoll_wait`, and asyncio then runs due timers
before it reads sockets; after a suspended machine, peers send again; and of a thousand connections
most are read in later turns. Used by a broker's timers of sessions, lag, slow connections and
handshakes; the controller's ticks have their own rule (`brokers.fencing`)."""

from __future__ import annotations

LATE_MS = 100
"""The lateness in milliseconds from which a timer waits once more before it judges."""
READ_MS = 500
"""The delay in milliseconds of a late timer. Meanwhile unread messages are read from the
sockets."""


class LateTimer:
    """Postpones one timer's judgement of a silent peer if this process ran late. It never postpones
    twice in a row, so that a busy process judges too."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        # True if it was late the last time, and has waited since.
        self._waits = False

    def not_before_ms(self, expected_ms: int, now_ms: int) -> int | None:
        """Return None if a timer that was due at `expected_ms` may judge at `now_ms`. Postpone it
        and return the time at which it must fire again if it is late by `LATE_MS` or more, unless
        it was postponed the last time. Times are in ms of one clock."""
        self._waits = not self._waits and now_ms - expected_ms >= LATE_MS
        return now_ms + READ_MS if self._waits else None
