"""Prints the contents of an image as JSON: Debian packages, Python distributions, jars.

The script runs inside the image (`docker run -i --entrypoint python3 IMAGE -
<dev/image_inventory.py`). Its rows become the components of the image's SBOM (`dev/sbom.py`). It
uses the standard library only.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

Row = dict[str, str]
DPKG_STATUS = Path("/var/lib/dpkg/status")
JAR_FOLDERS = (Path("/opt/jars"), Path("/opt/plimsoll"))
POM = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
NAME_AND_VERSION = re.compile(r"(.+?)-(\d[\w.+-]*)$")


def debian_packages(status: Path) -> Iterator[Row]:
    """Yield the packages that dpkg has installed; none on a system without dpkg."""
    text = status.read_text(errors="replace") if status.exists() else ""
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield {
                "kind": "deb",
                "name": fields["Package"],
                "version": fields["Version"],
                "architecture": fields.get("Architecture", ""),
            }


def python_distributions(path: list[str]) -> Iterator[Row]:
    """Yield all distributions in the folders of `path`."""
    for found in distributions(path=path):
        yield {
            "kind": "pypi",
            "name": found.metadata["Name"],
            "version": found.version,
            "licence": found.metadata.get("License-Expression") or "",
        }


def jars(folder: Path) -> Iterator[Row]:
    """Yield every jar below a folder. Its group is empty unless the jar's own Maven properties
    state it."""
    for path in sorted(folder.rglob("*.jar")):
        fields = _maven_properties(path)
        named = NAME_AND_VERSION.match(path.stem)
        yield {
            "kind": "maven",
            "group": fields.get("groupId", ""),
            "name": fields.get("artifactId") or (named[1] if named else path.stem),
            "version": fields.get("version") or (named[2] if named else ""),
        }


def _maven_properties(jar: Path) -> dict[str, str]:
    """Return the properties of the jar itself; a jar that bundles others has several, and the
    file's name decides."""
    with zipfile.ZipFile(jar) as archive:
        for name in filter(POM.fullmatch, archive.namelist()):
            text = archive.read(name).decode(errors="replace")
            fields = dict(re.findall(r"^(\w+)=(.*?)\s*$", text, re.MULTILINE))
            if jar.stem == f"{fields.get('artifactId')}-{fields.get('version')}":
                return fields
    return {}


def inventory() -> list[Row]:
    """Return the inventory of this file system, sorted, each row once."""
    rows = [*debian_packages(DPKG_STATUS), *python_distributions(sys.path)]
    for folder in JAR_FOLDERS:
        rows += jars(folder)
    return [dict(row) for row in sorted({tuple(sorted(row.items())) for row in rows})]


if __name__ == "__main__":
    print(json.dumps(inventory()))
