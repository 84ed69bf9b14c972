"""Jobs that end by themselves: a Verification's driver reports a verdict, or fails.

What a driver does between a Job and its report is not simulated; its clients would be a run's own.
"""

from __future__ import annotations

import json
import random

from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found, target, write_status
from plimsoll_operator.api_server.store import ObjectChange, StoredObject
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CONFIG_MAPS, JOBS
from plimsoll_sim.engine.loop import SimLoop

DRIVER_US = (1_000_000, 8_000_000)
"""Shortest and longest time of each half of a driver's life."""
FAILED_SHARE = 0.3
"""The share of drivers that end without a verdict."""


class Jobs:
    """The Job controller and what its pods do, as far as an operator can see them."""

    def __init__(self, loop: SimLoop, rng: random.Random, server: MemoryApiServer) -> None:
        self._loop = loop
        self._rng = rng
        self._server = server
        server.store.observers.append(self._stored)

    def _stored(self, change: ObjectChange) -> None:
        if change.resource.kind == JOBS and change.type == "ADDED":
            progress = {"phase": "Verifying", "counts": {"sent": 10, "acked": 10}}
            self._later(change.after, {"progress.json": progress})

    def _later(self, job: StoredObject, report: dict[str, Object]) -> None:
        self._loop.later(self._rng.randint(*DRIVER_US), lambda: self._report(job, report))

    def _report(self, job: StoredObject, report: dict[str, Object]) -> None:
        """Write it, unless the Job is gone; a verdict follows progress."""
        now = found(self._server, JOBS, *job.key)
        if now is None or now.metadata["uid"] != job.metadata["uid"]:
            return
        if self._rng.random() < FAILED_SHARE:
            self._end(now, "Failed")
            return
        self._write(now, report)
        if "verdict.json" in report:
            self._end(now, "Complete")
        else:
            verdict = {"verdict": "Passed", "counts": {"sent": 10, "acked": 10, "read": 10}}
            self._later(job, {"verdict.json": verdict})

    def _write(self, job: StoredObject, report: dict[str, Object]) -> None:
        name = job.key[1].removesuffix("-driver") + "-report"
        known = found(self._server, CONFIG_MAPS, job.key[0], name)
        if known is not None and not known.metadata.get("deletionTimestamp"):
            data = {key: json.dumps(value) for key, value in report.items()}
            where = target(self._server, CONFIG_MAPS, *known.key)
            self._server.writes.replace(where, {**known.body, "data": data}, dry_run=False)

    def _end(self, job: StoredObject, how: str) -> None:
        condition = {"type": how, "status": "True"}
        write_status(self._server, job, {"conditions": [condition]})
