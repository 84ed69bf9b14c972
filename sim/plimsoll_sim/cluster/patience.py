"""How long a run waits for what should come about once everything is healed."""

from __future__ import annotations

from dataclasses import dataclass

HEALED_US_MAX = 1_000_000_000
WAIT_STEPS_MAX = 200_000
"""A move at 200 bytes a second (`faults.reassignments`) takes some minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Of virtual time and of steps: whatever should come about does so within both."""

    us_max: int = HEALED_US_MAX
    steps_max: int = WAIT_STEPS_MAX
