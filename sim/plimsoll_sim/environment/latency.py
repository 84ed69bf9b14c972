"""The time that a packet, or a call of the API server, takes."""

from __future__ import annotations

from typing import NamedTuple


class LatencyUs(NamedTuple):
    """Virtual microseconds; each time is drawn evenly between the two."""

    least: int
    most: int


QUICK_US = LatencyUs(500, 5_000)
"""An API server that is well."""
