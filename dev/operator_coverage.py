"""`make coverage-operator`: measures which lines of the operator's deciding modules are executed in
simulated runs.

It makes eighteen runs of the simulator: three of each profile that is about the operator, and three
of any profile. The exit code is not 0 if they execute a smaller share of the lines than
`LEAST_PERCENT`.
"""

import logging
import sys
import warnings
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("reconcile", "leadership", "controller", "status")
PROFILES = ("objects", "members", "rolls", "moves", "log", None)
SEEDS = range(1, 4)
STEPS = 3_000
LEAST_PERCENT = 80.0


def main() -> int:
    found = ROOT / "operator" / "plimsoll_operator"
    measured = coverage.Coverage(
        source=[str(found / room) for room in ROOMS], data_file=None, config_file=False
    )
    measured.start()
    from plimsoll_sim.runs.run import run

    failed = 0
    for profile in PROFILES:
        for seed in SEEDS:
            result = run(seed, STEPS, profile=profile)
            failed += bool(result.sentence)
            print(f"profile {profile or 'any'}, seed {seed}: {result.outcome}", flush=True)
    measured.stop()
    percent = measured.report(skip_covered=True, file=sys.stdout)
    print(f"{percent:.1f} % of the lines of {', '.join(ROOMS)}; at least {LEAST_PERCENT:.0f} %")
    return 1 if failed or percent < LEAST_PERCENT else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.exit(main())
