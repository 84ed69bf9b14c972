"""Confines files named by objects to their folder.

The API server checks the spelling of names (`api_server.name_rules`), but restores objects of an
earlier run unchecked. So every path that contains a name is built here.
"""

from __future__ import annotations

import errno
from pathlib import Path


class OutsideFolder(OSError):
    """A name leads out of its folder."""


def within(folder: Path, name: str) -> Path:
    """Return the entry `name` of `folder` itself, which may not exist yet. Raises OutsideFolder."""
    path = folder / name
    try:
        inside = path.resolve().parent == folder.resolve() and path.name == name
    except (ValueError, RuntimeError):  # a zero byte, or links in a circle
        inside = False
    if not inside:
        raise OutsideFolder(errno.EPERM, f"{name[:80]!r} is not the name of a file in {folder}")
    return path
