"""`overdue`: which connection is closed for exceeding its listener's time limits, and the reason.

Called by a listener at each sweep: for a client that sends nothing, does not read its replies or
does not finish its request, and for a request without memory. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_broker.server.connection_limits import ListenerLimits

SLOWEST_REQUEST = 16 * 1024
"""The least rate, in bytes per second, at which a client must have sent a large request lately."""
SLOWEST_WANTED = 256 * 1024
"""The same, while others wait for memory that its principal's requests hold."""
SLOWEST_READER = 64 * 1024
"""The least rate, in bytes per second, at which a reader must have read lately while memory is
short."""
_LATELY_PART = 0.75
"""The part of a time limit that `lately` covers. The rest allows for the sweeps, which are a
quarter apart. An average since the beginning would credit the bytes that the kernel buffered at
first."""

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
"""The reasons for closing connections, listed so that all are counted from the start; handlers add
a few."""


@dataclass(slots=True, kw_only=True)
class Conduct:
    """The behaviour of a connection, in seconds; None: the state does not apply.

    `silent`: since its last byte. `spoken`: True if it has ever made a request. `waiting`: True if
    a reply is pending. `owing`: since the first byte of an unfinished request; `came`: bytes of it
    that arrived lately (`lately`). `starved`: since memory for the rest was asked for. `unread`:
    since the peer last took bytes of replies. `draining`: since replies have been unsent; `taken`:
    bytes of them taken lately. `came` and `taken` are None until the connection has been watched
    long enough. `half_closed`: since the peer half-closed.
    """

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
    """Return the seconds over which progress is measured for a limit of `ms_max`."""
    return ms_max / 1000 * _LATELY_PART


def overdue(
    conduct: Conduct, limits: ListenerLimits, *, short: bool = False, wanted: bool = False
) -> str | None:
    """Return the reason to close the connection, or None. `short`: a client waits for memory that
    unsent replies of this principal hold; `wanted`: that its unfinished requests hold."""
    if _after(conduct.starved, limits.starved_ms_max):
        return "no-memory-for-request"
    # A connection that waits for memory is not read, so it is not slow.
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
    """Return True if it took too long and moved less than `least` bytes per second lately."""
    return _after(seconds, ms_max) and moved is not None and moved < least * lately(ms_max)
