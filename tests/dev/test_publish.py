"""`make images` and `make chart`: the commands that they run, the names in the chart, the SBOMs."""

import json
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from dev import image_inventory, publish, sbom
from tests.documented_commands import commands
from tests.helm.test_chart import rendered, tool

from plimsoll_core.release import RELEASE

VERSION = f"{publish.own_version()}-test.1"
ROWS = [
    {"kind": "deb", "name": "libc6", "version": "2.36-9", "architecture": "amd64"},
    {"kind": "pypi", "name": "kio", "version": "0.6.5", "licence": "Apache-2.0"},
    {"kind": "maven", "group": "org.lz4", "name": "lz4-java", "version": "1.8.0"},
    {"kind": "maven", "group": "", "name": "nobodys", "version": "1"},
]


class Recorded:
    """Runs nothing; keeps each command, and answers those that must print something."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def __call__(self, command: Sequence[str], stdin: str) -> str:
        self.commands.append(" ".join(command))
        if command[:2] == ["buildah", "from"]:
            return "working-container\n"
        return json.dumps(ROWS) if "run" in command else ""


def published(dist: Path, *arguments: str) -> tuple[int, list[str]]:
    run = Recorded()
    code = publish.main([*arguments, "--version", VERSION, "--dist", str(dist)], run)
    return code, [line for line in run.commands if "jars.sh" not in line]


def validated(path: Path) -> dict[str, Any]:
    """The SBOM, which its own schema accepts."""
    text = path.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `docker` on the PATH, which nobody runs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").symlink_to(shutil.which("true") or "/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("BUILD_FLAGS", "--build-arg BASE=python:3.13")
    monkeypatch.delenv("BUILDER", raising=False)


@pytest.mark.usefixtures("docker")
def test_images_are_built_before_any_push(tmp_path: Path) -> None:
    code, commands = published(tmp_path / "dist", "images", "--registry", "registry.example/acme/")
    names = [f"registry.example/acme/plimsoll/{one}:{VERSION}" for one in publish.IMAGES]
    assert code == 0
    assert commands[0] == (
        "docker build --build-arg BASE=python:3.13 --build-arg IMAGE=operator --target operator"
        f" -t {names[0]} ."
    )
    assert commands[1].startswith("docker run -i --rm --network none --entrypoint python3 ")
    assert commands[-3:] == [f"docker push {name}" for name in names]
    assert len(commands) == 9


@pytest.mark.usefixtures("docker")
def test_images_without_a_registry_stay_on_this_machine(tmp_path: Path) -> None:
    code, commands = published(tmp_path / "dist", "images")
    assert code == 0
    assert f"-t plimsoll/broker:{VERSION} " in "\n".join(commands)
    assert not [line for line in commands if " push " in line]


@pytest.mark.usefixtures("docker")
def test_sbom_names_the_images_contents(tmp_path: Path) -> None:
    published(tmp_path / "dist", "images")
    found = validated(tmp_path / "dist" / f"plimsoll-spark-{VERSION}.cdx.json")
    urls = {one["name"]: one.get("purl") for one in found["components"]}
    assert urls == {
        "libc6": "pkg:deb/debian/libc6@2.36-9?arch=amd64",
        "kio": "pkg:pypi/kio@0.6.5",
        "lz4-java": "pkg:maven/org.lz4/lz4-java@1.8.0",
        "nobodys": None,
    }


def test_buildah_removes_working_container_after_failure() -> None:
    class Failing(Recorded):
        """The image has no Python, say."""

        def __call__(self, command: Sequence[str], stdin: str) -> str:
            if command[1] == "run":
                raise publish.CannotPublish("no python3")
            return super().__call__(command, stdin)

    run = Failing()
    with pytest.raises(publish.CannotPublish):
        publish.contents("image:1", "buildah", run)
    assert run.commands == ["buildah from image:1", "buildah rm working-container"]


@pytest.mark.parametrize("version", ["9.9.9", f"{publish.own_version()}1", "", RELEASE])
def test_version_of_other_sources_is_refused(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Recorded()
    code = publish.main(["chart", "--version", version, "--dist", str(tmp_path)], run)
    assert (code, run.commands) == (1, [])
    assert f"give {publish.own_version()}" in capsys.readouterr().err


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize(
    ("what", "registry"), [("images", "oci://registry.example"), ("chart", "registry.example")]
)
def test_registry_of_the_other_kind_is_refused(what: str, registry: str, tmp_path: Path) -> None:
    assert published(tmp_path, what, "--registry", registry) == (1, [])


def test_builder_that_is_not_installed_is_named() -> None:
    with pytest.raises(publish.CannotPublish, match="no-such-builder is not installed"):
        publish.builder_of({"BUILDER": "no-such-builder"})


def test_failing_command_is_a_sentence() -> None:
    with pytest.raises(publish.CannotPublish, match="ended with 3"):
        publish.run_command(["bash", "-c", "exit 3"])
    with pytest.raises(publish.CannotPublish, match="no-such-command"):
        publish.run_command(["no-such-command"])


def test_packaged_chart_names_this_versions_images(tmp_path: Path) -> None:
    helm = tool("helm")

    def run(command: Sequence[str], stdin: str) -> str:
        if command[:2] == ["helm", "push"]:
            pushed.append(list(command))
            return ""
        return publish.run_command([helm, *command[1:]], stdin)

    pushed: list[list[str]] = []
    registry = "oci://registry.example/charts"
    words = ["chart", "--version", VERSION, "--registry", registry, "--dist", str(tmp_path)]
    assert publish.main(words, run) == 0
    archive = tmp_path / f"plimsoll-{VERSION}.tgz"
    assert pushed == [["helm", "push", str(archive), registry]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        archive.name, f"{archive.name}.cdx.json",
    ]  # fmt: skip
    with tarfile.open(archive) as packed:
        found = packed.extractfile("plimsoll/Chart.yaml")
        assert found is not None
        about = yaml.safe_load(found.read())
    assert (about["version"], about["appVersion"]) == (VERSION, RELEASE)
    done = subprocess.run(
        [helm, "template", "plimsoll", str(archive), "--kube-version", "1.34.0",
         "--set", "verification.enabled=true"],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    components = validated(tmp_path / f"{archive.name}.cdx.json")["components"]
    for name in publish.IMAGES:
        assert f"plimsoll/{name}:{VERSION}" in done.stdout
    assert {f"{one['name']}:{one['version']}" for one in components} == {
        f"plimsoll/{name}:{VERSION}" for name in publish.IMAGES
    }


def test_chart_of_the_tree_names_the_releases_images() -> None:
    """What `make chart` replaces: a changed values.yaml must not leave another tag behind."""
    text = json.dumps(rendered("verification.enabled=true"))
    for name in publish.IMAGES:
        assert f"plimsoll/{name}:{RELEASE}" in text
    with pytest.raises(publish.CannotPublish, match="has not one line"):
        publish.with_images("image:\n", RELEASE, VERSION)


STATUS = """\
Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2-1
Description: a shell
 Version: not this

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def test_inventory_lists_installed_debian_packages_alone(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS)
    assert list(image_inventory.debian_packages(status)) == [
        {"kind": "deb", "name": "bash", "version": "5.2-1", "architecture": "amd64"}
    ]
    assert list(image_inventory.debian_packages(tmp_path / "none")) == []


