"""The deadlines of one shard, in a heap. Reads no clock.

A decision sets and clears deadlines; the broker's group shard waits for the earliest and submits an
operation for each that is due. They are lost with the shard: the next coordinator starts them anew.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count

_STALE_PARTS = 2
"""The heap is rebuilt when more than 1/_STALE_PARTS of its entries are out of date."""
_SMALL = 64


class Deadlines:
    """The times at which a shard's operations are due, by key. A key has at most one deadline;
    setting it again replaces the former one."""

    __slots__ = ("_at_ms", "_heap", "_numbers")

    def __init__(self) -> None:
        # When each key is due, in the caller's milliseconds.
        self._at_ms: dict[Hashable, int] = {}
        # (due at, number, key): entries that no longer match `_at_ms` are stepped over.
        self._heap: list[tuple[int, int, Hashable]] = []
        # In which order keys with the same time were set.
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._at_ms

    def set(self, key: Hashable, at_ms: int) -> None:
        if self._at_ms.get(key) == at_ms:
            return
        self._at_ms[key] = at_ms
        heappush(self._heap, (at_ms, next(self._numbers), key))
        if len(self._heap) > max(_SMALL, _STALE_PARTS * len(self._at_ms)):
            self._heap = [entry for entry in self._heap if self._at_ms.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def clear(self, key: Hashable) -> None:
        self._at_ms.pop(key, None)

    def earliest_ms(self) -> int | None:
        """Return the time of the next deadline, or None if there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, at_most: int) -> list[Hashable]:
        """Remove and return up to `at_most` keys that are due at `now_ms`, the earliest first."""
        due: list[Hashable] = []
        while len(due) < at_most:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now_ms:
                break
            key = heappop(self._heap)[2]
            del self._at_ms[key]
            due.append(key)
        return due

    def _drop_stale(self) -> None:
        while self._heap and self._at_ms.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
