"""What a theme is, and what most of them choose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """`faults` and their weights; `choices` by the name of an option."""

    faults: dict[str, int]
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)


CLOSE = {
    "fault_gap_ms": (1_500, 4_000),
    "burst": (0.3, 0.6),
    "nervous": (0.1, 0.3),
    "at_once": (1, 2),
    "heal_ms": (500, 2_000),
}
STORY = {**CLOSE, "fault_gap_ms": (400, 1_500), "nervous": (0.0,), "at_once": (1,)}
"""Stories follow each other, and little else goes on."""
THREE = {"brokers": (3, 3, 4), "replication_factor": (3,), "min_isr": (1, 2)}
ACKED = (((-1, True), (-1, True)), ((-1, True), (-1, False), (1, False)))
