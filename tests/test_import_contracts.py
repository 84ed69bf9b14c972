"""Import contracts that list the parts of a package cover each of them.

A new folder or module must be placed: in the contract, or in the list of those that stand outside.
Contracts of layers do so themselves (`exhaustive`).
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
CONTRACTS: list[dict[str, Any]] = PROJECT["importlinter"]["contracts"]
PACKAGES = {
    path.parent.name: path.parent
    for path in ROOT.glob("*/plimsoll_*/__init__.py")
    if path.parts[-3] != "tests"
}
LISTS = ("source_modules", "forbidden_modules", "modules", "ancestors")
OUTSIDE = {
    "One package knows TLS": {"plimsoll_net", "plimsoll_spark"},
    "Spark jobs are clients like any other": {
        "plimsoll_broker",  # the layers of shells forbid it
        "plimsoll_net",
        "plimsoll_operator",
        "plimsoll_process",
        "plimsoll_sim",
    },
    "No two siblings import each other, not even by way of others": {"plimsoll_spark"},
    "The API server in memory serves the port and knows no part of the operator": {
        "plimsoll_operator.__main__",
        "plimsoll_operator.acl_command",
        "plimsoll_operator.api",
        "plimsoll_operator.api_server",
        "plimsoll_operator.kube",
        "plimsoll_operator.process_clocks",
        "plimsoll_operator.shipped_files",
    },
    "What decides is handed its connection to the API server": {
        "plimsoll_operator.__main__",
        "plimsoll_operator.acl_command",
        "plimsoll_operator.api_server",
        "plimsoll_operator.cli",
        "plimsoll_operator.kube",
        "plimsoll_operator.kubectl_plugin",
        "plimsoll_operator.local",
        "plimsoll_operator.process",
    },
    "What reconciles, leads and writes status is handed its clocks": {
        "plimsoll_operator.__main__",
        "plimsoll_operator.acl_command",
        "plimsoll_operator.api",
        "plimsoll_operator.api_server",
        "plimsoll_operator.cli",
        "plimsoll_operator.control_failures",
        "plimsoll_operator.controller",
        "plimsoll_operator.kube",
        "plimsoll_operator.kubectl_plugin",
        "plimsoll_operator.local",
        "plimsoll_operator.manifests",
        "plimsoll_operator.metalog",
        "plimsoll_operator.options",
        "plimsoll_operator.pki",
        "plimsoll_operator.preflight",
        "plimsoll_operator.process",
        "plimsoll_operator.process_clocks",
        "plimsoll_operator.reconcile_times",
        "plimsoll_operator.rights_explanation",
        "plimsoll_operator.shipped_files",
    },
}
"""Parts that a contract leaves out, by its name."""
SEVERAL = 4
"""A list of fewer parts of a package means these alone."""


def parts_of(parent: str) -> set[str]:
    """Return the modules and packages directly inside a package; all packages for ""."""
    if not parent:
        return set(PACKAGES)
    package, *inner = parent.split(".")
    folder = PACKAGES[package].joinpath(*inner)
    found = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    found |= {path.parent.name for path in folder.glob("*/__init__.py")}
    return {f"{parent}.{name}" for name in found}


def listed_parts(contract: dict[str, Any]) -> dict[str, set[str]]:
    """Return the parts of each package that one of the contract's lists names several of."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name in LISTS:
        for part in contract.get(name, ()):
            if part.startswith("plimsoll_") and "*" not in part:
                found[name, part.rpartition(".")[0]].add(part)
    return {parent: parts for (_, parent), parts in found.items() if len(parts) >= SEVERAL}


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: str(contract["name"]))
def test_contract_covers_every_part_of_a_listed_package(contract: dict[str, Any]) -> None:
    outside = OUTSIDE.get(contract["name"], set())
    for parent, parts in listed_parts(contract).items():
        assert parts_of(parent) - parts - outside == set(), "list it, or name it as outside"
        assert outside & parts == set()
    for part in outside:
        assert part in parts_of(part.rpartition(".")[0]), f"{part} does not exist"


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: str(contract["name"]))
def test_layers_contract_of_a_package_is_exhaustive(contract: dict[str, Any]) -> None:
    if contract["type"] == "layers" and "containers" in contract:
        assert contract.get("exhaustive") is True


def test_every_package_is_checked() -> None:
    assert set(PROJECT["importlinter"]["root_packages"]) == set(PACKAGES)
    assert set(PROJECT["mypy"]["packages"]) == set(PACKAGES)
