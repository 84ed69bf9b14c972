"""The clock of the controller's decisions: milliseconds since 1970, read once when the clock is
made and monotonic from then on.

Sessions of brokers need a clock that never steps, and records need times that mean something to a
reader. `controller_term` reads this clock and passes the values to the core, which has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from plimsoll_operator.process_clocks import wall_ms

DRAIN_TURNS = 5


class Clock:
    """Clock of milliseconds since 1970: it starts at the wall clock's time and then advances with
    the monotonic clock, also while the machine is suspended."""

    def __init__(self) -> None:
        self._anchor_ms = wall_ms() - _monotonic_ms()

    def now_ms(self) -> int:
        return self._anchor_ms + _monotonic_ms()


def _monotonic_ms() -> int:
    # CLOCK_BOOTTIME keeps counting while the machine is suspended; sessions must expire then too.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


async def tick_forever(clock: Clock, interval_ms: int, tick: Callable[[int], None]) -> None:
    """Call `tick` `interval_ms` milliseconds after its last call, until cancelled, with the delay
    of the call in milliseconds. Before each call the event loop runs a few turns, so that
    heartbeats that wait in the sockets are read before a broker counts as silent."""
    due_ms = clock.now_ms() + interval_ms
    while True:
        await asyncio.sleep(max(0, due_ms - clock.now_ms()) / 1000)
        for _ in range(DRAIN_TURNS):
            await asyncio.sleep(0)
        # Read after these loop iterations: the process may have been stopped during one.
        tick(max(0, clock.now_ms() - due_ms))
        due_ms = clock.now_ms() + interval_ms
