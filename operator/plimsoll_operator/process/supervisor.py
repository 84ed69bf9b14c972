"""Runs a worker for every LogCluster, which leads the cluster whenever it holds the cluster's
Lease.

There is one worker per LogCluster object (by uid). It competes for the Lease named by the cluster
id, leads until the Lease is lost or the controller ends, and then competes again. A worker steps
down without ending the process. A failure of one cluster does not affect the others.
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
    """The worker of one LogCluster. `task`: runs until it is cancelled or fails; `again`: the timer
    that restarts a failed one."""

    identity: tuple[str, UUID]
    task: asyncio.Task[None]
    again: asyncio.TimerHandle | None = None


class ClusterSupervisor:
    """Starts and stops the workers of one operator process, one for each LogCluster."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._workers: dict[Key, _Worker] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def seen(self, found: LogCluster) -> None:
        """Start a worker for a LogCluster that has none. If the object was recreated or its cluster
        id was changed, replace the worker; if it is being deleted, stop it."""
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
        """Cancel the worker of a deleted LogCluster, which then steps down; do not wait for it. Do
        nothing if there is no worker. The metadata log and the volumes stay."""
        worker = self._workers.pop(key, None)
        if worker is None:
            return
        if worker.again is not None:
            worker.again.cancel()
        self._ending.add(worker.task)
        worker.task.add_done_callback(self._ending.discard)
        worker.task.cancel()

    def offer(self, key: Key, work: Work, after_ms: int = 0) -> None:
        """Queue `work` at the leader of the cluster `key` after `after_ms` milliseconds (0: at
        once). Do nothing if this process does not lead the cluster now."""
        leader = self._parts.leaders.get(key)
        if leader is not None:
            leader.offer(work, after_ms)

    async def stop(self) -> None:
        """Stop all workers, and wait until they have stepped down and released their Leases, at
        most `STOP_S_MAX` seconds."""
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
        """Handle the end of a worker's task. If it failed, which only a bug can cause, log the
        error and, unless the worker was stopped or replaced, start another one after
        `CRASH_BACKOFF_S` seconds. If it was cancelled, do nothing."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        costs = f"the leadership of {'/'.join(found.key)}; retried in {CRASH_BACKOFF_S:g} s"
        self._parts.server.failures.met("Leading", error, costs)
        worker = self._workers.get(found.key)
        if worker is not None and worker.task is task:
            loop = asyncio.get_running_loop()
            worker.again = loop.call_later(CRASH_BACKOFF_S, self._start, found)


class _Run:
    """The loop of one worker: candidate and leader of one LogCluster, in turn, for as long as the
    object exists."""

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
    """Return the object's uid and its cluster id. If either changes, the worker is replaced."""
    return found.metadata.uid, cluster_id(found)
