"""The wall clock as retention may believe it: not after it has stepped.

Upkeep and coordinators ask before they look for what is too old.  A clock that was set a week ahead
would make every record old at once, here and, as followers begin where their leader does, on every
replica.  The clock that never steps says how far the wall clock should have come since the start;
when the two are further apart than clocks are ever slewed, neither can be trusted, and nothing is
deleted for its age until they agree again or the broker is started again.  Size-based retention
goes on.

What is stamped meanwhile is looked at later, by a clock that is right again, or another broker's.
So it gets the later one of both times: what is young must not look old.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("plimsoll.retention")

STEP_MS_MAX = 600_000


class WallClock:
    """`monotonic_ms`: the broker's clock that never steps."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._began_ms = _wall_ms() - monotonic_ms()
        self._believed = True

    def now_ms(self) -> int | None:
        """Milliseconds since the epoch; None while it is not to be believed."""
        wall_ms = _wall_ms()
        stepped_ms = wall_ms - self._monotonic_ms() - self._began_ms
        believed = abs(stepped_ms) <= STEP_MS_MAX
        if believed != self._believed:
            self._believed = believed
            if believed:
                logger.warning("wall clock back in sync: time-based retention resumed")
            else:
                logger.error(
                    "the wall clock stepped by %d ms: no record goes for its age until it is set "
                    "back, or this broker is started again",
                    stepped_ms,
                )
        return wall_ms if believed else None

    def stamp_ms(self) -> int:
        """The time of what is written now: the wall clock's, unless it was set back."""
        wall_ms, reckoned_ms = _wall_ms(), self._began_ms + self._monotonic_ms()
        return wall_ms if reckoned_ms - wall_ms <= STEP_MS_MAX else reckoned_ms


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
