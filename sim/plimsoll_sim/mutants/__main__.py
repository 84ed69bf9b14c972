"""`python -m plimsoll_sim.mutants`: removes each guard, and searches for runs that fail without it.

    python -m plimsoll_sim.mutants --write               all, into kills.json
    python -m plimsoll_sim.mutants NAME... --seeds 100   some, from seed 1 on
    python -m plimsoll_sim.mutants --apply               nothing runs: is each guard still found?
    python -m plimsoll_sim.mutants --scenarios           all, by their scenarios alone
    python -m plimsoll_sim.mutants --check               all, from the known seeds on
    python -m plimsoll_sim.mutants --check --write       and replaces seeds that no longer notice
    python -m plimsoll_sim.mutants --shorten --write     short runs where long ones are known

Exit codes: 0 every mutant was noticed, by a seed and by each scenario that is named for it; 1 some
were not; 2 usage, or a mutant of code that has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from plimsoll_sim.mutants import kills
from plimsoll_sim.mutants.hunt import LIVENESS, SHORT_STEPS, STEPS, Chase, Kill, Try, hunt
from plimsoll_sim.mutants.mutant import MUTANTS, TABLE, Mutant, compiled, edited_modules
from plimsoll_sim.mutants.tree_edits import Stale

KILLS = 2
"""Number of seeds to store for each mutant. More than one is stored, since seeds stop failing
whenever the code changes."""
MORE_SEEDS = 300
"""Number of seeds that `--check` tries after the stored ones."""
SHORT_SEEDS = 40
"""Number of seeds to try in short runs, before long ones."""


SHORT = [Try(SHORT_STEPS, seed) for seed in range(1, 1 + SHORT_SEEDS)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="plimsoll_sim.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="from 1 on, at most")
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="until so many fail")
    parser.add_argument("--jobs", type=int, default=1)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--apply", action="store_true", help="no runs: only make all mutants")
    how.add_argument("--scenarios", action="store_true", help="no random runs")
    how.add_argument("--check", action="store_true", help="one seed each, the known ones first")
    how.add_argument("--shorten", action="store_true", help="look for short runs that notice")
    parser.add_argument("--write", action="store_true", help="write down what was found")
    parser.add_argument("--json", action="store_true", help="print what was found")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - {mutant.name for mutant in MUTANTS})
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    mutants = [one for one in MUTANTS if not arguments.names or one.name in arguments.names]
    stale = [error for mutant in mutants if (error := _stale(mutant))]
    if stale or arguments.apply:
        print("".join(stale), end="", file=sys.stderr)
        return 2 if stale else 0
    chases = _chases(mutants, arguments)
    done = _nothing
    if arguments.write:
        partly = arguments.check or arguments.shorten or arguments.scenarios
        done = kills.renew if partly else kills.write
    hunt(chases, arguments.jobs, lambda line: print(line, file=sys.stderr, flush=True), done)
    if arguments.json:
        print(json.dumps(kills.as_json(chases)))
    return 0 if arguments.shorten else _judge(chases)


def _nothing(chase: Chase) -> None:
    """Ignore a result."""


def _stale(mutant: Mutant) -> str:
    """Return the reason why the mutant cannot be made from the present code, or ""."""
    try:
        for module in edited_modules(mutant).values():
            compiled(module)
    except Stale as error:
        return f"{error}; see {TABLE.name}\n"
    return ""


def _chases(mutants: Sequence[Mutant], arguments: argparse.Namespace) -> list[Chase]:
    known = kills.known()
    if arguments.shorten:
        return [one for mutant in mutants if (one := shorter(mutant, known.get(mutant.name)))]
    if arguments.check or arguments.scenarios:
        return [
            _check(mutant, known.get(mutant.name, {}), runs=arguments.check) for mutant in mutants
        ]
    tries = [*SHORT, *(Try(STEPS, seed) for seed in range(1, arguments.seeds + 1))]
    return [Chase(mutant=one, tries=tries, kills_max=arguments.kills) for one in mutants]


def _check(mutant: Mutant, known: dict[str, Any], *, runs: bool) -> Chase:
    return Chase(
        mutant=mutant,
        tries=_known_first(known.get("kills", [])) if runs and not mutant.rare else [],
        kills_max=1,
        check=True,
        stuck=frozenset(
            Try(kill["steps"], kill["seed"])
            for kill in known.get("kills", [])
            if kill["predicate"] == LIVENESS
        ),
        known_files=known.get("scenarios", {}),
    )


def shorter(mutant: Mutant, known: dict[str, Any] | None) -> Chase | None:
    """Return a search with short runs if only long ones are stored for the mutant. Return None if a
    stored run is short, or fails by liveness, which takes as long in a short run."""
    found = [Kill(**kill) for kill in (known or {}).get("kills", [])]
    if not found or any(one.steps <= SHORT_STEPS or one.predicate == LIVENESS for one in found):
        return None
    assert known is not None
    return Chase(mutant=mutant, tries=SHORT, kills_max=1, check=True, scenarios=known["scenarios"])


def _known_first(known: Sequence[dict[str, Any]]) -> list[Try]:
    """Return the stored runs, those that end soonest first. Failures of liveness take longest."""
    soon = sorted(known, key=lambda kill: (kill["predicate"] == LIVENESS, kill["steps"]))
    tries = [Try(kill["steps"], kill["seed"]) for kill in soon]
    return [*tries, *SHORT, *[Try(STEPS, seed) for seed in range(1, 1 + MORE_SEEDS)]]


def _judge(chases: Sequence[Chase]) -> int:
    for chase in chases:
        missed = [name for name, saw in chase.scenarios.items() if not saw]
        if chase.survived:
            print(f"{chase.mutant.name}: survived {chase.tried} seeds", file=sys.stderr)
        if not chase.scenarios:
            print(f"{chase.mutant.name}: no scenario is named for it", file=sys.stderr)
        if missed:
            print(f"{chase.mutant.name}: not noticed by {', '.join(missed)}", file=sys.stderr)
    return 0 if all(chase.noticed for chase in chases) else 1


if __name__ == "__main__":
    sys.exit(main())
