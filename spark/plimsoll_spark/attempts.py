"""The fence between the drivers of one run: each takes a number, and the highest number counts.

Called by `evidence` and `uploads`. Kubernetes may start a driver while an earlier one still runs:
the node of a pod is deleted, and the process goes on. Before a driver looks at anything, it claims
a number in its report (`publish`). Then it creates a marker in the evidence of its run; no two can
create one marker, and each holds the claim of its driver, so a driver that was paused before it
created one never comes after a driver that claimed later. Before each write it looks for a higher
marker.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll_spark.bucket import Bucket
from plimsoll_spark.whole_files import created

MARKERS = "attempts"
"""The directory of the markers in that of the run."""
TRIES = 20
"""Bound on the markers that are tried while other drivers create some at the same time."""


class Superseded(Exception):
    """Another driver works on the run; this one must write nothing more. The text is a sentence
    without an end."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one driver among those of its report. `report`: the uid of the ConfigMap, ""
    without one: then drivers have no order. `number`: of the driver; the highest one counts.
    `texts`: what the report held before."""

    report: str = ""
    number: int = 0
    texts: Mapping[str, str] = {}


UNORDERED = Claim()


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a marker: the claim of its driver, and a random text of its own."""

    report: str = ""
    claim: int = 0
    id: str = ""


class Attempt:
    """The number of one driver of a run."""

    def __init__(
        self, run: str, directory: Path, bucket: Bucket | None, claim: Claim = UNORDERED
    ) -> None:
        """`directory`: that of the run; `bucket`: where the run is kept, None: in the
        directory."""
        self.number = 0  # none is taken
        self._run = run
        self._directory = directory / MARKERS
        self._bucket = bucket
        self._marker = _Marker(report=claim.report, claim=claim.number, id=uuid.uuid4().hex)

    def take(self, least: int) -> int:
        """Take the lowest number from `least` on that is above all taken ones, and return it. A
        driver that died after this has left its marker and perhaps nothing else. Raises
        `Superseded` if a driver with a later claim has taken one, or if another driver takes the
        number at the same time and neither has a claim; OSError, `Unreachable`."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(TRIES):
            newest = self._newest()
            if newest:
                self._refuse_later(newest)
            number = max(least, newest + 1)
            if self._create(number):
                self.number = number
                return number
            if not self._marker.report:
                break
        raise Superseded(
            f"another driver of the Verification's run {self._run} began at the same time and "
            f"has the number {number}; this one ends and has written nothing"
        )

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

    def _create(self, number: int) -> bool:
        """Create a marker. Return False if another driver has that number."""
        name, content = f"{number:06d}", msgspec.json.encode(self._marker)
        if self._bucket is not None:
            return self._bucket.create(self._run, f"{MARKERS}/{name}", content)
        return created(self._directory / name, content)

    def _refuse_later(self, number: int) -> None:
        """Raise `Superseded` if the marker of this number is that of a driver with a later claim to
        the same report. A marker that cannot be read is of an earlier release, or of a driver that
        died while it created it."""
        name = f"{number:06d}"
        if self._bucket is not None:
            content = self._bucket.read(self._run, f"{MARKERS}/{name}")
        else:
            path = self._directory / name
            content = path.read_bytes() if path.exists() else None
        try:
            marker = msgspec.json.decode(content or b"{}", type=_Marker)
        except msgspec.DecodeError:
            return
        mine = self._marker
        if mine.report and marker.report == mine.report and marker.claim > mine.claim:
            raise Superseded(
                f"this driver of the Verification's run {self._run}, number {mine.claim} by its "
                f"report, ends and has written nothing, since a later one, number {marker.claim}, "
                "has begun"
            )

    def _newest(self) -> int:
        if self._bucket is not None:
            names = self._bucket.names(self._run, MARKERS)
        else:
            names = os.listdir(self._directory) if self._directory.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=0)
