"""Work that would hold up everything else, done in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Cancelled or not, it has ended when this returns: no other task touches its files meanwhile.

    What it raises is raised here also when the caller was cancelled: a sync that failed must not
    go unheard.  Then the caller is cancelled at its next wait instead.
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
    """A task that is cancelled, and gets an error instead, is cancelled at its next wait."""
    task = asyncio.current_task()
    assert task is not None, "only tasks are cancelled"
    task.uncancel()
    task.cancel()
