"""`make conformance`: runs every unmodified client and application, long suites too, against
Plimsoll and against Apache Kafka, and writes the results into the table of docs/compatibility.md.

`python -m dev.conformance -k connect` runs a part; cells of other parts stay unchanged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conformance import results

ROOT = Path(__file__).resolve().parent.parent
PATHS = (
    "tests/conformance",
    "tests/integration/test_groups.py",
    "tests/plimsoll_spark/test_structured_streaming.py",
)
TEST_S = 1800


def main(words: list[str]) -> int:
    """Run the tests with these arguments of pytest, write the table, and return pytest's exit
    code."""
    options = ["--full", "--beside-kafka", "--record", str(results.RESULTS)]
    options += ["-o", f"timeout={TEST_S}"]
    command = [sys.executable, "-m", "pytest", "-v", "--no-header", *options, *PATHS, *words]
    environment = {**os.environ, "PATH": f"{_go().parent}:{os.environ['PATH']}"}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    recorded = json.loads(results.RESULTS.read_text())
    document = results.document(results.DOCUMENT.read_text(), recorded)
    results.DOCUMENT.write_text(document)
    return code


def _go() -> Path:
    """Return the path of the command `go`. Install it, and a C compiler, if they are missing."""
    tools = [str(ROOT / "dev" / "conformance_tools.sh")]
    return Path(subprocess.run(tools, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
