"""The broker's clocks. A simulator replaces `time`'s functions.

`WallClock`: the wall clock for retention, which does not trust it after it has stepped.
`PeriodicChores` and coordinators ask before they look for what is too old. A clock that was set a
week ahead would expire every record at once, on every replica, since followers begin where their
leader does. The monotonic clock tells how far the wall clock should have come since the start. If
the two differ by more than clocks are ever slewed, nothing is deleted by age until they agree again
or the broker restarts. Size-based retention goes on. A timestamp that is written meanwhile is read
later by a correct clock, or by another broker. So it is the later of both times: young records must
not look old.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("plimsoll.clocks")
# CLOCK_BOOTTIME goes on while the machine is suspended: what was promised by others expires then.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """Return the time in ms of a clock that never steps, and goes on while the machine is
    suspended."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


STEP_MS_MAX = 600_000


class WallClock:
    """The wall clock for retention and timestamps, checked against `monotonic_ms`, a clock that
    never steps."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._began_ms = _wall_ms() - monotonic_ms()
        self._believed = True

    def now_ms(self) -> int | None:
        """Return the wall clock in ms since 1970. Return None while it is not trusted: it differs
        by more than STEP_MS_MAX from what the monotonic clock lets expect."""
        wall_ms = _wall_ms()
        stepped_ms = wall_ms - self._monotonic_ms() - self._began_ms
        believed = abs(stepped_ms) <= STEP_MS_MAX
        if believed != self._believed:
            self._believed = believed
            if believed:
                logger.warning("the wall clock is right again: time-based retention goes on")
            else:
                logger.error(
                    "the wall clock stepped by %d ms: records are not deleted by age until it is "
                    "set back or this broker restarts; check the node's time service",
                    stepped_ms,
                )
        return wall_ms if believed else None

    def stamp_ms(self) -> int:
        """Return the time to write into records, in ms since 1970: the wall clock's, or what the
        monotonic clock lets expect if the wall clock was set back."""
        wall_ms, reckoned_ms = _wall_ms(), self._began_ms + self._monotonic_ms()
        return wall_ms if reckoned_ms - wall_ms <= STEP_MS_MAX else reckoned_ms


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
