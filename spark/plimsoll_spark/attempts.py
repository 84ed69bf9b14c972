"""The fence between the drivers of one run: each takes a number, and the highest number counts.

Called by `evidence` and `uploads`. Kubernetes may start a driver while an earlier one still runs:
the node of a pod is deleted, and the process goes on. A driver creates the marker of its number
before it writes anything else; no two can create one marker. Before each write it looks for a
higher one.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from plimsoll_spark.bucket import Bucket
from plimsoll_spark.whole_files import created

MARKERS = "attempts"
"""The directory of the markers in that of the run."""


class Superseded(Exception):
    """Another driver works on the run; this one must write nothing more. The text is a sentence
    without an end."""


class Attempt:
    """The number of one driver of a run."""

    def __init__(self, run: str, directory: Path, bucket: Bucket | None) -> None:
        """`directory`: that of the run; `bucket`: where the run is kept, None: in the directory."""
        self.number = 0  # none is taken
        self._run = run
        self._directory = directory / MARKERS
        self._bucket = bucket
        self._id = uuid.uuid4().hex

    def take(self, least: int) -> int:
        """Take the lowest number from `least` on that is above all taken ones, and return it. A
        driver that died after this has left its marker and perhaps nothing else. Raises
        `Superseded` if another driver takes the number at the same time, OSError,
        `Unreachable`."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max(least, self._newest() + 1)
        name = f"{number:06d}"
        if self._bucket is not None:
            is_mine = self._bucket.create(self._run, f"{MARKERS}/{name}", self._id.encode())
        else:
            is_mine = created(self._directory / name, self._id.encode())
        if not is_mine:
            raise Superseded(
                f"another driver of the Verification's run {self._run} began at the same time and "
                f"has the number {number}; this one ends and has written nothing"
            )
        self.number = number
        return number

    def check(self) -> None:
        """Raises `Superseded` if a later driver has begun, or if another one has deleted the run;
        OSError, `Unreachable`."""
        newest = self._newest()
        if newest == self.number:
            return
        now = f"a later one, number {newest}, has begun" if newest else "its evidence is deleted"
        raise Superseded(
            f"this driver of the Verification's run {self._run}, number {self.number}, ends and "
            f"writes nothing more, since {now}"
        )

    def _newest(self) -> int:
        if self._bucket is not None:
            names = self._bucket.names(self._run, MARKERS)
        else:
            names = os.listdir(self._directory) if self._directory.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=0)
