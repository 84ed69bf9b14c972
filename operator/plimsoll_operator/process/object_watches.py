"""Handles watch events of the users' objects, and watches these objects for hosts that do not run
kopf.

An event is handled on the main loop: its object is cached, and queued for reconciliation if this
process leads its cluster. A local cluster and the simulator have their API server in memory and
watch it through a `KubeApi`. After a lost watch, the new list reports every existing object;
`resync` finds an object that was deleted meanwhile, as with kopf.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Any

from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import KubeApi, Listed, Object, follow
from plimsoll_operator.kube.resources import LOG_CLUSTERS, WATCHED_KINDS, Kind
from plimsoll_operator.kube.seen_objects import Key, Objects, key_of
from plimsoll_operator.process.supervisor import ClusterSupervisor
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.registry import BY_RESOURCE

Event = dict[str, Any]


class WatchReceiver:
    """Handles the watch events of all users' objects of one operator process. `take` must be called
    in the order of their arrival."""

    def __init__(self, objects: Objects, clusters: ClusterSupervisor) -> None:
        self._objects = objects
        self._clusters = clusters

    def take(self, kind: Kind, event: Event) -> None:
        """Handle one event: cache its object, or drop a deleted one, and queue it for
        reconciliation if this process leads its cluster. A LogCluster's worker is started or
        stopped too. `event`: as the API server sends it; for a listed object, with any type but
        `DELETED`."""
        gone, body, key = _read(event)
        if kind is LOG_CLUSTERS:
            self._take_cluster(gone, body, key)
            return
        row = BY_RESOURCE[kind]
        shelf = row.shelf(self._objects)
        seen = shelf.drop(key) if gone else shelf.put(body)
        if seen is not None:
            self._clusters.offer(seen.cluster_key, Work(row.task, key))

    def _take_cluster(self, gone: bool, body: Object, key: Key) -> None:
        if gone:
            self._objects.clusters.drop(key)
            self._clusters.gone(key)
        elif cluster := self._objects.clusters.put(body):
            self._clusters.seen(cluster)
            self._clusters.offer(cluster.key, Work(Task.CLUSTER, cluster.key))


def _read(event: Event) -> tuple[bool, Object, Key]:
    """Return the parts of an event: True if the object was deleted, the object, and its key."""
    body = dict(event["object"])
    return event.get("type") == "DELETED", body, key_of(body)


logger = logging.getLogger("plimsoll.watches")

AGAIN_SECONDS = 1.0


class ObjectWatches:
    """A `process.operator.UserWatches` that lists and watches all namespaces through a
    `KubeApi`."""

    def __init__(self, kube: KubeApi, receiver: WatchReceiver) -> None:
        self._kube = kube
        self._receiver = receiver
        self._listed: set[Kind] = set()

    @property
    def ready(self) -> bool:
        """Return True once every kind has been listed."""
        return len(self._listed) == len(WATCHED_KINDS)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in WATCHED_KINDS:
                group.create_task(self._follow(kind))

    async def _follow(self, kind: Kind) -> None:
        while True:
            try:
                await self._look(kind)
            except ApiError as error:
                logger.info(
                    "the operator's watch of %s ended; it starts the watch again: %s",
                    kind.plural,
                    error,
                )
                await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self, kind: Kind) -> None:
        """Handle one list of the objects of `kind` and the watch events after it. Return when the
        watch has expired and another list is needed. Raises ApiError."""
        async with aclosing(follow(self._kube, kind)) as told:
            async for seen in told:
                if isinstance(seen, Listed):
                    for body in seen.items:
                        self._receiver.take(kind, {"type": "ADDED", "object": body})
                    self._listed.add(kind)
                else:
                    self._receiver.take(kind, seen)
