"""Which connection is closed because something took longer than its listener's limits allow, and
the word that says what.

Asked by a listener at each of its sweeps: of a client that sends nothing, does not read its
replies, or does not end its request, and of one for whose request there is no memory.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_broker.server.connection_limits import ListenerLimits

SLOWEST_REQUEST = 16 * 1024
"""Bytes a second that a client must have kept up lately while it sends a large request."""
SLOWEST_WANTED = 256 * 1024
"""The same, while others wait for the memory that requests of its principal hold."""
SLOWEST_READER = 64 * 1024
"""Bytes a second that a reader must have kept up lately while memory is short."""
_LATELY_PART = 0.75
"""Of the time after which a connection goes: for so long it is seen what comes of it, since a sweep
is a quarter apart.  An average since the beginning would credit what the kernel took at first."""

REASONS = (
    "frame-too-large",
    "half-closed",
    "half-request",
    "handler-failed",
    "idle",
    "made-room",
    "malformed",
    "no-memory-for-reply",
    "no-memory-for-request",
    "not-reading",
    "reply-too-large",
    "silent",
    "unsupported-version",
)
"""Why connections are closed, so that all are counted from the start; handlers add a few."""


@dataclass(slots=True, kw_only=True)
class Conduct:
    """What a connection has done, in seconds; None: it does not do that.

    `silent`: since its last byte.  `spoken`: whether it has ever made a request.  `waiting`: for a
    reply.  `owing`: since the first byte of a request that is not whole, `came` bytes of which came
    lately (`lately`).  `starved`: since memory for the rest of it was asked for.  `unread`: since
    it took the last bytes of its replies.  `draining`: since something of its replies is unsent, of
    which it took `taken` bytes lately.  `came`, `taken` None: it was not looked at for as long.
    `half_closed`: since it said that it will send no more."""

    silent: float
    spoken: bool
    waiting: bool
    owing: float | None = None
    came: int | None = None
    starved: float | None = None
    unread: float | None = None
    draining: float | None = None
    taken: int | None = None
    half_closed: float | None = None


def lately(ms_max: int) -> float:
    """The seconds in which a connection is watched that has to go after `ms_max`."""
    return ms_max / 1000 * _LATELY_PART


def overdue(
    conduct: Conduct, limits: ListenerLimits, *, short: bool = False, wanted: bool = False
) -> str | None:
    """Why a connection has to go, in a word, if it has; `short`: a client waits for memory that
    unsent replies of its principal hold, `wanted`: that its unfinished requests hold."""
    if _after(conduct.starved, limits.starved_ms_max):
        return "no-memory-for-request"
    # Who waits for memory is not read, and is not slow.
    least = SLOWEST_WANTED if wanted else SLOWEST_REQUEST
    slow = _is_slow(conduct.owing, conduct.came, limits.owing_ms(wanted), least)
    if slow and conduct.starved is None:
        return "half-request"
    if _after(conduct.unread, limits.unread_ms_max):
        return "not-reading"
    short_ms = limits.unread_short_ms_max
    if short and _is_slow(conduct.draining, conduct.taken, short_ms, SLOWEST_READER):
        return "not-reading"
    if _after(conduct.half_closed, limits.half_closed_ms_max):
        return "half-closed"
    if conduct.waiting or conduct.unread is not None:
        return None
    if not conduct.spoken and _after(conduct.silent, limits.silent_ms_max):
        return "silent"
    return "idle" if _after(conduct.silent, limits.idle_ms_max) else None


def _after(seconds: float | None, ms_max: int) -> bool:
    return seconds is not None and seconds > ms_max / 1000


def _is_slow(seconds: float | None, moved: int | None, ms_max: int, least: int) -> bool:
    """Whether it took too long and, lately, less than `least` bytes a second moved."""
    return _after(seconds, ms_max) and moved is not None and moved < least * lately(ms_max)
