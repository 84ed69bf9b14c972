"""Prints the Python requirements of an image, one a line: `requirements.py broker`.

`pyproject.toml` names the libraries of each image under [tool.plimsoll.images]; their versions
stand once, among the requirements of the distribution. Called while images are built, so that the
libraries are a layer that does not change with our own sources. `requirements.py build` prints the
requirements for building the wheel. It uses the standard library only.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

NAME = re.compile(r"[\w.-]+")


def requirements(pyproject: Path, image: str) -> list[str]:
    """Return the requirements of an image, with versions. Raises KeyError for an unknown image, and
    for a library that is not among the requirements of the distribution."""
    content = tomllib.loads(pyproject.read_text())
    if image == "build":
        return list(content["build-system"]["requires"])
    project = content["project"]
    known = _by_name(project["dependencies"])
    known |= _by_name(project["optional-dependencies"].get(image, ()))
    return [known[name] for name in content["tool"]["plimsoll"]["images"][image]]


def _by_name(requirements: Iterable[str]) -> dict[str, str]:
    found = ((NAME.match(one), one) for one in requirements)
    return {name[0]: one for name, one in found if name}


if __name__ == "__main__":
    print("\n".join(requirements(Path("pyproject.toml"), sys.argv[1])))
