"""Delays a timer that judges the silence of others if this process itself did not run.

A late timer says nothing about the peers that it judges: the process was stopped or busy,
and what came meanwhile may be unread.  A stop interrupts `epoll_wait`, and asyncio's loop then
runs what is due before it reads a socket; after a suspended machine, peers send again; and of a
thousand connections most are served in later turns.  Asked by a broker's timers of sessions, of lag
and of slow connections, and by those of handshakes; the controller's ticks have a rule of their own
(`brokers.session_expiry`).  Pure.
"""

from __future__ import annotations

LATE_MS = 100
"""A timer that is so late waits once more."""
READ_MS = 500
"""For so long, in which what lies in the sockets is read."""


class LateTimer:
    """Delays one timer's judgement once if the process was late. It is never delayed twice: a busy
    process judges too."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        # True if it was late the last time, and has waited since.
        self._waits = False

    def not_before_ms(self, expected_ms: int, now_ms: int) -> int | None:
        """A timer has come that was to come at `expected_ms`; None: it judges now."""
        self._waits = not self._waits and now_ms - expected_ms >= LATE_MS
        return now_ms + READ_MS if self._waits else None
