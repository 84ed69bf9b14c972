"""The level of the operator's log lines, which the chart's ConfigMap says and may change any time.

The kubelet brings a changed ConfigMap into the running pod within about a minute and a half.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from plimsoll_process.log_lines import LineOutput

logger = logging.getLogger("plimsoll.lines")

LOOK_S = 2.0
FILE_BYTES_MAX = 64


async def follow(path: Path, output: LineOutput) -> None:
    """Until it is cancelled.  No file, or no level in it: as the process was started."""
    while True:
        with contextlib.suppress(OSError):  # it cannot be read now: the level stays
            output.write(await asyncio.to_thread(_read, path), "")
        await asyncio.sleep(LOOK_S)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
