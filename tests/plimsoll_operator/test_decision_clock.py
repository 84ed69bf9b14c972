"""How late the controller says that a tick is."""

import asyncio
from typing import cast

import pytest

from plimsoll_operator.controller.decision_clock import DRAIN_TURNS, Clock, tick_forever

INTERVAL_MS = 500
STOPPED_MS = 8_000


class Stopping:
    """A clock that shows how long the process was stopped in one turn of its event loop."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


@pytest.mark.parametrize("turn", range(DRAIN_TURNS))
async def test_tick_delay_includes_earlier_pauses(
    monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    clock, late = Stopping(), asyncio.get_running_loop().create_future()
    sleep, turns = asyncio.sleep, 0

    async def stopped(seconds: float) -> None:
        nonlocal turns
        await sleep(0)
        if seconds:
            clock.ms += INTERVAL_MS
            return
        clock.ms += STOPPED_MS if turns == turn else 0
        turns += 1

    monkeypatch.setattr(asyncio, "sleep", stopped)
    ticking = asyncio.ensure_future(
        tick_forever(cast("Clock", clock), INTERVAL_MS, late.set_result)
    )
    assert await late == STOPPED_MS
    ticking.cancel()
