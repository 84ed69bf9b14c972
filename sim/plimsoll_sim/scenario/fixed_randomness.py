"""Replacement of randomness by fixed choices, so that nothing in a scenario happens by chance.

Every duration is the least possible one, no data is split or lost, and a power cut leaves as much
as the scenario states.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from plimsoll_sim.environment.simulated_disk import PowerCut

T = TypeVar("T")
ALL = 2**62


class Chosen(PowerCut):
    """A power cut that leaves the stated number of unsynced bytes and of changes of a directory.
    The last `zeros` of a file's bytes are zeros. `uncut`: unsynced truncations are undone. `back`:
    all changes of names with this ending are undone; changes of other names follow `entries`."""

    def __init__(
        self, *, content: int, entries: int, zeros: int = 0, uncut: bool = False, back: str = ""
    ) -> None:
        self._content = content
        self._entries = entries
        self._back = back
        self._zeros = zeros
        self._uncut = uncut

    def changes(self, count: int, name: str) -> int:
        stays = self._back and name.endswith(self._back)
        return 0 if stays else min(self._entries, count)

    def size(self, durable: int, size: int) -> int:
        return min(durable + self._content, size)

    def written(self, durable: int, size: int) -> int:
        return max(durable, size - self._zeros)

    def uncuts(self) -> bool:
        return self._uncut

    def reorders(self) -> bool:
        return bool(self._back)


class Dice(random.Random):
    """A random generator that always makes the least choice. Bits stay seeded, since some names
    must differ."""

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
