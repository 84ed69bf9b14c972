"""How many producers all logs of a broker remember together.

Each log's `ProducerStates` tells it of newcomers.  A log's own bound does not bound a broker: any
client may write with any number of producer ids to each partition, and what a broker knew when its
memory was full it would read back at each start.  When there are too many, the logs that know most
forget those that wrote to them longest ago, until each knows as many as any other at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

PRODUCER_BYTES = 1_152
"""What one takes with its last five batches, measured."""
PRODUCERS_ASSUMED = 2**30 // 8 // PRODUCER_BYTES
"""Of a broker whose memory nobody stated: an eighth of a gibibyte."""


class Remembers(Protocol):
    """One log's producers."""

    def __len__(self) -> int: ...

    def forget_to(self, most: int) -> None:
        """All but those that wrote last."""


class ProducerMemory:
    """`limit`: producers, each counted once for each log that it has written to."""

    def __init__(self, limit: int = PRODUCERS_ASSUMED) -> None:
        self.limit = limit
        self._numbers = count()
        # Of logs that are open: one that is closed is in nobody's hands.
        self._logs: WeakValueDictionary[int, Remembers] = WeakValueDictionary()
        # So many may come before they are counted again.  Those that go are not told.
        self._room = self._least_room

    @property
    def _least_room(self) -> int:
        return max(self.limit // 8, 1)

    def bound(self, limit: int) -> None:
        """From now on."""
        self.limit = limit
        self._count()

    def join(self, log: Remembers) -> None:
        """It is open now."""
        self._logs[next(self._numbers)] = log
        self.added(len(log))

    def added(self, producers: int) -> None:
        """By one of the logs."""
        self._room -= producers
        if self._room <= 0:
            self._count()

    def _count(self) -> None:
        logs = list(self._logs.values())
        known = sum(map(len, logs))
        if known > self.limit - self._least_room:
            most = _level([len(log) for log in logs], self.limit * 3 // 4)
            for log in logs:
                if len(log) > most:
                    log.forget_to(most)
            known = sum(map(len, logs))
        self._room = max(self.limit - known, self._least_room)


def _level(sizes: Sequence[int], room: int) -> int:
    """The most that each may have, so that all of them have `room` together."""
    left = room
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return left // (len(ordered) - number)
        left -= size
    return max(ordered, default=0)
