"""Mounts Secrets of a broker's pod as files of this machine, as a kubelet does.

All files of a Secret change at once, by a link; only the owner can read them. Called for as long as
the pod runs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from plimsoll_operator.local.confined import within

LINK = "..data"


def mount(directory: Path, version: str, files: Mapping[str, bytes]) -> None:
    """Make `directory` hold exactly these files. `version`: the Secret's. Raises OSError."""
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    place, link = directory / f"..{version}", directory / LINK
    if link.is_symlink() and os.readlink(link) == place.name:
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for name, data in files.items():
        descriptor = os.open(within(place, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    before = os.readlink(link) if link.is_symlink() else None
    new = directory / f"{LINK}.tmp"
    new.unlink(missing_ok=True)
    new.symlink_to(place.name)
    new.replace(link)
    if before is not None and before != place.name:
        shutil.rmtree(directory / before, ignore_errors=True)
