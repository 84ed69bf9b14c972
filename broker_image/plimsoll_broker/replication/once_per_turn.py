"""Stepping: steps the touched partitions once, at the end of a turn of the event loop.

Owned by the replica manager. However many events a partition has in a turn, it commits, answers and
wakes once. Partitions beyond a portion wait for the next turn, in order, so that other tasks run in
between after an election of thousands, or after a record that a thousand consumers wait for.
Followers do not wait behind consumers: their fetches acknowledge.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from plimsoll_broker.background.time_slices import AT_ONCE, SLICE_S
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.log_writer import ParkedFetch

Woken = dict[ParkedFetch, None]


class Stepping:
    """`one` steps a partition and collects the fetches to wake after the portion."""

    def __init__(self, one: Callable[[Hosted, Woken], None]) -> None:
        self._one = one
        self._touched: dict[Hosted, None] = {}
        # Consumers' fetches to wake.
        self._woken: Woken = {}
        self._due = False

    def touch(self, hosted: Hosted) -> None:
        """Step the partition at the end of this turn."""
        if not self._due:
            self._come_back()
        self._touched[hosted] = None

    def _come_back(self) -> None:
        self._due = True
        asyncio.get_running_loop().call_soon(self.step)

    def step(self) -> None:
        """Step one portion. A bug here is on the commit path: it is not caught, and the loop's
        handler ends the process."""
        self._due = False
        touched, self._touched = self._touched, {}
        woken: Woken = {}
        until_s = time.monotonic() + SLICE_S
        left = iter(touched)
        for number, hosted in enumerate(left, 1):
            self._one(hosted, woken)
            if number >= AT_ONCE or time.monotonic() >= until_s:
                break
        if later := dict.fromkeys(left):
            self._touched = later | self._touched
        self._wake(woken)
        if not self._due and (self._touched or self._woken):
            self._come_back()

    def _wake(self, woken: Woken) -> None:
        for fetch in woken:
            if fetch.for_follower:
                fetch.wake()
            else:
                self._woken[fetch] = None
        waiting, self._woken = iter(self._woken), {}
        until_s = time.monotonic() + SLICE_S
        for number, fetch in enumerate(waiting, 1):
            fetch.wake()
            if number >= AT_ONCE or time.monotonic() >= until_s:
                break
        self._woken = dict.fromkeys(waiting)

    def finish(self) -> None:
        """Step all touched partitions now."""
        due = self._due
        while self._touched or self._woken:
            self.step()
        self._due = due or self._due
