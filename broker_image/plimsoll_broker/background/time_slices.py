"""Cuts long work in the event loop into slices, so that other tasks run in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.01
"""How long work goes on before other tasks run."""
AT_ONCE = 200
"""The most items of one slice."""


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield each item, in slices. What holds for one item may have changed at the next."""
    until_s = time.monotonic() + SLICE_S
    for number, item in enumerate(items, 1):
        yield item
        if number % AT_ONCE == 0 or time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S
