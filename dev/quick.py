"""`make quick`: the tests to run before a commit, in about 100 s of processor time on two
processors.

The gates of `dev/check.sh` and a few simulated clusters run beside the unit tests, of which
pytest-xdist runs two files at a time. Left out: unit tests with the mark `slow` (over half a second
of processor time), those of the alerts, and every other tier of `make test`.
"""

import subprocess
import sys
import time

from dev.tier_lanes import ROOT, TIERS
from dev.tiers import LOGS, PYTHON, environment

LIMIT_S = 1_200
"""Bound on the seconds of a run, on a busy machine."""
(UNIT,) = (tier for tier in TIERS if tier.name == "unit")
# The gates run tests/test_tidy.py themselves.
TESTS = [
    *(PYTHON, "-m", "pytest", "-q", "--no-header", "-n", "2", "--dist", "loadfile"),
    *("-m", f"{UNIT.selection(long=False)} and not slow", "tests"),
    *(f"--ignore={path}" for path in ("tests/test_tidy.py", *UNIT.ignored)),
]
SEEDS = f"{PYTHON} -W ignore -m plimsoll_sim --seeds 1..4 --steps 1000"
BESIDE = ["bash", "-c", f"dev/check.sh; gates=$?; {SEEDS} && exit $gates"]


def main() -> int:
    began = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / "quick-check.log"
    with log.open("w") as output:
        beside = subprocess.Popen(BESIDE, cwd=ROOT, stdout=output, stderr=output, env=environment())
    try:
        tests = subprocess.run(TESTS, cwd=ROOT, timeout=LIMIT_S, check=False, env=environment())
        codes = {"unit tests": tests.returncode, "gates or simulator": beside.wait(LIMIT_S)}
    finally:
        beside.kill()
        print(log.read_text(errors="replace"), end="")
    failed = ", ".join(name for name, code in codes.items() if code)
    print(
        f"make quick: {failed or 'ok'}{' failed' * bool(failed)} ({time.monotonic() - began:.0f} s)"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
