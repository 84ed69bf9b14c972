"""A broker that did not run for a while reads what its followers sent before it judges them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.plimsoll_broker.trio import WAIT_S, Broker

from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_core.late_timers import READ_MS


async def test_late_lag_check_waits_for_socket_reads(
    broker: Callable[[int], Broker],
) -> None:
    manager = (await broker(0).start()).manager
    upkeep, now_ms = PeriodicChores(manager), manager.now_ms
    checked_ms = asyncio.get_running_loop().create_future()

    async def check() -> None:
        checked_ms.set_result(now_ms())

    (lag,) = (one for one in upkeep._chores["waiting and lag"] if one.run == upkeep._check_lag)
    began_ms, lag.run = now_ms(), check
    lag.due_ms = began_ms - 2_000
    keeping = asyncio.ensure_future(upkeep._keep([lag]))
    async with asyncio.timeout(WAIT_S):
        assert await checked_ms - began_ms >= READ_MS
    keeping.cancel()
