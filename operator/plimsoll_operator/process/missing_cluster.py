"""Writes the status of objects that no leader reports on: objects without an existing LogCluster,
and objects that cannot be decoded.

Every replica of the operator does this, and writes a status only if the object does not show it
yet. A Topic that is applied before its LogCluster waits, and does not fail: the cluster's later
leader writes a new status. An ended object (a Reassignment, Rebalance or Verification) is left
alone: a verdict outlives its cluster.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from plimsoll_core.errors import Reason
from plimsoll_operator.api.conditions import condition, has_ended, merge
from plimsoll_operator.api.meta import Condition, ObjectMeta
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS, Kind
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.reconcile.registry import BY_RESOURCE, KINDS, OF_A_CLUSTER

logger = logging.getLogger("plimsoll.missing_cluster")

PERIOD_SECONDS = 3.0
WRITES_PER_SECOND = 5
NOT_LED = "ClusterNotLed"


async def look_after_strays(parts: Parts) -> None:
    """Call `look_at_strays` every `PERIOD_SECONDS`, until cancelled."""
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        await look_at_strays(parts)


async def look_at_strays(parts: Parts) -> None:
    """Check all cached objects once. Write a Ready=False condition to each that has no LogCluster,
    cannot be decoded, or is a Topic of a LogCluster that no operator can lead. Objects that show
    the condition already, and ended ones, are left alone; failures are logged."""
    objects = parts.objects
    for kind in OF_A_CLUSTER:
        shelf = kind.shelf(objects)
        for found in [one for one in shelf if _is_stray(parts, one.cluster_key)]:
            shown = shelf.conditions(found.key)
            if not has_ended(shown):
                await _tell(parts, kind.resource, found.metadata, found.cluster_key, shown)
    for topic in [t for t in objects.topics if t.cluster_key not in parts.leaders]:
        shown = objects.topics.conditions(topic.key)
        if _shows(shown, not_found(topic.cluster_key)):
            await _tell_not_led(parts, topic.metadata, topic.cluster_key, shown)
    for kind in KINDS:
        for unread in kind.shelf(objects).lost():
            new = condition("Ready", False, INVALID_SPEC, unread.sentence)
            if not (_shows(unread.conditions, new) or has_ended(unread.conditions)):
                await _write(parts, kind.resource, unread.metadata, new, unread.conditions)


def _is_stray(parts: Parts, cluster: Key) -> bool:
    return parts.objects.clusters.get(cluster) is None


async def _tell(
    parts: Parts, kind: Kind, meta: ObjectMeta, cluster: Key, shown: tuple[Condition, ...]
) -> None:
    new = not_found(cluster)
    if _shows(shown, new):
        return
    try:
        if await _exists(parts, cluster):
            return
    except ApiError as error:
        logger.info(
            "the operator cannot check whether the LogCluster of %s %s exists, and tries again "
            "later: %s",
            *(kind.kind, meta.name, error),
        )
    else:
        await _write(parts, kind, meta, new, shown)


async def _tell_not_led(
    parts: Parts, meta: ObjectMeta, cluster: Key, shown: tuple[Condition, ...]
) -> None:
    """Write a Ready=False condition to a Topic if its LogCluster shows Stalled as True and Ready as
    False, so that no operator leads it. Do nothing otherwise, or if the LogCluster cannot be
    read."""
    try:
        found = await parts.kube.get(LOG_CLUSTERS, *cluster)
    except ApiError:
        return
    conditions = (found.get("status") or {}).get("conditions") or ()
    by_type = {c["type"]: c for c in conditions}
    stalled, ready = by_type.get("Stalled") or {}, by_type.get("Ready") or {}
    if stalled.get("status") == "True" and ready.get("status") == "False":
        text = (
            f"No operator leads LogCluster {cluster[0]}/{cluster[1]}, so this object is not "
            f"applied: {stalled['message']}"
        )
        new = condition("Ready", False, NOT_LED, text)
        await _write(parts, TOPICS, meta, new, shown)


def _shows(shown: tuple[Condition, ...], new: Condition) -> bool:
    return any((c.type, c.reason, c.message) == (new.type, new.reason, new.message) for c in shown)


async def _write(
    parts: Parts, kind: Kind, meta: ObjectMeta, new: Condition, shown: tuple[Condition, ...]
) -> None:
    """Write the object's status with the conditions `shown` and, in place of one of its type,
    `new`; then wait, to limit the rate of writes. A failure is logged; a later round repeats the
    write."""
    try:
        conditions = merge(shown, [new], meta.generation, parts.now_ms())
        empty = BY_RESOURCE[kind].status
        status = empty(observed_generation=meta.generation, conditions=conditions)
        body = msgspec.to_builtins(status)
        await parts.status_kube.apply_status(
            kind, meta.namespace, meta.name, body, version=meta.resource_version
        )
    except ApiError as error:
        logger.info(
            "the operator cannot write the status of %s %s and tries again later: %s",
            *(kind.kind, meta.name, error),
        )
    await asyncio.sleep(1 / WRITES_PER_SECOND)


async def _exists(parts: Parts, cluster: Key) -> bool:
    """Return True if the LogCluster exists, by a read of the API server: the watch may not have
    delivered it yet. Raises ApiError."""
    try:
        await parts.kube.get(LOG_CLUSTERS, *cluster)
    except NotFound:
        return False
    return True


def not_found(cluster: Key) -> Condition:
    """Return the condition that says that the LogCluster `cluster` does not exist."""
    text = (
        f"LogCluster {cluster[0]}/{cluster[1]}, which this object names, does not exist. The "
        "operator applies the object when that LogCluster is created."
    )
    return condition("Ready", False, Reason.ClusterNotFound.name, text)
