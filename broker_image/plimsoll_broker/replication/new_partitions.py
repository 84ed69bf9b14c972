"""Opener: opens new partitions in time slices, so that a topic of thousands does not hold the loop.

`Roles` hands over the partitions of a new image; `Opener.run` is one of the broker's tasks. Until
it is opened, a partition is answered like one that is led elsewhere, and clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_core.cluster.model import PartitionKey


class Opener:
    """`open_now` opens a partition if it is still to be opened."""

    def __init__(self, open_now: Callable[[PartitionKey], None]) -> None:
        self._open_now = open_now
        self._later: dict[PartitionKey, None] = {}
        self._anything = asyncio.Event()

    def put_off(self, key: PartitionKey) -> None:
        """Open the partition when its turn comes."""
        self._later[key] = None
        self._anything.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._anything.wait()
            self._anything.clear()
            later, self._later = self._later, {}
            async for key in in_slices(later):
                self._open_now(key)
