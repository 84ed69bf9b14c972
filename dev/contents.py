"""Writes the table of contents of long documents from their headings.

    python dev/contents.py            # print them
    python dev/contents.py --write    # between each document's marks

A test compares the documents with this output, and fails if a long document lacks the marks.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- begin contents -->", "<!-- end contents -->")
HEADING = re.compile(r"^(##|###) (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def contents(text: str) -> str:
    """Return a Markdown list of the document's chapters, with their sections below them."""
    found = HEADING.findall(FENCE.sub("", text))
    return "\n".join(
        f"{'  ' if level == '###' else ''}- [{title}](#{anchor(title)})" for level, title in found
    )


def shown(text: str) -> str | None:
    """Return the text between the marks; None if there are none."""
    before, begin, rest = text.partition(f"{MARKS[0]}\n")
    inside, end, _ = rest.partition(f"\n{MARKS[1]}")
    return inside if begin and end and before else None


def with_contents(text: str) -> str:
    """Return the document with an up-to-date table of contents between its marks."""
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    return f"{before}{MARKS[0]}\n{contents(text)}\n{MARKS[1]}{after}"


def documents() -> list[Path]:
    """Return the documents that have marks."""
    pages = sorted(ROOT.glob("docs/*.md"))
    return [page for page in pages if shown(page.read_text()) is not None]


def main() -> None:
    for page in documents():
        text = page.read_text()
        if "--write" in sys.argv[1:]:
            page.write_text(with_contents(text))
        else:
            print(f"{page.relative_to(ROOT)}\n{contents(text)}\n")


if __name__ == "__main__":
    main()
