"""Work that takes longer than one turn of the event loop: in a thread, or in slices between which
other tasks run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
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
    """Cancel the present task at its next wait. Called by a task that was cancelled and is about to
    raise another error than CancelledError, so that the cancellation is not lost."""
    task = asyncio.current_task()
    assert task is not None, "only tasks are cancelled"
    task.uncancel()
    task.cancel()


SLICE_S = 0.01
"""The longest time, in seconds, that a slice of work takes before other tasks run."""
AT_ONCE = 200
"""The most items that one slice handles before other tasks run."""


async def in_slices(
    items: Iterable[T], between: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[T]:
    """Yield each item, and let other tasks run after every SLICE_S seconds or AT_ONCE items. The
    caller must check its conditions anew for each item. `between`: awaited before each further
    slice, for example until the principal's turn; None if a slice may begin in the next turn of the
    event loop."""
    until_s = time.monotonic() + SLICE_S
    for number, item in enumerate(items, 1):
        yield item
        if number % AT_ONCE == 0 or time.monotonic() >= until_s:
            await (asyncio.sleep(0) if between is None else between())
            until_s = time.monotonic() + SLICE_S
