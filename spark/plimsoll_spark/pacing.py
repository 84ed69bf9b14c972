"""The rate of a drive over time. Pure.

Called by `drive` and `producer`. A pace is open loop: it says how many records should have been
sent after so much time, and never waits for the log.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,6})([smhd])")


def seconds(duration: str) -> int:
    """Parse a duration such as `90s` or `5m`. Raises ValueError for any other text."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration!r} is not a duration; write one such as 90s, 5m or 1h")
    return int(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True, slots=True)
class Pace:
    """Steps of (seconds, records per second), one after the other. The last step may last
    forever (`math.inf`)."""

    steps: tuple[tuple[float, float], ...]

    @classmethod
    def steady(cls, records_per_second: float) -> Pace:
        """Return one rate for the whole drive."""
        return cls(((math.inf, records_per_second),))

    def shared(self, producers: int) -> Pace:
        """Return the pace of one of `producers` that share this one: the same steps, each rate
        divided by their number."""
        return Pace(tuple((span_s, rate / producers) for span_s, rate in self.steps))

    @property
    def highest(self) -> float:
        """Return the highest rate, in records per second."""
        return max(rate for _, rate in self.steps)

    def after(self, records: int) -> Pace:
        """Return the pace after the first `records` records: the rest of the step in which these
        end, then the later steps. If all steps together have fewer records, return the last
        step."""
        left = float(records)
        for number, (span_s, rate) in enumerate(self.steps):
            if left < span_s * rate:
                rest = (span_s - left / rate, rate)
                return Pace((rest, *self.steps[number + 1 :]))
            left -= span_s * rate
        return Pace(self.steps[-1:])

    def due(self, elapsed_s: float) -> int:
        """Return how many records should have been sent `elapsed_s` seconds after the start: the
        first at once, and no more after the last step's end."""
        sent, left_s = 0.0, max(0.0, elapsed_s)
        for span_s, rate in self.steps:
            sent += min(left_s, span_s) * rate
            left_s -= span_s
            if left_s <= 0:
                break
        return int(sent) + 1
