"""Durations in specs, such as `30s` and `7d`: pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Duration = Annotated[str, Meta(min_length=2, max_length=8, pattern=r"^[1-9][0-9]{0,6}(s|m|h|d)$")]
"""A duration in a spec: a whole number of seconds, minutes, hours or days."""
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds(duration: str) -> int:
    """Return a duration in seconds: `90m` is 5400. The schema has checked the form."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]
