"""`python -m plimsoll_sim --seed N`: simulates one run, or many, and prints what is needed to
repeat a failure.

    python -m plimsoll_sim --seed 7                 one run, with what was drawn
    python -m plimsoll_sim --seed 7 --events        and every event
    python -m plimsoll_sim --seed 7 --shrink        with as few faults as still make it fail
    python -m plimsoll_sim --seeds 1..1000 --jobs 2 many, with a progress bar
    python -m plimsoll_sim --seeds 1..100 --profile groups    runs about one thing
    python -m plimsoll_sim --scenario FILE...       named scenarios; `--rewrite` their output
    python -m plimsoll_sim --verbs                  what a scenario may say
    python -m plimsoll_sim --seconds 600 --jobs 2   new seeds for as long as that

Exit codes: 0 all held, 2 usage, 10 a safety predicate was violated, 11 something never came about,
12 a process crashed, 13 a scenario did not come as written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from plimsoll_sim.runs.many import RunKind, run_for, run_many
from plimsoll_sim.runs.profiles.profile_table import PROFILES
from plimsoll_sim.runs.run import EXIT_CODES, Result, run
from plimsoll_sim.runs.shrink import shrink
from plimsoll_sim.scenario.runner import play_files, usage


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="plimsoll_sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", metavar="A..B")
    parser.add_argument("--steps", type=int, default=4_000, help="of chaos, before healing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, metavar="S")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="what the runs are about")
    parser.add_argument("--shrink", action="store_true", help="leave out faults while it fails")
    parser.add_argument("--only", metavar="N,N…", help="the faults that happen, by number")
    parser.add_argument("--events", action="store_true", help="print every event")
    parser.add_argument("--scenario", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--rewrite", action="store_true", help="write what came into the files")
    parser.add_argument("--verbs", action="store_true", help="print a scenario's verbs")
    parser.add_argument("--logs", action="store_true", help="and what the processes log")
    arguments = parser.parse_args()
    if arguments.verbs:
        print(usage())
        return 0
    if arguments.scenario:
        return play_files(arguments.scenario, rewrite=arguments.rewrite, events=arguments.events)
    if arguments.seconds is not None:
        kind = RunKind(arguments.steps, arguments.profile)
        return run_for(arguments.seconds, kind, arguments.jobs)
    if arguments.seeds:
        first, _, last = arguments.seeds.partition("..")
        kind = RunKind(arguments.steps, arguments.profile)
        return run_many(range(int(first), int(last) + 1), kind, arguments.jobs)
    if arguments.seed is None:
        parser.error("--seed N, --seeds A..B or --seconds S")
    only = frozenset(map(int, arguments.only.split(","))) if arguments.only else None
    if arguments.shrink:
        only = shrink(arguments.seed, arguments.steps, arguments.profile)
    seed, steps, profile = arguments.seed, arguments.steps, arguments.profile
    result = run(seed, steps, profile=profile, logs=arguments.logs, only=only)
    show(result, events=arguments.events)
    return EXIT_CODES[result.outcome]


def show(result: Result, *, events: bool) -> None:
    """Print the result of one run, for people. `events`: print every event too."""
    print(f"seed {result.seed}")
    print("\n".join(result.options))
    shown = result.events if events else result.events[-40:] if result.sentence else []
    print("\n".join(shown))
    print(
        f"{result.outcome}: {result.steps} steps, {result.virtual_s:.1f} s of virtual time, "
        f"digest {result.digest:08x}"
    )
    print(f"faults: {dict(result.faults)}")
    print(f"clients: {result.clients}")
    if result.sentence:
        struck = ",".join(map(str, result.struck))
        print(f"\n{result.sentence}")
        print(f"again: python -m plimsoll_sim --seed {result.seed} --events")
        print(f"or with fewer faults, such as --only {struck}; --shrink looks for them")


if __name__ == "__main__":
    sys.exit(main())
