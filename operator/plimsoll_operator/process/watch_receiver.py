"""Takes events of the users' objects on the main loop: remembers each object and requeues it at the
leader.

The source of events differs between hosts (kopf in the operator, `object_watches` elsewhere); their
handling does not.
"""

from __future__ import annotations

from typing import Any

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import LOG_CLUSTERS, Kind
from plimsoll_operator.kube.seen_objects import Key, Objects, key_of
from plimsoll_operator.process.supervisor import Clusters
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.registry import BY_RESOURCE

Event = dict[str, Any]


class WatchReceiver:
    """`take` each event of a kind in `WATCHED_KINDS`, in the order of arrival."""

    def __init__(self, objects: Objects, clusters: Clusters) -> None:
        self._objects = objects
        self._clusters = clusters

    def take(self, kind: Kind, event: Event) -> None:
        """Take a watch event as the API server sends it, or of a listed object (any type but
        `DELETED`)."""
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
    """Return True if the object was deleted, then the object and its key."""
    body = dict(event["object"])
    return event.get("type") == "DELETED", body, key_of(body)
