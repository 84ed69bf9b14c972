"""A record's cause as one of a few words, and whether somebody asked for it: pure.

Records explain themselves in sentences with numbers in them; metrics and alerts need a small, fixed
set of words.
"""

from __future__ import annotations

_PREFIXES = (
    ("fenced on proof", "fenced"),
    ("fenced after", "fenced"),
    ("fenced at its own wish", "fenced"),
    ("shutdown", "shutdown"),
    ("registration after a clean", "restart"),
    ("registration", "fenced"),
    ("isrshrinklag", "lag"),
    ("isrexpand", "caught-up"),
    ("storage", "storage"),
    ("recovery", "recovery"),
    ("reassignment", "reassignment"),
)
PLANNED = frozenset({"shutdown", "restart", "caught-up", "reassignment"})
OTHER = "other"
WORDS = tuple(sorted({found for _, found in _PREFIXES} | {OTHER}))


def word(cause: str) -> str:
    """The word for a record's cause."""
    text = cause.lower()
    for prefix, found in _PREFIXES:
        if text.startswith(prefix):
            return found
    return OTHER


def is_planned(found: str) -> bool:
    """Whether a change with this word was asked for, or is good news."""
    return found in PLANNED
