"""Reads and writes `kills.json`: the seeds and scenarios that fail with each mutant, which a check
tries first.

`python -m plimsoll_sim.mutants --write` writes the file; with `--check`, only entries that no
longer fail (`make mutants`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plimsoll_sim.mutants.hunt import Chase, Kill
from plimsoll_sim.mutants.mutant import MUTANTS

FILE = Path(__file__).with_name("kills.json")


def known() -> dict[str, Any]:
    """Return the stored results, by mutant."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def as_json(chases: Iterable[Chase]) -> dict[str, Any]:
    """Return the results of these searches in the form of the file, by mutant."""
    return {
        chase.mutant.name: {
            "tried": chase.tried,
            "kills": [asdict(kill) for kill in chase.kills],
            "scenarios": chase.scenarios,
        }
        for chase in chases
    }


def write(chase: Chase) -> None:
    """Replace the entry of the chase's mutant; drop entries of mutants that no longer exist."""
    now = known() | as_json([chase])
    lines = [f'"{one.name}": {json.dumps(now[one.name])}' for one in MUTANTS if one.name in now]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def renew(chase: Chase) -> None:
    """Update a mutant's entry after a check. New runs replace those that no longer fail or take
    longer. A check runs no more scenarios than it must, so the stored scenarios stay."""
    old = known().get(chase.mutant.name, {"kills": [], "scenarios": {}})
    runs = {(kill["seed"], kill["steps"]) for kill in old["kills"]}
    unknown = [kill for kill in chase.kills if (kill.seed, kill.steps) not in runs]
    files = {name: old["scenarios"].get(name) or saw for name, saw in chase.scenarios.items()}
    if unknown or files != old["scenarios"]:
        kills = chase.kills if unknown else [Kill(**kill) for kill in old["kills"]]
        write(replace(chase, kills=kills, scenarios=files))
