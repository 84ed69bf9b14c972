"""What users are shown can be read: the examples, and every resource in the documentation."""

import re
from pathlib import Path

import pytest

from plimsoll_operator.api.load import MODELS, from_yaml
from plimsoll_operator.shipped_files import ExampleName, example_text

ROOT = Path(__file__).parent.parent.parent
MIRROR = ROOT / "examples/mirror"
"""Files that belong together: `test_mirror_files.py`."""
EXAMPLES = sorted(set(ROOT.glob("examples/**/*.yaml")) - set(MIRROR.glob("**/*.yaml")))
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_one_resource_of_ours(path: Path) -> None:
    found = list(from_yaml(path.read_text()))
    assert len(found) == 1


def test_command_prints_an_example_of_every_kind() -> None:
    texts = [example_text(name) for name in ExampleName]
    assert sorted(texts) == sorted(path.read_text() for path in EXAMPLES)
    assert {type(one) for text in texts for one in from_yaml(text)} == set(MODELS.values())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_resources_in_the_documentation_can_be_read(path: Path) -> None:
    for block in BLOCK.findall(path.read_text()):
        if "apiVersion: plimsoll.dev" in block:
            assert list(from_yaml(block))
