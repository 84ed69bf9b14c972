"""`make quick`: what one runs before a commit, in 100 s of processor time on two processors.

Two lanes that take about as long: the gates of `dev/check.sh`, then most folders of unit tests;
and those of the broker and of the chart, then a few clusters of the simulator.  Of the unit tests,
those that are not slow (`dev/slow_tests.py`).  A step that fails does not stop the others.  Left
out: the slow unit tests, and every other tier of `make test`.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dev.slow_tests import UNIT
from dev.tier_lanes import MARKED
from dev.tiers import environment

ROOT = Path(__file__).resolve().parent.parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")
LOG = ROOT / ".cache" / "tests" / "quick-check.log"
LIMIT_S = 1_200
"""The limit of one step on a busy machine; a step that exceeds it is ended and counts as failed."""
TIMED_OUT = 124
UNIT_TESTS = [PYTHON, "-m", "pytest", "-q", "--no-header", "-p", "dev.slow_tests", "-m", UNIT]
FOLDERS = ["tests/plimsoll_broker", "tests/helm"]
"""The unit tests that take longest."""
# The gates run tests/test_tidy.py themselves.
OTHERS = ["tests", *(f"--ignore={one}" for one in ("tests/test_tidy.py", *MARKED, *FOLDERS))]
BEHIND = ["bash", "-c", 'dev/check.sh; gates=$?; "$@" && exit $gates', "quick"]
"""The lane with its output shown at the end: the gates, then the command behind it."""
SEEDS = [PYTHON, "-W", "ignore", "-m", "plimsoll_sim", "--seeds", "1..4", "--steps", "1000"]


def started(command: list[str], log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, so that it can be ended with its children."""
    kept = environment()
    if log is None:
        return subprocess.Popen(command, cwd=ROOT, start_new_session=True, env=kept)
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stdout=output, stderr=subprocess.STDOUT,
            env=kept,
        )  # fmt: skip


def ended(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Return the exit code; kill it with its children at the limit, and on an interrupt."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def verdict(codes: dict[str, int], seconds: float) -> int:
    """Prints it; the exit code."""
    failed = [name for name, code in codes.items() if code != 0]
    print(f"make quick: {', '.join(failed) + ' failed' if failed else 'ok'} ({seconds:.0f} s)")
    return 1 if failed else 0


def main() -> int:
    began = time.monotonic()
    LOG.parent.mkdir(parents=True, exist_ok=True)
    codes = {}
    behind = started([*BEHIND, *UNIT_TESTS, *OTHERS], LOG)
    try:
        codes["unit tests"] = ended(started([*UNIT_TESTS, *FOLDERS]), LIMIT_S)
        codes["simulator"] = ended(started(SEEDS), LIMIT_S)
    finally:
        # An interrupt must not leave the other lane running.
        left_s = LIMIT_S - (time.monotonic() - began) if len(codes) == 2 else 0
        codes["check or the other unit tests"] = ended(behind, max(left_s, 0))
    print(LOG.read_text(errors="replace"), end="")
    return verdict(codes, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
