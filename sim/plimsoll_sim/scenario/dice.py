"""Loaded dice: in a scenario nothing happens by chance.

Every time is the least that it can be, nothing is split or lost, and a power cut leaves as much as
the scenario says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from plimsoll_sim.files import PowerCut

T = TypeVar("T")
ALL = 2**62


class Chosen(PowerCut):
    """Leaves so many bytes and so many changes of a directory, of those that were not synced; of
    what it leaves of a file the last `zeros` are no more than their number.  `uncut`: cuts that
    were not synced come undone."""

    def __init__(self, *, content: int, entries: int, zeros: int = 0, uncut: bool = False) -> None:
        self._content = content
        self._entries = entries
        self._zeros = zeros
        self._uncut = uncut

    def changes(self, count: int) -> int:
        return min(self._entries, count)

    def size(self, durable: int, size: int) -> int:
        return min(durable + self._content, size)

    def written(self, durable: int, size: int) -> int:
        return max(durable, size - self._zeros)

    def uncuts(self) -> bool:
        return self._uncut

    def reorders(self) -> bool:
        return False


class Dice(random.Random):
    """Bits stay seeded: what needs names that differ still gets them."""

    def random(self) -> float:
        return 0.999_999

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        first, end = (0, start) if stop is None else (start, stop)
        assert first < end
        return first

    def randint(self, a: int, b: int) -> int:
        return a

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[0]
