"""The clocks of an operator's process, in milliseconds.

Read here and handed in: `__main__` and local mode give them to what reconciles, leads and writes
status, and the simulator gives it its own.  The controller decides by another clock
(`controller.decision_clock`), which never steps.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Since 1970, as the machine believes; may step."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Since some moment; never steps, and means nothing to another process."""
    return time.monotonic_ns() // 1_000_000
