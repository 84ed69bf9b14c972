"""A small StatefulSet controller: pods `name-ordinal`, their claims, revisions and status.

Only `OnDelete` is supported: a changed template reaches a pod only after the pod is deleted,
whatever the set's strategy states. Called by `Workloads`. Source: Kubernetes
`pkg/controller/statefulset`.
"""

from __future__ import annotations

import hashlib

import msgspec

from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.api.labels import POD_INDEX, POD_NAME
from plimsoll_operator.api_server.owned_pods import (
    ENDED,
    controller_reference,
    delete_pod,
    phase,
    pods_of,
)
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.status_errors import StatusError
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.api_server.stored_object import timestamp
from plimsoll_operator.api_server.writes import RequestTarget
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind

REVISION = "controller-revision-hash"


def reconcile(server: MemoryApiServer) -> None:
    """Advance every StatefulSet that is not terminating by one step."""
    for stored in listed(server, resources.STATEFUL_SETS):
        if not stored.metadata.get("deletionTimestamp"):
            _Set(server, stored).reconcile()


def listed(server: MemoryApiServer, kind: Kind) -> list[StoredObject]:
    return server.store.listed(server.store.resources[kind.path()], None)


def found(server: MemoryApiServer, kind: Kind, namespace: str, name: str) -> StoredObject | None:
    return server.store.get(server.store.resources[kind.path()], (namespace, name))


def target(
    server: MemoryApiServer, kind: Kind, namespace: str, name: str | None, *, status: bool = False
) -> RequestTarget:
    """Return the target by which `Writes` addresses one object, or the collection of a kind if
    `name` is None. `status`: address the object's subresource `/status`."""
    resource = server.store.resources[kind.path()]
    return RequestTarget(resource=resource, namespace=namespace, name=name, status=status)


def write_status(server: MemoryApiServer, stored: StoredObject, status: Object) -> None:
    """Replace the status of `stored`. Write nothing if `stored` is the newest version and already
    has this status. Raises StatusError (409) if a newer version is stored, or (404) if the object
    is gone."""
    if stored.body.get("status") == status and _is_present(server, stored):
        return
    namespace, name = stored.key
    where = target(server, stored.resource.kind, namespace, name, status=True)
    server.writes.replace(where, {**stored.body, "status": status}, dry_run=False)


def _is_present(server: MemoryApiServer, stored: StoredObject) -> bool:
    """Return True if `stored` is the newest version of the object in the store."""
    return server.store.get(stored.resource, stored.key) is stored


