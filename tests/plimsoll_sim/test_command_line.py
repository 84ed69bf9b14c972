"""The commands of docs/simulation.md, each with fewer steps than a reader would give it."""

import shlex
import subprocess
import sys

import pytest
from tests.documented_commands import ROOT, commands

PAGE = ROOT / "docs/simulation.md"
PROGRAM = ".venv/bin/python -m plimsoll_sim "
SHOWN = [one.removeprefix(PROGRAM) for one in commands(PAGE) if one.startswith(PROGRAM)]
FEWER = {"1..10000": "1..2"}
TIMEOUT_S = 800


def simulate(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "plimsoll_sim", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("arguments", SHOWN)
def test_documented_command_runs_and_predicates_hold(arguments: str) -> None:
    words = [FEWER.get(word, word) for word in shlex.split(arguments)]
    said = simulate([*words, *(() if "--scenario" in words else ("--steps", "60"))])
    if "--seed" in words:
        assert "held: " in said
    if "--events" in words:
        assert "committed" in said


def test_new_seeds_are_run_for_so_many_seconds() -> None:
    """`make sim FOR=1`."""
    assert simulate(["--seconds", "1", "--steps", "60", "--jobs", "2"])
