"""Which connection is closed because something took longer than its listener's limits allow, and
the word that says what.

Asked by a listener at each of its sweeps: of a client that sends nothing, does not read its
replies, or does not end its request, and of one for whose request there is no memory.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_broker.server.connection_limits import ListenerLimits

SLOWEST_REQUEST = 16 * 1024
"""Bytes a second that a client must keep up while it sends a large request."""
SLOWEST_READER = 64 * 1024
"""Bytes a second that a reader has to keep up while memory is short."""

REASONS = (
    "frame-too-large",
    "half-closed",
    "half-request",
    "handler-failed",
    "idle",
    "made-room",
    "malformed",
    "no-memory-for-request",
    "not-reading",
    "silent",
    "unsupported-version",
)
"""Why connections are closed, so that all are counted from the start; handlers add a few."""


@dataclass(slots=True, kw_only=True)
class Conduct:
    """What a connection has done, in seconds; None: it does not do that.

    `silent`: since its last byte.  `spoken`: whether it has ever made a request.  `waiting`: for a
    reply.  `owing`: since the first byte of a request that is not whole, `came` bytes of which are
    here.  `starved`: since memory for the rest of it was asked for.  `unread`: since it took the
    last bytes of its replies.  `draining`: since something of its replies is unsent, of which it
    took `taken` bytes.  `half_closed`: since it said that it will send no more."""

    silent: float
    spoken: bool
    waiting: bool
    owing: float | None = None
    came: int = 0
    starved: float | None = None
    unread: float | None = None
    draining: float | None = None
    taken: int = 0
    half_closed: float | None = None


def overdue(conduct: Conduct, limits: ListenerLimits, *, short: bool) -> str | None:
    """Why a connection has to go, in a word, if it has; `short`: a client waits for memory that
    unsent replies hold."""
    if _after(conduct.starved, limits.starved_ms_max):
        return "no-memory-for-request"
    if _after(conduct.owing, limits.request_ms_max, conduct.came / SLOWEST_REQUEST):
        return "half-request"
    if _after(conduct.unread, limits.unread_ms_max):
        return "not-reading"
    grace = conduct.taken / SLOWEST_READER
    if short and _after(conduct.draining, limits.unread_short_ms_max, grace):
        return "not-reading"
    if _after(conduct.half_closed, limits.half_closed_ms_max):
        return "half-closed"
    if conduct.waiting or conduct.unread is not None:
        return None
    if not conduct.spoken and _after(conduct.silent, limits.silent_ms_max):
        return "silent"
    return "idle" if _after(conduct.silent, limits.idle_ms_max) else None


def _after(seconds: float | None, ms_max: int, grace: float = 0.0) -> bool:
    return seconds is not None and seconds > ms_max / 1000 + grace
