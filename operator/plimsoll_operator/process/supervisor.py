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
from functools import partial
from typing import Any
from uuid import UUID

from plimsoll_operator.api.cluster_ids import cluster_id, kafka_id
from plimsoll_operator.api.labels import owner, short_id
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError, Unavailable
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.candidate import Candidate
from plimsoll_operator.leadership.cluster_identity import Claimants, identity_of, objection
from plimsoll_operator.leadership.lease import Lease
from plimsoll_operator.leadership.led_cluster import LedCluster
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.reconcile.reconcile_term import Work
from plimsoll_process.waits import cancelled

logger = logging.getLogger("plimsoll.supervisor")

CRASH_BACKOFF_S = 5.0
STOP_S_MAX = 5.0
IDENTITY_AGAIN_S = 0.5
FOUND = "ClusterFound"
"""Reason of a status for the moment in which an object turns out to be another cluster."""


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
        costs = (
            f"the leadership of LogCluster {'/'.join(found.key)}; an operator takes over again "
            f"within {CRASH_BACKOFF_S:g} s"
        )
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

    async def forever(self) -> None:
        """Find out which cluster the object is, and compete for its leadership, until cancelled. If
        another answer is found later, begin again with that."""
        cluster = await self._identity()
        while True:
            cluster = await self._as(cluster)

    async def _as(self, cluster: UUID) -> UUID:
        """Compete for the leadership of this cluster id until the object turns out to be another
        cluster. Return that one's id."""
        self._remember(cluster)
        parts, (namespace, name) = self._parts, self._found.key
        lease_name = f"{name}-{short_id(cluster)}"
        lease = Lease(
            parts.lease_kube,
            namespace=namespace,
            name=lease_name,
            identity=parts.options.identity,
            wall_ms=parts.now_ms,
            owners=owner("LogCluster", name, self._found.metadata.uid),
        )
        lease.waited_ms = parts.waited_ms
        log = parts.metadata_log(self._found.key, cluster)
        other: asyncio.Future[UUID] = asyncio.get_running_loop().create_future()
        leader = LedCluster(parts, self._found, cluster, log, lease_name)
        asked = partial(self._objection, cluster, other)
        candidate = Candidate(lease, leader, asked, alone=parts.alone)
        competing = asyncio.ensure_future(candidate.forever())
        try:
            watched: set[asyncio.Future[Any]] = {competing, other}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if competing.done():
                competing.result()
            return other.result()
        finally:
            await cancelled(competing)
            await log.close()
            parts.continued.pop(self._found.key, None)

    def _remember(self, cluster: UUID) -> None:
        if cluster != cluster_id(self._found):
            logger.info(
                "LogCluster %s continues cluster %s, which left volumes in the LogCluster's "
                "namespace",
                *("/".join(self._found.key), cluster),
            )
            self._parts.continued[self._found.key] = cluster

    async def _identity(self) -> UUID:
        """Return which cluster the object is. Retry until the API server answers."""
        while True:
            try:
                return await self._look()
            except ApiError as error:
                logger.info(
                    "the operator cannot determine the cluster id of LogCluster %s and tries "
                    "again: %s",
                    *("/".join(self._found.key), error),
                )
            await asyncio.sleep(IDENTITY_AGAIN_S)

    def _claimants(self) -> Claimants:
        parts = self._parts
        return Claimants(
            clusters=parts.objects.clusters,
            continued=parts.continued,
            authorities_in=parts.options.namespace,
        )

    async def _look(self) -> UUID:
        return await identity_of(self._parts.kube, self._found, self._claimants())

    async def _objection(
        self, cluster: UUID, other: asyncio.Future[UUID]
    ) -> tuple[str, str] | None:
        """Return why the object must not be led as this cluster id, or None. If it is another
        cluster by now, set the result of `other`."""
        try:
            found = await self._look()
            if found != cluster:
                if not other.done():
                    other.set_result(found)
                return FOUND, (
                    "The operator found volumes of the earlier cluster with id "
                    f"{kafka_id(found)}, so the LogCluster continues that cluster."
                )
            return await objection(self._parts.kube, self._found, self._claimants(), cluster)
        except Unavailable:
            raise  # no objection to leading: the check is retried
        except ApiError as error:
            return "ApiRefuses", (
                "The API server rejected a request by which the operator checks whether it may "
                "lead this LogCluster, so no operator leads it. Remove the cause (quota, admission "
                f"or RBAC); the operator tries again: {error}"
            )


def _identity(found: LogCluster) -> tuple[str, UUID]:
    """Return the object's uid and its cluster id. If either changes, the worker is replaced."""
    return found.metadata.uid, cluster_id(found)