class _Set:
    """One StatefulSet during one step of the controller."""

    def __init__(self, server: MemoryApiServer, stored: StoredObject) -> None:
        self._server = server
        self._stored = stored
        self._spec = stored.body["spec"]
        self._namespace, self._name = stored.key
        self._revision = f"{self._name}-{_digest(self._spec['template'])}"

    def reconcile(self) -> None:
        first = (self._spec.get("ordinals") or {}).get("start", 0)
        wanted = range(first, first + self._spec["replicas"])
        pods = self._pods()
        for ordinal in sorted(set(pods) - set(wanted), reverse=True):
            delete_pod(self._server, pods[ordinal])
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                self._make(ordinal)
            elif phase(pod) in ENDED:
                delete_pod(self._server, pod)
            if self._spec["podManagementPolicy"] != "Parallel" and not _is_ready(pod):
                break
        self._show(len(wanted))

    def _pods(self) -> dict[int, StoredObject]:
        """Return the pods that the set owns, by ordinal: those with names as the set gives them."""
        own = pods_of(self._server, self._stored)
        numbers = ((pod.key[1].removeprefix(f"{self._name}-"), pod) for pod in own)
        return {int(number): pod for number, pod in numbers if number.isdecimal()}

    def _make(self, ordinal: int) -> None:
        """Create the pod `ordinal`, and before it its missing volume claims. Create no pod while
        one of this name exists (a terminating or foreign one), or while a claim terminates. If the
        API server refuses, write an Event."""
        if found(self._server, resources.PODS, self._namespace, f"{self._name}-{ordinal}"):
            return
        try:
            claims = [self._claim(one, ordinal) for one in self._claim_templates]
            if any(claim.metadata.get("deletionTimestamp") for claim in claims):
                return
            self._create(resources.PODS, self._pod(ordinal))
        except StatusError as error:
            self._tell(ordinal, error)

    @property
    def _claim_templates(self) -> list[Object]:
        return list(self._spec.get("volumeClaimTemplates") or ())

    def _create(self, kind: Kind, body: Object) -> StoredObject:
        where = target(self._server, kind, self._namespace, None)
        return self._server.writes.create(where, body, dry_run=False)

    def _claim(self, template: Object, ordinal: int) -> StoredObject:
        name = f"{template['metadata']['name']}-{self._name}-{ordinal}"
        known = found(self._server, resources.VOLUME_CLAIMS, self._namespace, name)
        if known is not None:
            return known
        labels = self._spec["selector"].get("matchLabels") or {}
        own = {**(template["metadata"].get("labels") or {}), **labels}
        meta = {**template["metadata"], "name": name, "labels": own}
        return self._create(resources.VOLUME_CLAIMS, {"metadata": meta, "spec": template["spec"]})

    def _pod(self, ordinal: int) -> Object:
        template, name = self._spec["template"], f"{self._name}-{ordinal}"
        meta = template.get("metadata") or {}
        labels = {
            **(meta.get("labels") or {}),
            POD_NAME: name,
            POD_INDEX: str(ordinal),
            REVISION: self._revision,
        }
        owner = controller_reference(self._stored)
        volumes = [
            {
                "name": one["metadata"]["name"],
                "persistentVolumeClaim": {
                    "claimName": f"{one['metadata']['name']}-{self._name}-{ordinal}"
                },
            }
            for one in self._claim_templates
        ]
        claimed = {volume["name"] for volume in volumes}
        own = [v for v in template["spec"].get("volumes") or () if v["name"] not in claimed]
        named = {"hostname": name, "subdomain": self._spec.get("serviceName", "")}
        return {
            "metadata": {**meta, "name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {**template["spec"], **named, "volumes": [*volumes, *own]},
        }

    def _tell(self, ordinal: int, error: StatusError) -> None:
        """Write a Warning Event that says why the pod `ordinal` cannot be created. Write it once
        for each message."""
        pod = f"{self._name}-{ordinal}"
        name = f"{self._name}.{_digest([pod, error.message])}"
        if found(self._server, resources.CORE_EVENTS, self._namespace, name) is not None:
            return
        kind = resources.STATEFUL_SETS
        text = f"create Pod {pod} in StatefulSet {self._name} failed error: {error.message}"
        now = timestamp(self._server.now_ms())
        body = {
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "namespace": self._namespace,
                "name": self._name,
                "uid": self._stored.metadata["uid"],
            },
            "reason": "FailedCreate",
            "message": text,
            "type": "Warning",
            "source": {"component": "statefulset-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._create(resources.CORE_EVENTS, body)

    def _show(self, wanted: int) -> None:
        pods = list(self._pods().values())
        updated = [pod for pod in pods if pod.labels.get(REVISION) == self._revision]
        before = self._stored.body.get("status") or {}
        current = before.get("currentRevision") or self._revision
        if len(updated) == len(pods) == wanted:
            current = self._revision
        ready = sum(_is_ready(pod) for pod in pods)
        status = {
            "observedGeneration": self._stored.metadata["generation"],
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": sum(pod.labels.get(REVISION) == current for pod in pods),
            "updatedReplicas": len(updated),
            "currentRevision": current,
            "updateRevision": self._revision,
            "collisionCount": 0,
        }
        write_status(self._server, self._stored, status)


def _is_ready(pod: StoredObject | None) -> bool:
    if pod is None or pod.metadata.get("deletionTimestamp"):
        return False
    return is_true(pod.body, "Ready")


def _digest(value: object) -> str:
    """Return the first ten hex digits of a hash of `value`, for a revision or an Event's name."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:10]
