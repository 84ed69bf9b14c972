"""Pods and the object that controls them, for every controller of pods.

Called by the StatefulSet and Job controllers and by kubelets.
"""

from __future__ import annotations

from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.api_server.writes import RequestTarget
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object

ENDED = ("Succeeded", "Failed")
"""Phases of a pod that no longer runs."""


def phase(pod: StoredObject) -> str:
    """Return the pod's `status.phase`, or "" if it has none yet."""
    return str((pod.body.get("status") or {}).get("phase", ""))


def pods_of(server: MemoryApiServer, owner: StoredObject) -> list[StoredObject]:
    """Return all pods, terminating ones included, that name `owner`, by its uid, in their
    ownerReferences."""
    store = server.store
    dependents = store.dependents.get(owner.metadata["uid"], {})
    own = [store.get(store.resources[root], key) for root, key in dependents]
    return [pod for pod in own if pod is not None and pod.resource.kind == resources.PODS]


def delete_pod(server: MemoryApiServer, pod: StoredObject) -> None:
    """Delete a pod with its own grace period. Do nothing if it is terminating already."""
    if not pod.metadata.get("deletionTimestamp"):
        namespace, name = pod.key
        where = RequestTarget(resource=pod.resource, namespace=namespace, name=name)
        server.writes.delete(where, {}, dry_run=False)


def controller_reference(owner: StoredObject) -> Object:
    kind = owner.resource.kind
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.key[1],
        "uid": owner.metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
