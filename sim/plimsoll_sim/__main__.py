"""`python -m plimsoll_sim --seed N`: one run, or many; prints what a failure needs to be repeated.

    python -m plimsoll_sim --seed 7                 one run, with what was drawn
    python -m plimsoll_sim --seed 7 --events        and every event
    python -m plimsoll_sim --seeds 1..1000 --jobs 2 many, with a progress bar

Exit codes: 0 all held, 2 usage, 10 a safety predicate was violated, 11 something never came about,
12 a process crashed.
"""

from __future__ import annotations

import argparse
import sys

from plimsoll_sim.many import run_many
from plimsoll_sim.run import EXIT_CODES, Result, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="plimsoll_sim", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", metavar="A..B")
    parser.add_argument("--steps", type=int, default=4_000, help="of chaos, before healing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--events", action="store_true", help="print every event")
    parser.add_argument("--logs", action="store_true", help="and what the processes log")
    arguments = parser.parse_args()
    if arguments.seeds:
        first, _, last = arguments.seeds.partition("..")
        return run_many(range(int(first), int(last) + 1), arguments.steps, arguments.jobs)
    if arguments.seed is None:
        parser.error("--seed N or --seeds A..B")
    result = run(arguments.seed, arguments.steps, logs=arguments.logs)
    show(result, events=arguments.events)
    return EXIT_CODES[result.outcome]


def show(result: Result, *, events: bool) -> None:
    """One run, for people."""
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
        print(f"\n{result.sentence}\nagain: python -m plimsoll_sim --seed {result.seed} --events")


if __name__ == "__main__":
    sys.exit(main())
