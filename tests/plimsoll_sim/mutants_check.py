"""One check of all mutants (`python -m plimsoll_sim.mutants`), for all tests of a session."""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

TIMEOUT_S = 3_000


@cache
def noticed(how: str, *names: str) -> tuple[dict[str, Any], str]:
    """Return the results by mutant, of all or of those with these names, and the progress lines.
    `how` is `--scenarios` or `--check`. All mutants are children of one process."""
    command = [sys.executable, "-W", "ignore", "-m", "plimsoll_sim.mutants", *names, how, "--json"]
    jobs = str(os.cpu_count() or 1)
    done = subprocess.run([*command, "--jobs", jobs], capture_output=True, timeout=TIMEOUT_S)
    lines = done.stderr.decode()
    assert done.returncode in (0, 1), lines
    found: dict[str, Any] = json.loads(done.stdout)
    return found, lines
