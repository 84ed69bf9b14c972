"""Draws of whole numbers and latencies, of which a run makes tens of thousands.

They equal the draws of `random.Random`, bit for bit, but leave out its three calls that check the
arguments every time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


def numbers_below(rng: random.Random, end: int) -> Callable[[], int]:
    """Return a function that draws as `rng.randrange(end)` does."""
    assert end > 0
    if type(rng) is not random.Random:
        return lambda: rng.randrange(end)  # loaded dice
    getrandbits, bits = rng.getrandbits, end.bit_length()

    def draw() -> int:
        drawn = getrandbits(bits)
        while drawn >= end:
            drawn = getrandbits(bits)
        return drawn

    return draw


def numbers_between(rng: random.Random) -> Callable[[int, int], int]:
    """Return a function that draws as `rng.randint` does."""
    if type(rng) is not random.Random:
        return rng.randint
    getrandbits = rng.getrandbits

    def draw(least: int, most: int) -> int:
        width = most - least + 1
        assert width > 0
        bits = width.bit_length()
        drawn = getrandbits(bits)
        while drawn >= width:
            drawn = getrandbits(bits)
        return least + drawn

    return draw


class LatencyUs(NamedTuple):
    """Least and greatest latency in virtual microseconds. Each one is drawn uniformly between the
    two."""

    least: int
    most: int


QUICK_US = LatencyUs(500, 5_000)
"""Latencies of an API server without faults."""
