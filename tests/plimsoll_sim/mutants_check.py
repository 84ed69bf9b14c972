"""One check of all mutants (`plimsoll_sim.mutants --check`), for all tests of a session."""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

TIMEOUT_S = 3_000


@cache
def noticed() -> tuple[dict[str, Any], str]:
    """All in one process, whose children are the mutants; and what it says meanwhile."""
    command = [sys.executable, "-W", "ignore", "-m", "plimsoll_sim.mutants", "--check", "--json"]
    jobs = str(os.cpu_count() or 1)
    done = subprocess.run([*command, "--jobs", jobs], capture_output=True, timeout=TIMEOUT_S)
    said = done.stderr.decode()
    assert done.returncode in (0, 1), said
    found: dict[str, Any] = json.loads(done.stdout)
    return found, said
