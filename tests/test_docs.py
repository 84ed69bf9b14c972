"""What the documents name exists: a promise whose test was renamed is a promise without one."""

import re
from pathlib import Path

import pytest
from dev import floors

from plimsoll_sim.faults.table import FAULTS
from plimsoll_sim.runs.profiles.table import PROFILES

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMED = re.compile(r"`((?:tests|sim|dev|bench|examples|helm|crds)/[\w./-]*)`")
FORBIDDEN = ROOT / "tests/operator"
"""CONTRIBUTING.md says that there must be no such folder."""
LINKED = re.compile(r"\]\(([\w./-]+)\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    named = {ROOT / name for name in NAMED.findall(text)}
    linked = {document.parent / name for name in LINKED.findall(text)}
    missing = sorted(
        str(path.relative_to(ROOT))
        for path in named | linked
        # A scenario may be named by its number.
        if path != FORBIDDEN and not path.exists() and not list(path.parent.glob(f"{path.name}*"))
    )
    assert not missing


PROMISES = re.findall(r"^(\d+)\. (.*)$", (ROOT / "docs/guarantees.md").read_text(), re.MULTILINE)
NOTHING = ("10",)
"""acks=0 promises nothing that a fault could break."""


@pytest.mark.parametrize(("number", "sentence"), PROMISES, ids=[number for number, _ in PROMISES])
def test_every_guarantee_names_what_checks_it_and_the_fault_that_would_break_it(
    number: str, sentence: str
) -> None:
    if number in NOTHING:
        return
    assert re.search(r"`tests/|[Pp]redicate|random runs", sentence), "no test"
    told = re.search(r"Faults?(?: there)?: (.*)", sentence)
    if told is None:
        assert re.search(r"`tests/[^`]*`: \w", sentence), "no fault, nor what goes wrong in a test"
        return
    named = re.findall(r'"([^"]+)"', told[1])
    assert named or "Faults there" in told[0], "no fault by its name"
    assert not {name for name in named if name not in FAULTS and name not in PROFILES}


def test_architecture_draws_the_floors_as_the_imports_are() -> None:
    """After a move of a module: `python dev/floors.py --write`."""
    assert floors.shown() == floors.drawing(floors.graph_of_everything())
