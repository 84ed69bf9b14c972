"""A mutant whose known seeds no longer notice it fails with the command that replaces them. Until
then every check searches anew, for minutes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_sim.mutants_check import TIMEOUT_S, noticed

from plimsoll_sim.mutants.kills import known

RUNS_MAX = 12
"""The runs of a mutant until a seed notices it. A change of the core shifts some seeds, and the
next ones cost seconds; above this many they are worth a commit."""


def stale(found: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return the mutants that took more runs than that, and more than there are known seeds."""
    limits = {name: max(RUNS_MAX, len(one["kills"])) for name, one in before.items()}
    return [name for name, one in found.items() if one["tried"] > limits.get(name, RUNS_MAX)]


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_known_seeds_notice_their_mutants() -> None:
    found, _ = noticed("--check")
    names = stale(found, known())
    runs = ", ".join(f"{name}: {found[name]['tried']} runs" for name in names)
    command = f"python -m plimsoll_sim.mutants --check --write {' '.join(names)}"
    assert not names, f"write their known seeds anew by `{command}` ({runs})"


def test_mutant_is_stale_after_many_runs() -> None:
    before = {name: {"kills": [{"seed": 1}, {"seed": 2}]} for name in ("fresh", "shifted", "stale")}
    found = {"fresh": {"tried": 1}, "shifted": {"tried": 3}, "stale": {"tried": RUNS_MAX + 1}}
    assert stale(found, before) == ["stale"]
