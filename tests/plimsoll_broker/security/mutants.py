"""Tests of the tests: each guard of logins and rights is removed, and a test must notice.

`python -m tests.plimsoll_broker.security.mutants` runs each mutant's tests, which must fail; the
unit tier checks that each mutant still applies. `mutants.txt` lists them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from plimsoll_sim.mutants.mutant import Mutant, become, read

HERE = "tests/plimsoll_broker/security/"
TIMEOUT_S = 300

MUTANTS = read(Path(__file__).with_name("mutants.txt"))


def file_of(mutant: Mutant) -> str:
    """Return the file of tests that notices it, from the project's root."""
    (file,) = mutant.noticed_by
    return file if "/" in file else HERE + file


def killed(number: int) -> bool:
    """Return True if a test of the mutant fails."""
    command = [sys.executable, "-m", __spec__.name, str(number)]  # type: ignore[name-defined]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode == 1 and " failed" in done.stdout


def main(arguments: list[str]) -> int:
    if arguments:
        mutant = MUTANTS[int(arguments[0])]
        become(mutant)
        import pytest

        return int(pytest.main(["-q", "-x", "--no-header", file_of(mutant)]))
    alive = 0
    for number, mutant in enumerate(MUTANTS):
        dead = killed(number)
        alive += not dead
        print(
            f"{'killed' if dead else 'ALIVE '}  {mutant.name}  {Path(file_of(mutant)).name}",
            flush=True,
        )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
