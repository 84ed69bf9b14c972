"""Runs work in a thread that would hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, and return only when it has ended, even if cancelled: no other task
    touches its files meanwhile.

    An error of the work is raised even if the caller was cancelled, since a failed sync must not go
    unnoticed. The caller is then cancelled at its next wait.
    """
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled = False
    while not thread.done():
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if thread.exception() is None:
            raise asyncio.CancelledError
        cancel_again()
    return thread.result()


def cancel_again() -> None:
    """Have a cancelled task that raises an error instead cancelled at its next wait."""
    task = asyncio.current_task()
    assert task is not None, "only tasks are cancelled"
    task.uncancel()
    task.cancel()
