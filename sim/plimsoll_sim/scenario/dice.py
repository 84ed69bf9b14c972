"""Loaded dice: in a scenario nothing happens by chance.

Every time is the least that it can be, nothing is split or lost, and a power cut leaves of each
file as much as the scenario says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
ALL = 2**62


class Dice(random.Random):
    """`more`: how far above the least a choice goes where it can.  Bits stay seeded: what needs
    names that differ still gets them."""

    def __init__(self, seed: int = 0, more: int = 0) -> None:
        super().__init__(seed)
        self._more = more

    def __new__(cls, *args: Any, **kwargs: Any) -> Dice:
        return super().__new__(cls)

    def random(self) -> float:
        return 0.999_999

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        first, end = (0, start) if stop is None else (start, stop)
        return min(first + self._more, end - 1)

    def randint(self, a: int, b: int) -> int:
        return min(a + self._more, b)

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[0]
