"""The broker's one clock: milliseconds that never step and never stand still.

The data path and the heartbeats read it; a simulator replaces `time`'s functions.
"""

from __future__ import annotations

import time

# CLOCK_BOOTTIME goes on while the machine is suspended: what was promised by others expires then.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
