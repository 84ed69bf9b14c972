"""Figures of benchmarks in docs/benchmarks.md: each stands between two marks of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def write(name: str, lines: Iterable[str], document: Path = DOCUMENT) -> None:
    """Put lines in place of what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
    Raises ValueError where these are not there."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, begun, rest = document.read_text().partition(begin)
    _, ended, behind = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{document} has no {begin} with {end} behind it")
    text = "\n".join(lines)
    document.write_text(f"{before}{begin}\n{text}\n{end}{behind}")
