"""Commands and values of `docs/install.md`: the chart takes them, and does what they say."""

import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dev import quick_yaml
from dev.publish import IMAGES, own_version
from tests.documented_commands import FENCE, ROOT, commands, fences
from tests.helm.test_chart import CHART, helm
from typer.main import get_command

from plimsoll_operator.cli import app

PAGE = ROOT / "docs" / "install.md"
NAMED_FILE = re.compile(r"# (values[\w-]*\.yaml)\n")
QUOTED = re.compile(r"`([^`]+)`")
INSTALLATIONS = [command for command in commands(PAGE) if command.startswith("helm upgrade")]
EVERYTHING = ("--set", "verification.enabled=true", "--set", "preflight.enabled=true")


def files_of(page: Path) -> dict[str, str]:
    """The values files that the page shows, by name."""
    shown = [one.text for one in fences(page) if one.kind == "yaml"]
    return {found[1]: text for text in shown if (found := NAMED_FILE.match(text))}


@cache
def objects(command: str, directory: Path) -> list[dict[str, Any]]:
    """What the documented command would install, with all that can be switched on."""
    words = shlex.split(command)
    settings = []
    for flag, value in pairwise(words):
        if flag == "-f":
            (directory / value).write_text(files_of(PAGE)[value])
            settings += ["-f", str(directory / value)]
        elif flag == "--set":
            settings += ["--set", value]
    done = helm(
        *("template", "plimsoll", str(CHART), "-n", "plimsoll-system"),
        *("--kube-version", "1.34.0", *settings, *EVERYTHING),
    )
    assert done.returncode == 0, done.stderr
    return [one for one in quick_yaml.load_all(done.stdout) if one]


def pods(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Specs of the pods that the chart itself makes."""
    templates = [one["spec"].get("template", one)["spec"] for one in found if "spec" in one
                 and one["kind"] in ("Pod", "Job", "Deployment")]  # fmt: skip
    assert len(templates) == 4
    return templates


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", INSTALLATIONS, ids=lambda command: shlex.split(command, True)[-2]
)
def test_documented_installation_renders(command: str, tmp_path: Path) -> None:
    assert command.split()[:5] == [
        *("helm", "upgrade", "--install", "plimsoll"),
        f"dist/plimsoll-{own_version()}.tgz",
    ]
    assert {one["kind"] for one in objects(command, tmp_path)} > {"Deployment", "ClusterRole"}


def command_with(name: str) -> str:
    (found,) = [one for one in INSTALLATIONS if f"-f {name} " in one]
    return found


def test_openshift_values_state_no_user(tmp_path: Path) -> None:
    for pod in pods(objects(command_with("values-openshift.yaml"), tmp_path)):
        context = pod["securityContext"]
        assert context["runAsNonRoot"]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()


def test_cluster_without_internet_pulls_from_its_mirror_alone(tmp_path: Path) -> None:
    found = objects(command_with("values-airgapped.yaml"), tmp_path)
    mirror = "registry.inside:5000/mirror/plimsoll/"
    for pod in pods(found):
        assert pod["imagePullSecrets"] == [{"name": "mirror"}]
        assert "initContainers" not in pod
        assert all(one["image"].startswith(f"{mirror}operator:") for one in pod["containers"])
    (deployment,) = [one for one in found if one["kind"] == "Deployment"]
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    given = {one["name"]: str(one.get("value")) for one in env}
    images = [value for value in given.values() if "plimsoll/" in value]
    assert images
    for image in ",".join(images).split(","):
        assert mirror in image


def test_documented_pull_secret_matches_the_values() -> None:
    """Made by kubectl alone: no cluster is asked."""
    namespace, secret = [one for one in commands(PAGE) if one.startswith("kubectl create ")][1:]
    made = []
    for command in (namespace, secret):
        done = subprocess.run(
            [*shlex.split(command), "--dry-run=client", "-o", "yaml"],
            capture_output=True,
            text=True,
            check=True,
        )
        made.append(quick_yaml.load(done.stdout))
    values = quick_yaml.load(files_of(PAGE)["values-airgapped.yaml"])
    assert made[0]["metadata"]["name"] == made[1]["metadata"]["namespace"] == "plimsoll-system"
    assert values["imagePullSecrets"] == [{"name": made[1]["metadata"]["name"]}]
    assert made[1]["type"] == "kubernetes.io/dockerconfigjson"
    registry = values["image"]["registry"].partition("/")[0]
    assert f"--docker-server={registry} " in secret


def test_page_lists_every_image_of_the_release() -> None:
    (listed,) = [one.text.split() for one in fences(PAGE) if one.kind == "text"]
    assert listed == [f"plimsoll/{name}:{own_version()}" for name in IMAGES]


def leaves(values: dict[str, Any], prefix: str = "") -> set[str]:
    """Paths of the values that hold no others."""
    found = set()
    for name, value in values.items():
        inner = leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else set()
        found |= inner or {prefix + name}
    return found


def explained(text: str) -> set[str]:
    """Paths of the values below a comment and no empty line; what they hold is explained, too."""
    found: set[str] = set()
    parents: list[tuple[int, str]] = []
    commented: set[int] = set()
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        commented = {one for one in commented if one <= indent} if line else set()
        if line.lstrip().startswith("#"):
            commented.add(indent)
        elif line:
            parents = [one for one in parents if one[0] < indent]
            parents.append((indent, line.strip().partition(":")[0].strip('"')))
            if indent in commented:
                found.add(".".join(name for _, name in parents))
    return found


def test_chart_values_are_explained_in_their_file() -> None:
    text = (CHART / "values.yaml").read_text()
    told = explained(text)
    assert {"replicas", "metrics.podMonitor.perLogCluster"} <= told
    assert not {
        leaf
        for leaf in leaves(quick_yaml.load(text))
        if not any(f"{leaf}.".startswith(f"{one}.") for one in told)
    }


def test_page_names_only_values_of_the_chart() -> None:
    chapter = PAGE.read_text().partition("\n## Values\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+(?:\.\w+)*)`", chapter))
    existing = leaves(quick_yaml.load((CHART / "values.yaml").read_text()))
    assert "networkPolicy" in named
    assert not {
        name for name in named if not any(f"{leaf}.".startswith(f"{name}.") for leaf in existing)
    }


def test_source_commands_are_on_documented_path() -> None:
    (export,) = [one for one in commands(PAGE) if one.startswith("export PATH=$PWD")]
    asked = f"{export}; command -v plimsoll kubectl-plimsoll"
    done = subprocess.run(["bash", "-c", asked], cwd=ROOT, capture_output=True, text=True)
    folder = f"{ROOT}/.venv/bin"
    assert done.stdout.split() == [f"{folder}/plimsoll", f"{folder}/kubectl-plimsoll"]


def test_documented_commands_of_plimsoll_are_understood() -> None:
    """Parsed, not run: what they do is tested where `tests/documented_commands.py` says."""
    command = get_command(app)
    shown = [one for one in commands(PAGE) if one.startswith("plimsoll ")]
    prose = QUOTED.findall(FENCE.sub("", PAGE.read_text()))
    shown += [one for one in prose if one.startswith("plimsoll ") and "=" not in one]
    assert len(shown) > 4
    for line in shown:
        words = shlex.split(line)[1:]
        if words[0].startswith("--"):
            assert words[0] in {option for one in command.params for option in one.opts}, line
            continue
        named = command.commands[words[0]]  # type: ignore[attr-defined]
        named.make_context(words[0], [word for word in words[1:] if word != "--help"])
