"""Prints what an extra of the distribution needs, one requirement a line: `requirements.py broker`.

Called while images are built, so that the libraries are a layer that does not change with our own
sources. `requirements.py build` prints what building the wheel needs. Standard library only.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extra: str) -> list[str]:
    content = tomllib.loads(pyproject.read_text())
    if extra == "build":
        return list(content["build-system"]["requires"])
    project = content["project"]
    return [*project["dependencies"], *project["optional-dependencies"][extra]]


if __name__ == "__main__":
    print("\n".join(requirements(Path("pyproject.toml"), sys.argv[1])))
