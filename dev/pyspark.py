"""`make pyspark`: the tests of the Spark data sources under another PySpark than the pinned one.

The other PySpark lies in an environment of its own in `.cache`, which takes all other packages from
`.venv`; the connector's jars and the class archive are copied there, too, so that neither run
undoes the other's.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST = "4.3.0"
"""The newest release that was tested; docs/verification.md names it."""
TESTS = ("tests/plimsoll_spark/test_sources.py",)
INSTALL_S, TESTS_S = 1_800, 3_600
LAYER = "plimsoll-base.pth"


def layered(place: Path, version: str) -> Path:
    """Return the interpreter of an environment with this PySpark, which is made if it is not
    there."""
    python = place / "bin" / "python"
    if not any(place.glob(f"lib/python*/site-packages/{LAYER}")):
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        command = [python, "-m", "pip", "install", "-q", f"pyspark=={version}"]
        subprocess.run(command, check=True, timeout=INSTALL_S)
        (packages,) = place.glob("lib/python*/site-packages")
        (base,) = (ROOT / ".venv").glob("lib/python*/site-packages")
        (packages / LAYER).write_text(f"import site; site.addsitedir({str(base)!r})\n")
    return python


def jars_for(place: Path) -> Path:
    """Return the folder of the jars for an environment, with those that are known already."""
    jars, known = place / "spark-jars", ROOT / ".cache" / "spark-jars"
    if known.exists() and not jars.exists():
        shutil.copytree(known, jars)
    return jars


def main(arguments: list[str]) -> int:
    """Run the tests. `arguments`: the version, `NEWEST` by default, then files for pytest."""
    version, *files = arguments or [NEWEST]
    place = ROOT / ".cache" / f"pyspark-{version}"
    python = layered(place, version)
    environment = {**os.environ, "PLIMSOLL_TEST_JARS": str(jars_for(place))}
    print(f"PySpark {version}", flush=True)
    command = [python, "-m", "pytest", "-q", *(files or TESTS)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, timeout=TESTS_S, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
