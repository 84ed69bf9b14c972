"""The form of a profile, and values that most profiles share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of run: its faults and options. `options.draw` chooses what it leaves open."""

    faults: dict[str, int]
    """The faults that take part, by name, and how often each is drawn, relative to the others."""
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """The values from which an option is drawn, by its name in `RunOptions`."""


CLOSE = {
    "fault_gap_ms": (1_500, 4_000),
    "burst": (0.3, 0.6),
    "nervous": (0.1, 0.3),
    "at_once": (1, 2),
    "heal_ms": (500, 2_000),
}
STORY = {**CLOSE, "fault_gap_ms": (400, 1_500), "nervous": (0.0,), "at_once": (1,)}
"""Options of runs in which scripts follow one another, and few other faults happen."""
THREE = {"brokers": (3, 3, 4), "replication_factor": (3,), "min_isr": (1, 2)}
ACKED = (((-1, True), (-1, True)), ((-1, True), (-1, False), (1, False)))
