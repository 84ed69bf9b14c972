"""Opener: opens new partitions within a share of each turn of the event loop.

Neither a topic of thousands nor thousands of topics hold the loop, whichever way they were created:
by Metadata, CreateTopics, CreatePartitions or objects. The owners of the topics take turns. Where
processors are short, the opener rests between two turns, as clients' long work does (`fair_work`).
`Roles` hands over the partitions of a new image; `Opener.run` is one of the broker's tasks.
Requests for a partition that is not open yet are answered as if another broker led it, and clients
retry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.quotas.principal_turns import PrincipalTurns

OPENING_S = 0.002
"""The time in seconds for which partitions are opened in one turn of the event loop. The one in
progress is then completed: a new log takes about a millisecond."""
OPENED_AT_ONCE = 10
"""The most partitions that are opened in one turn of the event loop."""
RESTS = 3
"""The duration of the opener's rest, as a multiple of the time for which the event loop's thread
waited for a processor while partitions were opened."""
REST_S_MAX = 0.01
"""The longest rest, in seconds, between two turns in which partitions are opened."""


class Opener:
    """Opens new partitions. Topics' owners take turns; the partitions of an owner are opened in the
    order in which they came. `open_now`: opens one partition, unless it is already open or no
    longer assigned to this broker. `owner_of`: returns the owner of a partition's topic."""

    def __init__(
        self,
        open_now: Callable[[PartitionKey], None],
        owner_of: Callable[[PartitionKey], str],
    ) -> None:
        self.thread_waited_ms: Callable[[], int] = lambda: 0
        """Returns the time in ms for which the event loop's thread has waited for a processor. The
        owner of the process replaces this function."""
        self._open_now = open_now
        self._owner_of = owner_of
        self._waiting: PrincipalTurns[PartitionKey, None] = PrincipalTurns()
        self._anything = asyncio.Event()
        # True if partitions were opened in this turn of the event loop: a clock cannot tell turns
        # apart. `_opened` counts them; `_until_s` is the end of the turn's share.
        self._began = False
        self._opened = 0
        self._until_s = 0.0

    def open(self, key: PartitionKey) -> bool:
        """Open the partition now and return True, if none waits and this turn of the event loop has
        room. Otherwise queue it and return False."""
        if self._waiting or not self._has_room():
            self.put_off(key)
            return False
        self._opened += 1
        self._open_now(key)
        return True

    def put_off(self, key: PartitionKey) -> None:
        """Queue the partition to be opened by `run`."""
        self._waiting.add(self._owner_of(key), key, None)
        self._anything.set()

    async def run(self) -> None:
        """Open the queued partitions, until cancelled."""
        while True:
            await self._anything.wait()
            self._anything.clear()
            while self._waiting:
                waited_ms = self.thread_waited_ms()
                while self._waiting and self._has_room():
                    self._opened += 1
                    self._open_now(self._waiting.take()[1])
                rest_s = RESTS * (self.thread_waited_ms() - waited_ms) / 1000
                await asyncio.sleep(min(rest_s, REST_S_MAX))

    def _has_room(self) -> bool:
        """Return True if a further partition may be opened in this turn of the event loop. The
        first call in a turn starts the turn's share."""
        if not self._began:
            self._began = True
            self._opened = 0
            self._until_s = time.monotonic() + OPENING_S
            asyncio.get_running_loop().call_soon(self._end_turn)
            return True
        return self._opened < OPENED_AT_ONCE and time.monotonic() < self._until_s

    def _end_turn(self) -> None:
        self._began = False
