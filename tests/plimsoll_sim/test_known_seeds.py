"""A mutant whose known seeds notice nothing any more is said with the command that mends it: until
then every run of the simulation tier searches anew, for minutes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_sim.mutants_check import TIMEOUT_S, noticed

from plimsoll_sim.mutants.kills_table import known

RUNS_MAX = 12
"""Of a mutant, until a seed notices it.  A change of the core shifts some seeds, and the next ones
cost seconds; above this many they are worth a commit."""


def stale(found: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The names of mutants that took more runs than that, and more than there are known seeds."""
    limits = {name: max(RUNS_MAX, len(one["kills"])) for name, one in before.items()}
    return [name for name, one in found.items() if one["tried"] > limits.get(name, RUNS_MAX)]


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_mutants_are_noticed_by_seeds_that_are_known_or_soon_after() -> None:
    found, _ = noticed()
    names = stale(found, known())
    runs = ", ".join(f"{name}: {found[name]['tried']} runs" for name in names)
    command = f"python -m plimsoll_sim.mutants --check --write {' '.join(names)}"
    assert not names, f"write their known seeds anew by `{command}` ({runs})"


def test_mutant_that_took_long_is_stale_and_one_that_took_a_few_runs_is_not() -> None:
    before = {name: {"kills": [{"seed": 1}, {"seed": 2}]} for name in ("fresh", "shifted", "stale")}
    found = {"fresh": {"tried": 1}, "shifted": {"tried": 3}, "stale": {"tried": RUNS_MAX + 1}}
    assert stale(found, before) == ["stale"]
