"""Files whose names come from objects: each lies in the folder that is meant, and nowhere else.

The API server checks how names are spelt (`api_server.name_rules`), but takes as it is what an
earlier run has kept.  So whoever makes a path of a name asks here.
"""

from __future__ import annotations

import errno
from pathlib import Path


class OutsideFolder(OSError):
    """A name leads out of its folder."""


def within(folder: Path, name: str) -> Path:
    """The entry `name` of `folder` itself, which may not be there yet.  Raises OutsideFolder."""
    path = folder / name
    try:
        inside = path.resolve().parent == folder.resolve() and path.name == name
    except (ValueError, RuntimeError):  # a zero byte, or links in a circle
        inside = False
    if not inside:
        raise OutsideFolder(errno.EPERM, f"{name[:80]!r} is not the name of a file in {folder}")
    return path
