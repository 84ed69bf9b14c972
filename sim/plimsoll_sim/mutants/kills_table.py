"""What is known of the mutants: `kills.json`, where the test starts from, and a table in the docs.

Both are written by `python -m plimsoll_sim.mutants --write`, with `--check` only what is no longer
so (`make mutants`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plimsoll_sim.mutants.hunt import Chase, Kill
from plimsoll_sim.mutants.mutant import ROOT, Mutant

KNOWN = Path(__file__).with_name("kills.json")
PAGE = ROOT / "docs" / "simulation.md"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"
HEAD = """| taken out | rule | scenarios that notice | runs | noticed by seed | violated |
|---|---|---|---|---|---|
"""


def known() -> dict[str, Any]:
    """By mutant, what was found when it was last looked for."""
    found: dict[str, Any] = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    return found


def told(chases: Iterable[Chase]) -> dict[str, Any]:
    """What is found, as JSON has it."""
    return {
        chase.mutant.name: {
            "tried": chase.tried,
            "kills": [asdict(kill) for kill in chase.kills],
            "scenarios": chase.scenarios,
        }
        for chase in chases
    }


def write(mutants: Sequence[Mutant], chase: Chase) -> None:
    """Into both files; what is known of others stays, what is of no mutant goes."""
    now = known() | told([chase])
    kept = {mutant.name: now[mutant.name] for mutant in mutants if mutant.name in now}
    KNOWN.write_text(json.dumps(kept, indent=1) + "\n")
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "".join(_row(one, kept[one.name]) for one in mutants if one.name in kept)
    PAGE.write_text(f"{before}{BEGIN}{HEAD}{rows}{END}{after}")


def renew(mutants: Sequence[Mutant], chase: Chase) -> None:
    """After a check: a run that was found takes the place of those that no longer notice, or take
    longer.  Of the scenarios a check plays no more than it must, so those that are known stay."""
    old = known().get(chase.mutant.name, {"kills": [], "scenarios": {}})
    runs = {(kill["seed"], kill["steps"]) for kill in old["kills"]}
    unknown = [kill for kill in chase.kills if (kill.seed, kill.steps) not in runs]
    files = {name: old["scenarios"].get(name) or saw for name, saw in chase.scenarios.items()}
    if unknown or files != old["scenarios"]:
        kills = chase.kills if unknown else [Kill(**kill) for kill in old["kills"]]
        write(mutants, replace(chase, kills=kills, scenarios=files))


def _row(mutant: Mutant, found: dict[str, Any]) -> str:
    files = [
        f"**not {name}**" if not saw else ", ".join(saw) for name, saw in found["scenarios"].items()
    ]
    seeds = [str(kill["seed"]) for kill in found["kills"]]
    predicates = dict.fromkeys(kill["predicate"] for kill in found["kills"])
    cells = (
        f"`{mutant.name}`",
        mutant.rule,
        ", ".join(files) or "**none**",
        mutant.profile or "any",
        ", ".join(seeds) or f"**none of {found['tried']}**",
        ", ".join(predicates) or "–",
    )
    return f"| {' | '.join(cells)} |\n"
