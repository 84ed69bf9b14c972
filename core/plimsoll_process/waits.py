"""Waits that end: for an event at most so long, and for a task that is cancelled.  And the failures
of tasks without a waiter."""

from __future__ import annotations

import asyncio
from typing import Any


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Return True if the event was set before `seconds` had passed; None waits for as long as it
    takes."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel it and wait for its end; a failure of its own is raised where its result is read."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def heard(made: asyncio.Future[Any]) -> None:
    """Mark a task's failure as retrieved, as its done callback. A waiter still gets the failure;
    without waiters it is ignored on purpose."""
    if not made.cancelled():
        made.exception()
