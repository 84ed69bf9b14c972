"""How many producers all logs of a broker remember together.

Each log's `ProducerStates` tells it of newcomers.  A log's own bound does not bound a broker: any
client may write with any number of producer ids to each partition, and what a broker knew when its
memory was full it would read back at each start.  When there are too many, the logs that know most
forget those that wrote to them longest ago, until each knows as many as any other at most; where
there are more logs than producers that fit, those that were written to last keep one each.  Each
such log is gone through for that: a few at a time, while there is still room for those that come
meanwhile, since a broker with a large memory knows millions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

PRODUCER_BYTES = 1_152
"""What one takes with its last five batches, measured."""
PRODUCERS_ASSUMED = 2**30 // 8 // PRODUCER_BYTES
"""Of a broker whose memory nobody stated: an eighth of a gibibyte."""
AT_ONCE = 5_000
"""Producers that are gone through in one call: some milliseconds, and up to one log more."""
KEPT_MAX = AT_ONCE // 4
"""Of a log that is opened while the memory is full, at the cost of others: logs forget a quarter of
what they are gone through for, at least, where those that know most come first."""


class Remembers(Protocol):
    """One log's producers.  `written_at`: `ProducerMemory.came` when one of them wrote last."""

    written_at: int

    def __len__(self) -> int: ...

    def forget_to(self, most: int) -> None:
        """All but those that wrote last."""


class _Share(NamedTuple):
    """How many a log may know, by its number."""

    number: int
    most: int


class ProducerMemory:
    """`limit`: producers, each counted once for each log that it has written to."""

    def __init__(self, limit: int = PRODUCERS_ASSUMED) -> None:
        self.limit = limit
        # Grows with each newcomer.
        self.came = 0
        self._numbers = count()
        # Of logs that are open: one that is closed is in nobody's hands.
        self._logs: WeakValueDictionary[int, Remembers] = WeakValueDictionary()
        # Of logs that are still to forget, and `came` when that was found.
        self._to_forget: list[_Share] = []
        self._found_at = 0
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
        """It is open now, and knows no more than there is room for."""
        self._logs[next(self._numbers)] = log
        self.read_back(log)

    def join_evenly(self, log: Remembers) -> None:
        """One of many that are opened, at a start: it has its share of the others' room.  Nothing
        else may wait for it meanwhile, since all that are open may have to forget."""
        self._logs[next(self._numbers)] = log
        self.added(len(log))

    def read_back(self, log: Remembers) -> None:
        """It knows again what it wrote down, as far as there is room: those at least that wrote
        last, to its share.  For these others forget, a portion; not for all of them."""
        if (producers := len(log)) <= self._room:
            self.added(producers)
            return
        sizes = list(map(len, self._logs.values()))
        others = sum(sizes) - producers
        share = max(_level(sizes, self.limit * 3 // 4), 1)
        log.forget_to(max(self.limit - others, min(share, KEPT_MAX)))
        if others + len(log) > self.limit:
            self._count()
        else:
            self._room = 0  # the next newcomer has them counted: this was enough for one turn

    def added(self, producers: int) -> None:
        """By one of the logs."""
        self.came += producers
        self._room -= producers
        if self._room <= 0:
            self._count()

    def _count(self) -> None:
        """Forget a portion where that is due; more where more came than there is room for, as when
        logs that know many are opened."""
        logs = dict(self._logs)
        known = sum(map(len, logs.values()))
        enough = self.limit - self._least_room
        if known > self.limit or (known > enough and not self._to_forget):
            self.came += 1  # who writes from now on wrote after this
            self._to_forget, self._found_at = self._shares(logs), self.came
        known = self._forget(logs, known)
        self._room = max(enough - known, 0) + 1
        if self._to_forget:
            left = sum(len(logs[one.number]) for one in self._to_forget if one.number in logs)
            portions = left // AT_ONCE + 1
            self._room = max((self.limit - known) // (portions + 1), 1)

    def _shares(self, logs: Mapping[int, Remembers]) -> list[_Share]:
        """Of those that know more than that."""
        room = self.limit * 3 // 4
        if most := _level([len(log) for log in logs.values()], room):
            more = [number for number, log in logs.items() if len(log) > most]
            more.sort(key=lambda number: len(logs[number]))  # the last ones come first
            return [_Share(number, most) for number in more]
        oldest_first = sorted(
            (number for number, log in logs.items() if len(log)),
            key=lambda number: logs[number].written_at,
        )
        nobody = max(len(oldest_first) - room, 0)
        one = (_Share(number, 1) for number in oldest_first[nobody:] if len(logs[number]) > 1)
        return [*one, *(_Share(number, 0) for number in oldest_first[:nobody])]

    def _forget(self, logs: Mapping[int, Remembers], known: int) -> int:
        """How many are known then."""
        gone_through = 0
        while self._to_forget and (gone_through < AT_ONCE or known > self.limit):
            number, most = self._to_forget.pop()
            log = logs.get(number)
            if log is None or len(log) <= most:
                continue
            if not most and log.written_at >= self._found_at:
                continue  # it is not one of those that were written to longest ago any more
            before = len(log)
            gone_through += before
            log.forget_to(most)
            known -= before - len(log)
        return known


def _level(sizes: Sequence[int], room: int) -> int:
    """The most that each may have, so that all of them have `room` together."""
    left = room
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return left // (len(ordered) - number)
        left -= size
    return max(ordered, default=0)
