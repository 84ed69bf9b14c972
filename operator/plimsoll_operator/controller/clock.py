"""One clock for decisions: milliseconds since 1970 at the start of the process, then monotonic.

Sessions need a clock that never steps; records want times that mean something to a reader.  The
runtime reads it and passes values on; the core never sees a clock.
"""

from __future__ import annotations

import time


class Clock:
    """Starts at the wall clock's time and then only runs forward."""

    def __init__(self) -> None:
        self._anchor_ms = time.time_ns() // 1_000_000 - _monotonic_ms()

    def now_ms(self) -> int:
        return self._anchor_ms + _monotonic_ms()


def _monotonic_ms() -> int:
    # CLOCK_BOOTTIME keeps counting while the machine is suspended; sessions must expire then too.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
