"""Which partitions something happened to, stepped once at the end of a turn of the event loop.

Owned by the replica manager.  However much happened to a partition in a turn, it is committed,
answered and woken for once.  What is more than a portion waits for the next turn, in its order:
after an election of thousands others are heard in between, and after a record for which a thousand
consumers wait.  Followers do not wait behind those: what they are told, they acknowledge.
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
    """`one`: steps one partition and collects who is to be woken after all of a portion."""

    def __init__(self, one: Callable[[Hosted, Woken], None]) -> None:
        self._one = one
        self._touched: dict[Hosted, None] = {}
        # Consumers' fetches that are to be woken.
        self._woken: Woken = {}
        self._due = False

    def touch(self, hosted: Hosted) -> None:
        """Something happened to it: step it at the end of this turn."""
        if not self._due:
            self._come_back()
        self._touched[hosted] = None

    def _come_back(self) -> None:
        self._due = True
        asyncio.get_running_loop().call_soon(self.step)

    def step(self) -> None:
        """A portion.  A bug in here is on the commit path: it is not caught, and the loop's
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
        """All of them, now."""
        due = self._due
        while self._touched or self._woken:
            self.step()
        self._due = due or self._due
