"""Long work in the event loop, cut up so that others have their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.01
"""For so long work goes on before others have their turn."""
AT_ONCE = 200
"""Nor on more than this, however quick it is."""


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Each of them.  What is true of one may have changed when the next one comes."""
    until_s = time.monotonic() + SLICE_S
    for number, item in enumerate(items, 1):
        yield item
        if number % AT_ONCE == 0 or time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S
