"""A virtual environment with the wheel and what the wheel requires, made without any network.

What the wheel requires, directly or by way of others, is linked from the environment that runs the
tests; whatever else lies there stays unseen, so that a requirement that
`pyproject.toml` forgot is missing here as it would be for a user.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LIMIT_S = 120


def build_wheel(directory: Path) -> Path:
    """Of the sources beside this test; hatchling comes from the environment that runs the tests."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, *offline, "-w", str(directory), str(ROOT)], check=True, timeout=LIMIT_S)
    (wheel,) = directory.glob("plimsoll-*.whl")
    return wheel


def install_alone(wheel: Path, directory: Path) -> Path:
    """A fresh environment below `directory`; the path of its command `plimsoll`."""
    venv.create(directory, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python")]
    words = ["install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([*pip, *words], check=True, timeout=LIMIT_S)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))
    (installed,) = Distribution.discover(name="plimsoll", path=[str(site)])
    for found in required_by(installed):
        link(found, site)
    return directory / "bin" / "plimsoll"


def required_by(installed: Distribution) -> list[Distribution]:
    """Its closure of requirements without extras; one that is not installed here is an error."""
    found: dict[str, Distribution] = {}
    left = [installed]
    while left:
        for text in left.pop().requires or ():
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and name not in found:
                assert not requirement.extras, f"{requirement}: extras are not followed here"
                found[name] = distribution(name)
                left.append(found[name])
    return list(found.values())


def link(found: Distribution, site: Path) -> None:
    """Its modules and metadata into another environment; its commands stay where they are."""
    for name in sorted({path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}):
        target = site / name
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(name))))
