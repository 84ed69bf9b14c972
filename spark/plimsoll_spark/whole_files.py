"""Writes a file that gets its name only when it is complete: a reader sees it whole or not at all,
and a process that dies leaves no partial file of that name.

The only place of this rule in the jobs: called for progress, results, ledger, evidence and reports.
A partial file is `_NAME.partial` beside its place, which no reader's pattern matches and `uploads`
leaves out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the path to write to. At the end of `with` the file there replaces that at `path`;
    after an error it stays where it is."""
    partial = path.with_name(f"_{path.name}.partial")
    yield partial
    partial.replace(path)


def put_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a whole file. `durable`: True to have its content on the disk before it gets its name,
    so that it is whole after a loss of power, too. Raises OSError."""
    with whole_file(path) as partial, partial.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
