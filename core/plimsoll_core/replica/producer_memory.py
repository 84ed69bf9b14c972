"""How many producers all logs of a broker remember together.

Each log's `ProducerStates` tells it of newcomers.  A log's own bound does not bound a broker: any
client may write with any number of producer ids to each partition, and what a broker knew when its
memory was full it would read back at each start.  When there are too many, the logs that know most
forget those that wrote to them longest ago, until each knows as many as any other at most.  Each
such log is gone through for that: a few at a time, while there is still room for those that come
meanwhile, since a broker with a large memory knows millions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

PRODUCER_BYTES = 1_152
"""What one takes with its last five batches, measured."""
PRODUCERS_ASSUMED = 2**30 // 8 // PRODUCER_BYTES
"""Of a broker whose memory nobody stated: an eighth of a gibibyte."""
AT_ONCE = 5_000
"""Producers that are gone through in one call: some milliseconds, and up to one log more."""


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
        # Logs that are still to forget, by their numbers, and how many each may know then.
        self._to_forget: list[int] = []
        self._most = 0
        # So many may come before they are counted again.  Those that go are not told.
        self._room = self._least_room

    @property
    def _least_room(self) -> int:
        """For those that come while logs forget."""
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
        """Forget a portion where that is due; all of it where more came than there is room for, as
        when logs that know many are opened."""
        logs = dict(self._logs)
        known = sum(map(len, logs.values()))
        enough = self.limit - self._least_room
        is_over = known > self.limit
        if is_over or (known > enough and not self._to_forget):
            self._most = _level([len(log) for log in logs.values()], self.limit * 3 // 4)
            self._to_forget = [number for number, log in logs.items() if len(log) > self._most]
        self._forget(logs, None if is_over else AT_ONCE)
        known = sum(map(len, logs.values()))
        self._room = max(enough - known, 0) + 1
        if self._to_forget:
            left = sum(len(logs[number]) for number in self._to_forget if number in logs)
            portions = left // AT_ONCE + 1
            self._room = max((self.limit - known) // (portions + 1), 1)

    def _forget(self, logs: Mapping[int, Remembers], at_once: int | None) -> None:
        gone_through = 0
        while self._to_forget and (at_once is None or gone_through < at_once):
            log = logs.get(self._to_forget.pop())
            if log is not None and len(log) > self._most:
                gone_through += len(log)
                log.forget_to(self._most)


def _level(sizes: Sequence[int], room: int) -> int:
    """The most that each may have, so that all of them have `room` together."""
    left = room
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return left // (len(ordered) - number)
        left -= size
    return max(ordered, default=0)
