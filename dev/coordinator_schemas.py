"""`python dev/coordinator_schemas.py --write`: generates code from the schemas of the records in
Kafka's internal topics.

kio has Kafka's requests and responses, but not the records inside `__consumer_offsets` and
`__transaction_state`: their schemas lie in the jars of Kafka's coordinators. This script fetches
the jars with Maven and writes `core/plimsoll_wire/coordinator_schema.py`: dataclasses in kio's
form, one for each version. Without `--write` it compares the file with what it would write. A test
does that too, if the jars are present.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = "4.1.0"
ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "core/plimsoll_wire/coordinator_schema.py"
JARS = ROOT / ".cache" / f"kafka-coordinators-{VERSION}"
ARTIFACTS = ("kafka-group-coordinator", "kafka-transaction-coordinator")
RECORDS = ("OffsetCommit", "GroupMetadata", "TransactionLog")
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_TIMEOUT_S = 540
TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "int",
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "uuid": "UUID | None",
}
HEAD = f'''"""Records of Kafka's internal topics, Kafka {VERSION}: `dev/coordinator_schemas.py`."""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID'''


class SchemasUnavailable(RuntimeError):
    """Raised if Maven is missing, or could not fetch the jars."""


def jars() -> Path:
    """Return the folder of the jars. Fetch them with Maven if this checkout lacks them."""
    if JARS.is_dir():
        return JARS
    maven = shutil.which("mvn")
    if maven is None:
        raise SchemasUnavailable("mvn is not installed (Debian: maven)")
    JARS.parent.mkdir(exist_ok=True)
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    wanted = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{VERSION}</version>{alone}</exclusions></dependency>"
        for artifact in ARTIFACTS
    )
    with tempfile.TemporaryDirectory(dir=JARS.parent, prefix="fetching-") as work:
        pom, fetched = Path(work, "pom.xml"), Path(work, "jars")
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>dev.plimsoll</groupId><artifactId>schemas</artifactId><version>1</version>"
            f"<dependencies>{wanted}</dependencies></project>"
        )
        done = subprocess.run(
            [*(maven, "-B", "-q", "-C", "-f", str(pom), COPY), f"-DoutputDirectory={fetched}"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SchemasUnavailable(f"Maven could not fetch them: {done.stdout[-2000:]}")
        fetched.rename(JARS)
    return JARS


def schemas(directory: Path) -> dict[str, Any]:
    """Return every schema in the jars, by its name."""
    found = {}
    for jar in sorted(directory.glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.M)
                    schema = json.loads(text)
                    found[schema["name"]] = schema
    return found


def covers(versions: str, version: int) -> bool:
    """Return True if Kafka's notation for versions ("0", "1-3", "2+", "none") includes this one."""
    if versions == "none":
        return False
    first, dash, last = versions.rstrip("+").partition("-")
    end = int(last) if dash else None if versions.endswith("+") else int(first)
    return int(first) <= version and (end is None or version <= end)


def snake(name: str) -> str:
    """Return a field name of Kafka in kio's spelling, which is snake case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class Message:
    """One version of one schema."""

    schema: dict[str, Any]
    version: int

    @property
    def flexible(self) -> bool:
        return covers(self.schema["flexibleVersions"], self.version)

    def classes(self) -> list[str]:
        """Return the source of the classes of this version, each after the classes that it uses."""
        common = {one["name"]: one["fields"] for one in self.schema.get("commonStructs", ())}
        return self._structure(self.schema["name"], self.schema["fields"], common)

    def _structure(
        self, name: str, fields: list[dict[str, Any]], common: dict[str, Any]
    ) -> list[str]:
        parts, lines = [], []
        for one in fields:
            if not covers(one.get("versions", "0+"), self.version):
                continue
            kind = one["type"].removeprefix("[]")
            if kind not in TYPES:
                parts += self._structure(kind, one.get("fields") or common[kind], common)
            lines += self._field(one, kind, is_array=one["type"].startswith("[]"))
        own = self.schema["name"]
        part = f"Version {self.version}" if name == own else f"A part of version {self.version}"
        head = [
            "@dataclass(frozen=True, slots=True, kw_only=True)",
            f"class {self._class(name)}:",
            f'    """{part} of {own}."""',
            "",
            f"    __flexible__: ClassVar[bool] = {self.flexible}",
        ]
        return [*parts, "\n".join([*head, *lines])]

    def _class(self, name: str) -> str:
        own = self.schema["name"]
        return f"{own}{'' if name == own else name}V{self.version}"

    def _field(self, one: dict[str, Any], kind: str, *, is_array: bool) -> list[str]:
        annotation = TYPES.get(kind) or self._class(kind)
        if is_array:
            annotation = f"tuple[{annotation}, ...]"
        nullable = covers(one.get("nullableVersions", "none"), self.version)
        if nullable and "None" not in annotation:
            annotation += " | None"
        metadata = [f'"kafka_type": "{kind}"'] if kind in TYPES else []
        tagged = covers(one.get("taggedVersions", "none"), self.version)
        if tagged:
            metadata.append(f'"tag": {one["tag"]}')
        default = self._default(one, kind, tagged=tagged)
        arguments = [f"metadata={{{', '.join(metadata)}}}"] if metadata else []
        arguments += [f"default={default}"] if default is not None else []
        value = f" = field({', '.join(arguments)})" if arguments else ""
        return [f"    {snake(one['name'])}: {annotation}{value}"]

    def _default(self, one: dict[str, Any], kind: str, *, tagged: bool) -> str | None:
        if "default" in one:
            stated = one["default"]
            return "None" if stated in (None, "null") else str(stated)
        return "None" if tagged and kind == "uuid" else None


def classes_of(schema: dict[str, Any]) -> str:
    """Return the source of one schema's classes in all versions. A version that equals an earlier
    one becomes its alias."""
    first, _, last = schema["validVersions"].partition("-")
    found: dict[str, str] = {}
    names: dict[str, str] = {}
    for version in range(int(first), int(last or first) + 1):
        for text in Message(schema, version).classes():
            name = re.findall(r"class (\w+):", text)[0]
            fields = text.partition('"""\n')[2]
            for alias, original in names.items():
                fields = re.sub(rf"\b{alias}\b", original, fields)
            head = name.rpartition("V")[0] + fields
            names[name] = found.setdefault(head, name)
            found.setdefault(name, text if names[name] == name else f"{name} = {names[name]}")
    return "\n\n\n".join(found[name] for name in names)


def _formatted(source: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    done = subprocess.run(
        [str(ruff), "format", "--line-length", "100", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def generated(directory: Path) -> str:
    """Return the source text of the generated module."""
    found = schemas(directory)
    bodies = [classes_of(found[record + part]) for record in RECORDS for part in ("Key", "Value")]
    return _formatted("\n\n\n".join([HEAD, *bodies]) + "\n")


def main() -> int:
    text = generated(jars())
    if "--write" in sys.argv[1:]:
        TARGET.write_text(text)
    same = text == TARGET.read_text()
    print("the schemas are what the jars say" if same else f"{TARGET} differs: --write")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
