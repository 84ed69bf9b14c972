"""A small file system of its own for a test that fills it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

VOLUME_BYTES = 256 * 1024 * 1024
BLOCK = bytes(64 * 1024)


class Volume:
    """A small file system of its own; `ballast` takes its space and gives it back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, *, left: int) -> None:
        """Leave so much."""
        with self._ballast.open("ab", buffering=0) as file:
            while self.free > left:
                try:
                    file.write(BLOCK[: self.free - left])
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def mounted(path: Path) -> Iterator[Volume]:
    """Skips where mounting is not permitted."""
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES},mode=0700", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        pytest.skip(f"a small file system cannot be mounted here: {said}")
    try:
        yield Volume(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)
