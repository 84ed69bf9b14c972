"""What users are shown can be read: the examples, and every resource in the documentation."""

import re
from pathlib import Path

import pytest

from plimsoll_operator.api.load import from_yaml

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_one_resource_of_ours(path: Path) -> None:
    found = list(from_yaml(path.read_text()))
    assert len(found) == 1


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_resources_in_the_documentation_can_be_read(path: Path) -> None:
    for block in BLOCK.findall(path.read_text()):
        if "apiVersion: plimsoll.dev" in block:
            assert list(from_yaml(block))
