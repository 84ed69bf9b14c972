"""`kills.json`: the seeds and scenarios that notice each mutant, where the test starts from.

Written by `python -m plimsoll_sim.mutants --write`; with `--check`, only entries that no longer
hold (`make mutants`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plimsoll_sim.mutants.hunt import Chase, Kill
from plimsoll_sim.mutants.mutant import Mutant

KNOWN = Path(__file__).with_name("kills.json")


def known() -> dict[str, Any]:
    """Return the results of the last search by mutant."""
    found: dict[str, Any] = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    return found


def told(chases: Iterable[Chase]) -> dict[str, Any]:
    """Return the results as JSON has them."""
    return {
        chase.mutant.name: {
            "tried": chase.tried,
            "kills": [asdict(kill) for kill in chase.kills],
            "scenarios": chase.scenarios,
        }
        for chase in chases
    }


def write(mutants: Sequence[Mutant], chase: Chase) -> None:
    """Replace the chase's entry, keep those of other mutants, drop those of no mutant."""
    now = known() | told([chase])
    kept = {mutant.name: now[mutant.name] for mutant in mutants if mutant.name in now}
    KNOWN.write_text(json.dumps(kept, indent=1) + "\n")


def renew(mutants: Sequence[Mutant], chase: Chase) -> None:
    """Update a mutant's entry after a check. A new run replaces those that no longer notice it or
    take longer. A check plays no more scenarios than it must, so the known scenarios stay."""
    old = known().get(chase.mutant.name, {"kills": [], "scenarios": {}})
    runs = {(kill["seed"], kill["steps"]) for kill in old["kills"]}
    unknown = [kill for kill in chase.kills if (kill.seed, kill.steps) not in runs]
    files = {name: old["scenarios"].get(name) or saw for name, saw in chase.scenarios.items()}
    if unknown or files != old["scenarios"]:
        kills = chase.kills if unknown else [Kill(**kill) for kill in old["kills"]]
        write(mutants, replace(chase, kills=kills, scenarios=files))
