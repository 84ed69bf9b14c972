"""Lives of a log, as many as are asked for: always the same ones, or new ones from a seed on.

`make storage FOR=600`, which runs `python -m tests.plimsoll_broker.storage.many_lives`; `--faults`
and `--without` say what happens in them.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.plimsoll_broker.storage.lives import FAULTS, Lives


def live(
    examples: int,
    steps: int,
    number: int | None = None,
    *,
    faults: frozenset[str] = frozenset(FAULTS),
    without: frozenset[str] = frozenset(),
    shrink: bool = True,
    of: type[Lives] = Lives,
) -> None:
    """So many lives of so many steps; without a number always the same ones."""
    made: type[Lives] = type("Lives", (of,), {"faults": faults, "without": without})
    if number is not None:
        made = seed(number)(made)  # type: ignore[arg-type]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=number is None,
        database=None,
        print_blob=False,
        verbosity=Verbosity.normal,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(made, settings=chosen)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.plimsoll_broker.storage.many_lives")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument(
        "--without", default="", help="what does not happen: retain_by_size, discard, …"
    )
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    faults = frozenset(given.faults.split(",")) - {""}
    without = frozenset(given.without.split(",")) - {""}
    assert faults <= set(FAULTS), f"faults are {', '.join(FAULTS)}"
    began, number = time.monotonic(), given.seed
    while time.monotonic() - began < given.seconds:
        print(f"seed {number}: 100 lives of up to {given.steps} steps", flush=True)
        live(100, given.steps, number, faults=faults, without=without, shrink=given.shrink)
        number += 1
    print(f"{100 * (number - given.seed)} lives, no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
