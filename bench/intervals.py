"""The difference between two sides that were measured in turns, with its interval."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

RESAMPLED = 4_000


def pooled(before: Sequence[float], later: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the sums of all rounds, and its 95 % interval: rounds are drawn with replacement
    (bootstrap), both sides of a round together, so that what both have in common does not count.
    The same figures give the same interval."""
    rounds = list(zip(before, later, strict=True))
    drawn = random.Random(len(rounds))
    found = sorted(_ratio(drawn.choices(rounds, k=len(rounds))) for _ in range(RESAMPLED))
    return _ratio(rounds), found[RESAMPLED // 40], found[-RESAMPLED // 40]


def ratios(before: Sequence[float], later: Sequence[float]) -> str:
    """Return the median (min - max) of the rounds' ratios, and that of all together with its
    interval."""
    each = [b / a for a, b in zip(before, later, strict=True)]
    whole, low, high = pooled(before, later)
    return (
        f"ratio {statistics.median(each):.3f} ({min(each):.3f} - {max(each):.3f}),"
        f" of all rounds {whole:.3f} (95 %: {low:.3f} - {high:.3f})"
    )


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} - {max(values):.1f})"


def compare(what: str, **sides: list[float]) -> None:
    """Both sides, and the second to the first, round by round."""
    (first, before), (second, later) = sides.items()
    told = f"{what}: {first} {spread(before)}, {second} {spread(later)}, {ratios(before, later)}"
    print(told, flush=True)


def _ratio(rounds: list[tuple[float, float]]) -> float:
    return sum(later for _, later in rounds) / sum(before for before, _ in rounds)
