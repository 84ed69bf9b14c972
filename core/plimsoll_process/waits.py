"""Helpers for asyncio waits: wait for an event with a timeout, wait for the end of a cancelled
task, and mark exceptions of tasks as retrieved.
"""

from __future__ import annotations

import asyncio
from typing import Any


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set, for at most `seconds` (None: without a limit). Return True if
    the event was set in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it has ended; return at once if it has ended already. An
    exception of the task is not raised here."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def heard(made: asyncio.Future[Any]) -> None:
    """Mark the exception of a finished task as retrieved, so that asyncio does not log it; used as
    the task's done callback. An awaiting caller still gets the exception."""
    if not made.cancelled():
        made.exception()
