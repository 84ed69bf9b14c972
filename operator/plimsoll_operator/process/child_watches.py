"""Watches the objects that the operator made, and namespaces, so that the operator reacts to a
change within seconds.

The watches carry metadata only, of objects with a cluster's label. A change queues the cluster for
reconciliation; the reconciler reads the objects afresh. Every operator process watches, but only
the cluster's leader reconciles. The leader's periodic reconciliation finds changes that a watch
missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from contextlib import aclosing
from dataclasses import dataclass, field

from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import Listed, Object, follow
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    METADATA_BATCHES,
    METADATA_SNAPSHOTS,
    NAMESPACES,
    NETWORK_POLICIES,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
    Kind,
)
from plimsoll_operator.kube.seen_objects import Key, key_of
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.process.supervisor import ClusterSupervisor
from plimsoll_operator.reconcile.reconcile_term import Task, Work

LOG_SETTLES_MS = 1_000
"""Delay in milliseconds from the deletion of an object of a metadata log to the check of that log.
Usually many objects are deleted together; one snapshot then repairs them all, and one Event reports
them."""
logger = logging.getLogger("plimsoll.child_watches")

CHILDREN = (
    STATEFUL_SETS,
    SERVICES,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    VOLUME_CLAIMS,
)
LOG = (METADATA_BATCHES, METADATA_SNAPSHOTS)
AGAIN_SECONDS = 2.0
REFUSED_SECONDS = 60.0
"""Delay in seconds before a list that the API server refused is repeated. The operator's roles may
be those of an earlier release, and be updated later."""


@dataclass(slots=True)
class SeenChildren:
    """The objects of one kind as a watch last delivered them, and the changes that are not handled
    yet. `marks`: for each object the parts of its metadata that count as a change (`_mark`), and
    the cluster in its label; None before the first list."""

    kind: Kind
    marks: dict[Key, tuple[Hashable, str]] | None = None
    changed: list[tuple[Key, str, bool]] = field(default_factory=list)
    """Changes not handled yet: (the object's key, the cluster in its label, True if it was
    deleted)."""

    def list(self, items: tuple[Object, ...]) -> None:
        """Update `marks` from a complete list of the kind, and add to `changed` the objects that
        are new, differ from the known ones or no longer exist. The first list adds nothing."""
        before, self.marks = self.marks, {}
        for item in items:
            self.marks[key_of(item)] = (self._mark(item["metadata"]), _cluster(item))
        for key, (mark, cluster) in self.marks.items():
            if before is not None and before.get(key, (None, ""))[0] != mark:
                self.changed.append((key, cluster, False))
        for key in (before or {}).keys() - self.marks.keys():
            self.changed.append((key, (before or {})[key][1], True))

    def event(self, type_: str, item: Object) -> None:
        assert self.marks is not None, "events follow a list"
        key, meta = key_of(item), item["metadata"]
        if type_ == "DELETED":
            self.marks.pop(key, None)
            self.changed.append((key, _cluster(item), True))
            return
        mark = self._mark(meta)
        if self.marks.get(key, (None, ""))[0] != mark:
            self.changed.append((key, _cluster(item), False))
        self.marks[key] = (mark, _cluster(item))

    def _mark(self, meta: Object) -> Hashable:
        """Return the parts of an object's metadata of which a change is handled: uid, generation
        (or resourceVersion, if it has none), deletion time and labels; for a namespace only labels
        and deletion time, for an object of the metadata log only the uid."""
        if self.kind in LOG:
            return str(meta["uid"])
        own = tuple(sorted((meta.get("labels") or {}).items()))
        if self.kind is NAMESPACES:
            return (own, meta.get("deletionTimestamp"))
        version = meta.get("generation") or meta.get("resourceVersion")
        return (meta["uid"], version, meta.get("deletionTimestamp"), own)


class OwnedWatches:
    """Watches the objects that the operator made for all clusters, and namespaces. After a change
    it queues work for each cluster concerned that this process leads. `run` works until it is
    cancelled."""

    def __init__(self, parts: Parts, clusters: ClusterSupervisor) -> None:
        self._parts = parts
        self._clusters = clusters

    async def run(self) -> None:
        namespaces: list[str | None] = [*self._parts.options.namespaces] or [None]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(NAMESPACES, None))
            for kind in (*CHILDREN, *LOG):
                for namespace in namespaces:
                    group.create_task(self._follow(kind, namespace))

    async def _follow(self, kind: Kind, namespace: str | None) -> None:
        seen = SeenChildren(kind)
        while True:
            try:
                await self._look(seen, namespace)
            except ApiError as error:
                refused = error.status in (401, 403, 404)
                delay_s = REFUSED_SECONDS if refused else AGAIN_SECONDS
                logger.info(
                    "the operator's watch of %s ended; it starts the watch again in %g s: %s",
                    kind.plural,
                    delay_s,
                    error,
                )
                await asyncio.sleep(delay_s)

    async def _look(self, seen: SeenChildren, namespace: str | None) -> None:
        """Handle one list of the objects of `seen.kind` in `namespace` (None: in all) and the watch
        events after it. Return when the watch has expired and another list is needed. Raises
        ApiError."""
        kube = self._parts.watch_kube
        selector = None if seen.kind is NAMESPACES else labels.CLUSTER
        following = follow(kube, seen.kind, namespace, selector, metadata_only=True)
        async with aclosing(following) as told:
            async for news in told:
                if isinstance(news, Listed):
                    seen.list(news.items)
                else:
                    seen.event(news["type"], news["object"])
                self._tell(seen)

    def _tell(self, seen: SeenChildren) -> None:
        changed, seen.changed = seen.changed, []
        for key, cluster, gone in changed:
            if seen.kind is NAMESPACES:
                self._namespace(key[1])
            elif seen.kind not in LOG:
                owner = (key[0], cluster)
                self._clusters.offer(owner, Work(Task.CLUSTER, owner))
            elif gone:
                owner = (key[0], cluster)
                self._clusters.offer(owner, Work(Task.LOG, owner), LOG_SETTLES_MS)

    def _namespace(self, name: str) -> None:
        """Queue the Topics and Users of the namespace `name` that belong to clusters of other
        namespaces which this process leads, deleted Users with a committed login included: the
        namespace's labels may have changed, by which these clusters admit or reject them."""
        for topic in self._parts.objects.topics:
            if topic.metadata.namespace == name != topic.cluster_key[0]:
                self._clusters.offer(topic.cluster_key, Work(Task.TOPIC, topic.key))
        for user in self._parts.objects.users:
            if user.metadata.namespace == name != user.cluster_key[0]:
                self._clusters.offer(user.cluster_key, Work(Task.USER, user.key))
        for cluster_key, leader in self._parts.leaders.items():
            for row in leader.term.image.security.users.values():
                key = (row.object.namespace, row.object.name)
                if name == key[0] != cluster_key[0] and self._parts.objects.users.get(key) is None:
                    self._clusters.offer(cluster_key, Work(Task.USER, key))


def _cluster(item: Object) -> str:
    return str((item["metadata"].get("labels") or {}).get(labels.CLUSTER, ""))
