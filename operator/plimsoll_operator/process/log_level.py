"""Applies the log level in the chart's ConfigMap, which may change at any time.

The kubelet updates the mounted file within about 90 seconds of a change.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from plimsoll_process.log_lines import LineOutput

LOOK_S = 2.0
FILE_BYTES_MAX = 64


async def follow(path: Path, output: LineOutput) -> None:
    """Read the log level from the file every `LOOK_S` seconds and apply it, until cancelled. While
    the file is absent or empty, the level is the one with which the process was started; while it
    cannot be read for another reason, the last level stays."""
    while True:
        with contextlib.suppress(OSError):  # unreadable now: keep the level
            output.write(await asyncio.to_thread(_read, path), "")
        await asyncio.sleep(LOOK_S)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
