"""The broker's clocks, in ms: one that never steps, and the wall clock. A simulator replaces
`time`'s functions.

`WallClock` gives `PeriodicChores` and the coordinators the time by which they delete old records. A
wall clock that was set a week ahead would expire every record at once, on every replica, since
followers take over their leader's log start. So the wall clock is compared with the time expected
from the monotonic clock. If the two differ by more than a clock is ever slewed, nothing is deleted
by age until they agree again or the broker restarts. Size-based retention goes on. Timestamps
written meanwhile are the later of both times, since a correct clock or another broker reads them
later, and young records must not look old.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("plimsoll.clocks")
# CLOCK_BOOTTIME goes on while the machine is suspended: what was promised by others expires then.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """Return the time in ms of a clock that never steps, and runs on while the machine is
    suspended."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


STEP_MS_MAX = 600_000


class WallClock:
    """The wall clock for retention and timestamps, compared with `monotonic_ms`, a clock that never
    steps."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._began_ms = _wall_ms() - monotonic_ms()
        self._believed = True

    def now_ms(self) -> int | None:
        """Return the wall clock in ms since 1970, or None while it is not trusted: it differs by
        more than STEP_MS_MAX from the time expected by the monotonic clock. Log each change between
        trusted and not trusted."""
        wall_ms = _wall_ms()
        stepped_ms = wall_ms - self._monotonic_ms() - self._began_ms
        believed = abs(stepped_ms) <= STEP_MS_MAX
        if believed != self._believed:
            self._believed = believed
            if believed:
                logger.warning(
                    "the clock of this broker's node is right again, so the broker deletes "
                    "records by age again; nothing needs to be done"
                )
            else:
                logger.error(
                    "the clock of this broker's node jumped by %d ms, so the broker deletes no "
                    "records by age until the clock is set back or the broker restarts; check "
                    "the node's time service",
                    stepped_ms,
                )
        return wall_ms if believed else None

    def stamp_ms(self) -> int:
        """Return the time to write into records, in ms since 1970: the wall clock, or the time
        expected by the monotonic clock if the wall clock was set back by more than STEP_MS_MAX."""
        wall_ms, reckoned_ms = _wall_ms(), self._began_ms + self._monotonic_ms()
        return wall_ms if reckoned_ms - wall_ms <= STEP_MS_MAX else reckoned_ms


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
