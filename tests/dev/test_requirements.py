"""What images install is what their packages import, and the distribution requires all of it."""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from dev import requirements

ROOT = Path(__file__).parents[2]
PYPROJECT = ROOT / "pyproject.toml"
CONTENT = tomllib.loads(PYPROJECT.read_text())
IMAGES = {"broker": "plimsoll_broker", "operator": "plimsoll_operator", "spark": "plimsoll_spark"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def distributions() -> Mapping[str, Sequence[str]]:
    """By package.  Read once: the metadata of all that is installed."""
    return packages_distributions()


def imported_distributions(graph: grimp.ImportGraph, package: str) -> set[str]:
    """Of other projects, by all modules of the package and by those of ours that they import."""
    modules = {package, *graph.find_descendants(package)}
    reached = modules.union(*(graph.find_upstream_modules(module) for module in modules))
    tops = {module.partition(".")[0] for module in reached}
    foreign = {top for top in tops - sys.stdlib_module_names if not top.startswith("plimsoll_")}
    return {normalized(distributions()[top][0]) for top in foreign}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    roots = CONTENT["tool"]["importlinter"]["root_packages"]
    return grimp.build_graph(*roots, include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("image", IMAGES)
def test_image_installs_exactly_its_imports(image: str, graph: grimp.ImportGraph) -> None:
    listed = {normalized(name) for name in CONTENT["tool"]["plimsoll"]["images"][image]}
    assert listed == imported_distributions(graph, IMAGES[image])


def test_distribution_requires_what_every_package_but_sparks_imports(
    graph: grimp.ImportGraph,
) -> None:
    required = {
        normalized(requirements.NAME.match(one)[0]) for one in CONTENT["project"]["dependencies"]
    }
    packages = [*IMAGES.values(), "plimsoll_sim"]
    packages.remove("plimsoll_spark")
    assert required == set().union(*(imported_distributions(graph, one) for one in packages))


@pytest.mark.parametrize("image", IMAGES)
def test_image_gets_the_distributions_own_versions(image: str) -> None:
    project = CONTENT["project"]
    known = {*project["dependencies"], *project["optional-dependencies"]["spark"]}
    assert set(requirements.requirements(PYPROJECT, image)) <= known


def test_undeclared_library_is_an_error(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(
        '[project]\ndependencies = ["a>=1"]\n[project.optional-dependencies]\n'
        '[tool.plimsoll.images]\none = ["a"]\ntwo = ["a", "b"]\n'
    )
    assert requirements.requirements(pyproject, "one") == ["a>=1"]
    with pytest.raises(KeyError, match="b"):
        requirements.requirements(pyproject, "two")