def test_inventory_reads_jar_group_from_properties(tmp_path: Path) -> None:
    bundled = "groupId=org.other\nartifactId=other\nversion=9\n"
    own = "#Created by Maven\ngroupId=org.lz4\nartifactId=lz4-java\nversion=1.8.0\n"
    with ZipFile(tmp_path / "lz4-java-1.8.0.jar", "w") as jar:
        jar.writestr("META-INF/maven/org.other/other/pom.properties", bundled)
        jar.writestr("META-INF/maven/org.lz4/lz4-java/pom.properties", own)
    with ZipFile(tmp_path / "plain_2.13-4.0.0.jar", "w") as jar:
        jar.writestr("A.class", b"")
    named = [(row["group"], row["name"], row["version"]) for row in image_inventory.jars(tmp_path)]
    assert named == [("org.lz4", "lz4-java", "1.8.0"), ("", "plain_2.13", "4.0.0")]


@pytest.mark.slow
def test_inventory_from_stdin_makes_valid_sbom(tmp_path: Path) -> None:
    """As it is run inside of an image: this environment stands for one."""
    printed = publish.run_command([sys.executable, "-"], publish.INVENTORY.read_text())
    components = sbom.image_components(json.loads(printed))
    names = {component.name for component in components}
    assert {"kio", "msgspec", "plimsoll"} <= names
    path = tmp_path / "here.cdx.json"
    sbom.write_sbom(path, sbom.artefact("here", "1", sbom.ComponentType.CONTAINER), components)
    validated(path)


MAKES = [one for one in commands(publish.ROOT / "docs/install.md") if one.startswith("make ")]


@pytest.mark.parametrize("command", [one for one in MAKES if "VERSION" in one])
def test_documented_targets_hand_over_version_and_registry(command: str) -> None:
    printed = publish.run_command([*command.split(), "--dry-run", "--no-print-directory"])
    target, *variables = command.split()[1:]
    words = shlex.split(printed.splitlines()[-1])
    passed = words[words.index("dev.publish") :]
    given = dict(one.split("=", 1) for one in variables)
    expected = [word for name in ("VERSION", "REGISTRY") if name in given
                for word in (f"--{name.lower()}", given[name])]  # fmt: skip
    assert passed == ["dev.publish", target, *expected]
    assert given["VERSION"] == publish.own_version()
