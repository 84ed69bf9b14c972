"""The clocks of an operator's process, in milliseconds.

`__main__` and local mode pass them to reconcilers, leadership and status writers; the simulator
passes its own. The controller decides by another clock (`controller.decision_clock`), which never
steps.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Return the machine's wall clock in milliseconds since 1970. It may step forward or back."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return milliseconds since an arbitrary origin of this process; they never step."""
    return time.monotonic_ns() // 1_000_000
