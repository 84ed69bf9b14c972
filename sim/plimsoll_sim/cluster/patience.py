"""The time that a healed cluster has to converge."""

from __future__ import annotations

from dataclasses import dataclass

HEALED_US_MAX = 1_000_000_000
WAIT_STEPS_MAX = 200_000
"""A move at 200 bytes a second (`faults.reassignments`) takes some minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The most virtual time, and the most steps, until an expected condition must hold."""

    us_max: int = HEALED_US_MAX
    steps_max: int = WAIT_STEPS_MAX
