"""`python -m plimsoll_sim.mutants`: takes each guard out, and looks for what notices.

    python -m plimsoll_sim.mutants --write               all, into kills.json
    python -m plimsoll_sim.mutants NAME... --seeds 100   some, from seed 1 on
    python -m plimsoll_sim.mutants --check               all, from the seeds that are known
    python -m plimsoll_sim.mutants --check --write       and those that no longer notice anew
    python -m plimsoll_sim.mutants --shorten --write     short runs where long ones are known

Exit codes: 0 every mutant was noticed, by a seed and by each scenario that is named for it; 1 some
were not; 2 usage, or a mutant of code that has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from plimsoll_sim.mutants.hunt import LIVENESS, SHORT_STEPS, STEPS, Chase, Kill, Try, hunt
from plimsoll_sim.mutants.kills_table import known, renew, told, write
from plimsoll_sim.mutants.mutant import Mutant, Stale, texts
from plimsoll_sim.mutants.mutant_table import MUTANTS

KILLS = 2
"""The number of seeds to remember: they shift whenever the code changes."""
MORE_SEEDS = 300
"""The number of seeds that `--check` tries after the known ones."""
SHORT_SEEDS = 40
"""The number of seeds to try in short runs, before the others."""


SHORT = [Try(SHORT_STEPS, seed) for seed in range(1, 1 + SHORT_SEEDS)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="plimsoll_sim.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="from 1 on, at most")
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="until so many fail")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="one seed each, the known ones first")
    parser.add_argument("--shorten", action="store_true", help="look for short runs that notice")
    parser.add_argument("--write", action="store_true", help="write down what was found")
    parser.add_argument("--json", action="store_true", help="print what was found")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in {mutant.name for mutant in MUTANTS}]
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    mutants = [one for one in MUTANTS if not arguments.names or one.name in arguments.names]
    whole = not (arguments.check or arguments.shorten)
    try:
        for mutant in MUTANTS:
            texts(mutant)
    except Stale as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.shorten:
        chases = [one for mutant in mutants if (one := shorter(mutant, known().get(mutant.name)))]
    elif arguments.check:
        chases = [_check(one, known().get(one.name, {})) for one in mutants]
    else:
        tries = [*SHORT, *(Try(STEPS, seed) for seed in range(1, arguments.seeds + 1))]
        chases = [Chase(mutant=one, tries=tries, kills_max=arguments.kills) for one in mutants]
    done = partial(write if whole else renew, MUTANTS) if arguments.write else _nothing
    hunt(chases, arguments.jobs, lambda line: print(line, file=sys.stderr, flush=True), done)
    if arguments.json:
        print(json.dumps(told(chases)))
    return 0 if arguments.shorten else _judge(chases)


def _nothing(chase: Chase) -> None:
    """Discard a result."""


def _check(mutant: Mutant, known: dict[str, Any]) -> Chase:
    return Chase(
        mutant=mutant,
        tries=_known_first(known.get("kills", [])) if mutant.by_chance else [],
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
    """Return a chase by short runs if only long ones are known; None if a known run is short or a
    liveness kill, which takes as long in a short run."""
    kills = [Kill(**kill) for kill in (known or {}).get("kills", [])]
    if not kills or any(one.steps <= SHORT_STEPS or one.predicate == LIVENESS for one in kills):
        return None
    assert known is not None
    return Chase(mutant=mutant, tries=SHORT, kills_max=1, check=True, scenarios=known["scenarios"])


def _known_first(kills: Sequence[dict[str, Any]]) -> list[Try]:
    """Return the known tries that end soonest first: liveness takes longest to notice."""
    soon = sorted(kills, key=lambda kill: (kill["predicate"] == LIVENESS, kill["steps"]))
    tries = [Try(kill["steps"], kill["seed"]) for kill in soon]
    return [*tries, *SHORT, *[Try(STEPS, seed) for seed in range(1, 1 + MORE_SEEDS)]]


def _judge(chases: Sequence[Chase]) -> int:
    for chase in chases:
        missed = [name for name, saw in chase.scenarios.items() if not saw]
        if not chase.kills and chase.mutant.by_chance:
            print(f"{chase.mutant.name}: survived {chase.tried} seeds", file=sys.stderr)
        if not chase.scenarios:
            print(f"{chase.mutant.name}: no scenario is named for it", file=sys.stderr)
        if missed:
            print(f"{chase.mutant.name}: not noticed by {', '.join(missed)}", file=sys.stderr)
    return 0 if all(chase.noticed for chase in chases) else 1


if __name__ == "__main__":
    sys.exit(main())
