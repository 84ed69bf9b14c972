"""Identifies pods that the product's own controllers created: only those get processes.

Anyone may write pods with any labels. This machine's user runs only brokers of a StatefulSet, and
drivers of a Verification's own Job. Called by `broker_pods`, `driver_pods`.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_operator.api import labels
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.manifests.verification import job_name


def controller(server: MemoryApiServer, body: Object, kind: Kind) -> Object | None:
    """Return the object of `kind` that the ownerReferences of `body` name as its controller, if it
    exists with the same uid; else None."""
    meta = body["metadata"]
    for owner in _owners(meta):
        stated = (owner.get("apiVersion"), owner.get("kind"), owner.get("controller"))
        if stated != (kind.api_version, kind.kind, True):
            continue
        stored = found(server, kind, meta.get("namespace") or "", str(owner.get("name")))
        if stored is not None and stored.metadata["uid"] == owner.get("uid"):
            return stored.body
    return None


def is_broker(server: MemoryApiServer, pod: Object) -> bool:
    """Return True if an existing StatefulSet controls the pod, and the set's template has the same
    broker id, a number, as the pod."""
    made_by = controller(server, pod, resources.STATEFUL_SETS)
    if made_by is None:
        return False
    number = _labels(pod).get(labels.BROKER_ID, "")
    template = (made_by["spec"].get("template") or {}).get("metadata") or {}
    if (template.get("labels") or {}).get(labels.BROKER_ID) != number:
        return False
    return number.isascii() and number.isdigit()


def is_driver(server: MemoryApiServer, pod: Object) -> bool:
    """Return True if the Job of an existing Verification controls the pod."""
    job = controller(server, pod, resources.JOBS)
    verification = None if job is None else controller(server, job, resources.VERIFICATIONS)
    if job is None or verification is None:
        return False
    name = verification["metadata"]["name"]
    if job["metadata"]["name"] != job_name(name):
        return False
    return bool(_labels(pod).get(labels.VERIFICATION) == name)


def _labels(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _owners(meta: Object) -> Iterator[Object]:
    for one in meta.get("ownerReferences") or ():
        if isinstance(one, dict):
            yield one
