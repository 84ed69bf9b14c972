"""Compares the cached objects with a fresh list every 30 s, to find what the watches missed.

A watch that was disconnected while an object was deleted never reports the deletion. The list only
decides which objects are *reconciled*; other modules prove whether an absent object was deleted.
"""

from __future__ import annotations

import asyncio
import logging

from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import Object, list_watched
from plimsoll_operator.kube.resources import LOG_CLUSTERS, Kind
from plimsoll_operator.kube.seen_objects import Key, key_of
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.process.supervisor import ClusterSupervisor
from plimsoll_operator.reconcile.reconcile_term import Work
from plimsoll_operator.reconcile.registry import OF_A_CLUSTER

logger = logging.getLogger("plimsoll.resync")

PERIOD_SECONDS = 30


async def resync(parts: Parts, clusters: ClusterSupervisor) -> None:
    """Every `PERIOD_SECONDS`, until cancelled, list the objects of all kinds and update the cache:
    store what the lists contain, drop and queue each cached object that they lack, and start or
    stop the workers of LogClusters. A failed list is logged; the next period repeats it."""
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        try:
            await _compare(parts, clusters)
        except ApiError as error:
            logger.info(
                "the operator cannot compare its cache of Kubernetes objects with the API "
                "server, and tries again: %s",
                error,
            )


async def _compare(parts: Parts, clusters: ClusterSupervisor) -> None:
    objects = parts.objects
    listed = {key_of(o): o for o in await _all(parts, LOG_CLUSTERS)}
    for body in listed.values():
        if cluster := objects.clusters.put(body):
            clusters.seen(cluster)
    for known in [c for c in objects.clusters if c.key not in listed]:
        if await _is_gone(parts, LOG_CLUSTERS, known.key):
            objects.clusters.drop(known.key)
            clusters.gone(known.key)
    for kind in OF_A_CLUSTER:
        shelf = kind.shelf(objects)
        listed = {key_of(o): o for o in await _all(parts, kind.resource)}
        for body in listed.values():
            shelf.put(body)
        for found in [f for f in shelf if f.key not in listed]:
            shelf.drop(found.key)
            clusters.offer(found.cluster_key, Work(kind.task, found.key))


async def _all(parts: Parts, kind: Kind) -> tuple[Object, ...]:
    return (await list_watched(parts.kube, kind, parts.options.namespaces)).items


async def _is_gone(parts: Parts, kind: Kind, key: Key) -> bool:
    """Return True if the object does not exist, by a new read: a watch may have delivered it after
    the list was made. Raises ApiError."""
    try:
        await parts.kube.get(kind, *key)
    except NotFound:
        return True
    return False
