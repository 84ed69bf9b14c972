"""Supervises every LogCluster from its first sight to leadership, and back.

One worker per object (by uid): it is a candidate for the Lease named by the cluster id, then the
leader until the Lease or the controller ends, then a candidate again. A worker steps down without
ending the process. A failure of one cluster does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from uuid import UUID

from plimsoll_operator.api.cluster_ids import cluster_id
from plimsoll_operator.api.labels import owner, short_id
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError, Unavailable
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.candidate import Candidate
from plimsoll_operator.leadership.cluster_identity import objection
from plimsoll_operator.leadership.lease import Lease
from plimsoll_operator.leadership.led_cluster import LedCluster
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.reconcile.reconcile_term import Work

logger = logging.getLogger("plimsoll.supervisor")

CRASH_BACKOFF_S = 5.0
STOP_S_MAX = 5.0


@dataclass(slots=True)
class _Worker:
    """`task` runs until it is cancelled; `again` restarts it after a bug."""

    identity: tuple[str, UUID]
    task: asyncio.Task[None]
    again: asyncio.TimerHandle | None = None


class ClusterSupervisor:
    """The workers of one operator process, by LogCluster."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._workers: dict[Key, _Worker] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def seen(self, found: LogCluster) -> None:
        """Start a worker for a new LogCluster, or replace it if the object's identity changed."""
        if found.metadata.deletion_timestamp:
            self.gone(found.key)
            return
        worker = self._workers.get(found.key)
        if worker is not None and worker.identity != _identity(found):
            self.gone(found.key)
            worker = None
        if worker is None:
            self._start(found)

    def gone(self, key: Key) -> None:
        """Stop the controller of a deleted LogCluster; its log and volumes stay."""
        worker = self._workers.pop(key, None)
        if worker is None:
            return
        if worker.again is not None:
            worker.again.cancel()
        self._ending.add(worker.task)
        worker.task.add_done_callback(self._ending.discard)
        worker.task.cancel()

    def offer(self, key: Key, work: Work, after_ms: int = 0) -> None:
        """Queue work for the cluster `key` if this process leads it."""
        leader = self._parts.leaders.get(key)
        if leader is not None:
            leader.offer(work, after_ms)

    async def stop(self) -> None:
        """Step down everywhere and release every Lease."""
        for key in list(self._workers):
            self.gone(key)
        if self._ending:
            await asyncio.wait(list(self._ending), timeout=STOP_S_MAX)

    def _start(self, found: LogCluster) -> None:
        run = _Run(self._parts, found)
        task = asyncio.get_running_loop().create_task(run.forever())
        self._workers[found.key] = _Worker(_identity(found), task)
        task.add_done_callback(lambda done: self._ended(found, done))

    def _ended(self, found: LogCluster, task: asyncio.Task[None]) -> None:
        """Report a worker's bug and restart it later. A worker never returns: it was cancelled or
        it failed."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        costs = f"the leadership of {'/'.join(found.key)}; retried in {CRASH_BACKOFF_S:g} s"
        self._parts.server.failures.met("Leading", error, costs)
        worker = self._workers.get(found.key)
        if worker is not None and worker.task is task:
            loop = asyncio.get_running_loop()
            worker.again = loop.call_later(CRASH_BACKOFF_S, self._start, found)


class _Run:
    """Leads one LogCluster object as long as it exists."""

    def __init__(self, parts: Parts, found: LogCluster) -> None:
        self._parts = parts
        self._found = found
        self._id = cluster_id(found)
        namespace, name = found.key
        lease_name = f"{name}-{short_id(self._id)}"
        lease = Lease(
            parts.lease_kube,
            namespace=namespace,
            name=lease_name,
            identity=parts.options.identity,
            wall_ms=parts.now_ms,
            owners=owner("LogCluster", name, found.metadata.uid),
        )
        lease.waited_ms = parts.waited_ms
        self._log = parts.metadata_log(found.key, self._id)
        leader = LedCluster(parts, found, self._id, self._log, lease_name)
        self._candidate = Candidate(lease, leader, self._objection, alone=parts.alone)

    async def forever(self) -> None:
        try:
            await self._candidate.forever()
        finally:
            await self._log.close()

    async def _objection(self) -> tuple[str, str] | None:
        try:
            others, namespace = self._parts.objects.clusters, self._parts.options.namespace
            return await objection(self._parts.kube, self._found, others, namespace)
        except Unavailable:
            raise  # no objection to leading: the check is retried
        except ApiError as error:
            return "ApiRefuses", f"The API server rejected a request: {error}"


def _identity(found: LogCluster) -> tuple[str, UUID]:
    """Return the object's uid and the cluster id of its log; if either changes, it is led anew."""
    return found.metadata.uid, cluster_id(found)
