"""Figures of a benchmark take the place of those before, and nothing else's."""

from pathlib import Path

import pytest
from bench.marked import write

MARKED = "# Figures\n<!-- begin one -->\nold\n<!-- end one -->\nbetween\n<!-- begin two -->\n"


def test_lines_between_marks_are_replaced(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(f"{MARKED}two\n<!-- end two -->\nafter\n")
    write("one", ["new", "lines"], document)
    text = document.read_text()
    assert "<!-- begin one -->\nnew\nlines\n<!-- end one -->\nbetween\n" in text
    assert text.endswith("two\n<!-- end two -->\nafter\n")


@pytest.mark.parametrize("name", ["two", "three"])
def test_document_without_both_marks_is_unchanged(tmp_path: Path, name: str) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(MARKED)
    with pytest.raises(ValueError, match=name):
        write(name, ["new"], document)
    assert document.read_text() == MARKED
