"""Writes a file that gets its name only when it is complete: a reader sees it whole or not at all,
and a process that dies leaves no partial file of that name.

The only place of this rule in the jobs: called for progress, results, ledger, evidence and reports.
A partial file is `_NAME.RANDOM.partial` beside its place, which no reader's pattern matches and
`uploads` leaves out. No two writers have one partial file: two drivers may write in one directory.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the path to write to. At the end of `with` the file there replaces that at `path`;
    after an error it is deleted."""
    partial = path.with_name(f"_{path.name}.{uuid.uuid4().hex[:12]}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def put_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a whole file. `durable`: True to have its content on the disk before it gets its name,
    and its name there at the end, so that it is found whole after a loss of power, too. Raises
    OSError."""
    with whole_file(path) as partial, partial.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if durable:
        _sync_directory(path.parent)


def created(path: Path, content: bytes) -> bool:
    """Create a file, durable as with `put_whole`. A reader may see a part of it. Return False if
    there is one of that name. Raises OSError."""
    try:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    _sync_directory(path.parent)
    return True


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
