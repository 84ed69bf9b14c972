"""`make images VERSION=…` and `make chart VERSION=…`: build the images and the chart for
installation elsewhere, with SBOMs.

Images are named REGISTRY/plimsoll/NAME:VERSION, so that the chart's value `image.registry` finds
all three, and pushed when a registry is given.  The chart is packaged into `dist/` with the tags of
these images, and pushed when a registry (oci://…) is given.  Beside each artefact lies its SBOM in
`dist/` (CycloneDX JSON).

BUILDER is docker, podman or buildah; default is the first that is installed. BUILD_FLAGS are passed
to its build command, such as `--build-arg BASE=…`, or `--secret id=pip,src=pip.conf` for a package
index of your own.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.model.component import ComponentType
from dev.sbom import artefact, chart_components, image_components, write_sbom

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "plimsoll"
INVENTORY = ROOT / "dev" / "image_inventory.py"
BUILDERS = ("docker", "podman", "buildah")
IMAGES = ("operator", "broker", "spark")
"""Targets of the Dockerfile."""
STEP_S = 3_600
"""Bound on the seconds of one command: building Spark's image without a cache, over a slow
connection."""

Run = Callable[[Sequence[str], str], str]
"""Function that runs a command with a text as its standard input, and returns its standard
output."""


class CannotPublish(Exception):
    """Raised if images or chart cannot be built or pushed. The message is a sentence for the
    user."""


def run_command(command: Sequence[str], stdin: str = "") -> str:
    """Run a command and return its standard output. Raises CannotPublish if it fails or takes
    longer than `STEP_S` seconds."""
    print("+", shlex.join(command), file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, cwd=ROOT, input=stdin, text=True, stdout=subprocess.PIPE, check=True,
            timeout=STEP_S,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise CannotPublish(f"{shlex.join(command)} ended with {error.returncode}.") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotPublish(f"{shlex.join(command)}: {error}") from error
    return done.stdout


def own_version() -> str:
    """Return the version of the sources, which is the wheel's and which `plimsoll version`
    prints."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def checked_version(version: str, own: str) -> str:
    """Return the release (MAJOR.MINOR) of the stated version. Raises CannotPublish if the sources
    are of another version."""
    if version != own and not re.fullmatch(re.escape(own) + r"-[0-9A-Za-z.-]+", version):
        raise CannotPublish(
            f"VERSION={version}, but these sources are {own} (pyproject.toml): give {own}, or"
            f" {own}-SUFFIX."
        )
    return own.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefacts:
    """The images and the chart to build: their version, the registry, and the commands to use."""

    version: str
    registry: str
    """The registry, without a slash at its end; empty: nothing is pushed."""
    dist: Path
    run: Run

    def images(self, builder: str, flags: Sequence[str] = ()) -> list[str]:
        """Build all three images, then push them. Return their names."""
        self.dist.mkdir(parents=True, exist_ok=True)
        self.run([str(ROOT / "spark" / "jars.sh")], "")
        names = [self._built(name, builder, flags) for name in IMAGES]
        for image in names if self.registry else ():
            self.run([builder, "push", image], "")
        return names

    def _built(self, name: str, builder: str, flags: Sequence[str]) -> str:
        image = f"{self.registry}/plimsoll/{name}" if self.registry else f"plimsoll/{name}"
        tagged = f"{image}:{self.version}"
        target = ["--build-arg", f"IMAGE={name}", "--target", name]
        self.run([builder, "build", *flags, *target, "-t", tagged, "."], "")
        rows = json.loads(contents(tagged, builder, self.run))
        subject = artefact(image, self.version, ComponentType.CONTAINER)
        path = self.dist / f"plimsoll-{name}-{self.version}.cdx.json"
        write_sbom(path, subject, image_components(rows))
        return tagged

    def chart(self, release: str) -> Path:
        """Package the chart with the names of this version's images. Return the path of the
        archive."""
        source = self.dist / "chart" / CHART.name
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(CHART, source)
        values = source / "values.yaml"
        values.write_text(with_images(values.read_text(), release, self.version))
        versions = ["--version", self.version, "--app-version", release]
        self.run(["helm", "package", str(source), *versions, "--destination", str(self.dist)], "")
        shutil.rmtree(source.parent)
        archive = self.dist / f"{CHART.name}-{self.version}.tgz"
        images = [f"plimsoll/{name}:{self.version}" for name in IMAGES]
        subject = artefact("plimsoll-chart", self.version, ComponentType.APPLICATION)
        path = archive.with_name(f"{archive.name}.cdx.json")
        write_sbom(path, subject, chart_components(images))
        if self.registry:
            self.run(["helm", "push", str(archive), self.registry], "")
        return archive


def contents(image: str, builder: str, run: Run) -> str:
    """Return the output of `dev/image_inventory.py` inside the image."""
    script = INVENTORY.read_text()
    if builder != "buildah":
        words = ["run", "-i", "--rm", "--network", "none", "--entrypoint", "python3", image, "-"]
        return run([builder, *words], script)
    container = run(["buildah", "from", image], "").strip()
    try:
        return run(["buildah", "run", container, "--", "python3", "-"], script)
    finally:
        run(["buildah", "rm", container], "")


def with_images(values: str, release: str, version: str) -> str:
    """Return the chart's `values.yaml` with the tags of this version. Only single lines are
    replaced, so that the comments stay. Raises CannotPublish if such a line is missing."""
    lines = {
        '  tag: ""\n': f'  tag: "{version}"\n',
        f'    "{release}": plimsoll/broker:{release}\n': (
            f'    "{release}": plimsoll/broker:{version}\n'
        ),
        f"  spark: plimsoll/spark:{release}\n": f"  spark: plimsoll/spark:{version}\n",
    }
    for old, new in lines.items():
        if values.count(old) != 1:
            raise CannotPublish(f"helm/plimsoll/values.yaml has not one line {old.strip()!r}.")
        values = values.replace(old, new)
    return values


def builder_of(environment: Mapping[str, str]) -> str:
    """Return the command that builds images: the environment's BUILDER, else the first installed
    one. Raises CannotPublish if there is none."""
    wanted = environment.get("BUILDER")
    found = next(filter(shutil.which, [wanted] if wanted else BUILDERS), None)
    if found is None:
        what = f"{wanted} is not" if wanted else f"None of {', '.join(BUILDERS)} is"
        raise CannotPublish(f"{what} installed: set BUILDER to a program that builds images.")
    return found


def main(arguments: Sequence[str], run: Run = run_command) -> int:
    parser = argparse.ArgumentParser(prog="publish", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("images", "chart"))
    parser.add_argument("--version", default=own_version(), help="default: the sources'")
    parser.add_argument("--registry", default="")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    wanted = parser.parse_args(arguments)
    registry = wanted.registry.rstrip("/")
    made = Artefacts(version=wanted.version, registry=registry, dist=wanted.dist, run=run)
    try:
        release = checked_version(wanted.version, own_version())
        if wanted.what == "images":
            if "://" in registry:
                raise CannotPublish(f"REGISTRY={registry}: an image's registry has no scheme.")
            builder = builder_of(os.environ)
            print("\n".join(made.images(builder, shlex.split(os.environ.get("BUILD_FLAGS", "")))))
        else:
            if registry and not registry.startswith("oci://"):
                raise CannotPublish(f"REGISTRY={registry}: a chart's registry is oci://….")
            print(made.chart(release))
    except CannotPublish as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
