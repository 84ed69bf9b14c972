"""What the documents name exists: a promise whose test was renamed is a promise without one."""

import re
from pathlib import Path

import pytest

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
