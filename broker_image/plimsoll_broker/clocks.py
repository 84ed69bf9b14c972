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
    """Return milliseconds that never step and never stand still."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


STEP_MS_MAX = 600_000


class WallClock:
    """`monotonic_ms`: the broker's clock that never steps."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._began_ms = _wall_ms() - monotonic_ms()
        self._believed = True

    def now_ms(self) -> int | None:
        """Return ms since the epoch; None while the clock is not trusted."""
        wall_ms = _wall_ms()
        stepped_ms = wall_ms - self._monotonic_ms() - self._began_ms
        believed = abs(stepped_ms) <= STEP_MS_MAX
        if believed != self._believed:
            self._believed = believed
            if believed:
                logger.warning("wall clock back in sync: time-based retention resumed")
            else:
                logger.error(
                    "the wall clock stepped by %d ms: records are not deleted by age until it is "
                    "set back or this broker restarts; check the node's time service",
                    stepped_ms,
                )
        return wall_ms if believed else None

    def stamp_ms(self) -> int:
        """Return the time to write now: the wall clock's, unless it was set back."""
        wall_ms, reckoned_ms = _wall_ms(), self._began_ms + self._monotonic_ms()
        return wall_ms if reckoned_ms - wall_ms <= STEP_MS_MAX else reckoned_ms


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
