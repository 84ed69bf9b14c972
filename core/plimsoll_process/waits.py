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
    """Cancel a task and wait until it has ended. An exception of the task is not raised here."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def heard(made: asyncio.Future[Any]) -> None:
    """Mark a task's exception as retrieved; used as its done callback. A waiter still gets the
    exception; without a waiter it is ignored on purpose."""
    if not made.cancelled():
        made.exception()
