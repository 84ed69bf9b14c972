"""Reads the state of a broker's restart from its StatefulSet and pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.manifests.statefulset import CONTAINER

FAILED_CREATE = "FailedCreate"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """A broker on the API server: its StatefulSet and its pod, if any."""

    broker_id: BrokerId
    owner: Object
    pod: Object | None

    @property
    def template_revision(self) -> str:
        return revision_of(self.owner["spec"]["template"])

    @property
    def pod_uid(self) -> str | None:
        return None if self.pod is None else str(self.pod["metadata"]["uid"])

    @property
    def pod_revision(self) -> str | None:
        return None if self.pod is None else revision_of(self.pod)

    @property
    def terminating(self) -> bool:
        return self.pod is not None and bool(self.pod["metadata"].get("deletionTimestamp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A StatefulSet found correct. `now`: its generation, and the revision wanted then; `template`
    is of `revision`."""

    now: tuple[int, str]
    revision: str
    template: Object


def revision_of(body: Object) -> str:
    """Return the revision of a pod or template, "" for one made before revisions existed."""
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(labels.REVISION, ""))


def trouble(pod: Object | None) -> str:
    """Return why a pod does not start, in Kubernetes' words, "" if nothing is wrong yet."""
    if pod is None:
        return ""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if container.get("name") == CONTAINER and waiting.get("reason"):
            return _short(str(waiting["reason"]), str(waiting.get("message") or ""))
    for found in status.get("conditions") or ():
        if found.get("type") == "PodScheduled" and found.get("status") == "False":
            return _short(str(found.get("reason") or ""), str(found.get("message") or ""))
    return ""


def not_created(events: Sequence[Object]) -> str:
    """Return why a StatefulSet creates no pod, by its newest Event about that."""
    newest = max(events, key=lambda e: str(e.get("lastTimestamp") or ""), default=None)
    if newest is None:
        return ""
    # create Pod x in StatefulSet y failed error: pods "x" is forbidden: exceeded quota: …
    return _short(FAILED_CREATE, str(newest.get("message") or "").split("failed error: ")[-1])


def troubles_text(troubles: Mapping[BrokerId, str]) -> str:
    """Return why brokers' pods do not start, "" if all do."""
    return " ".join(f"Broker {b}: {why.rstrip('.')}." for b, why in sorted(troubles.items()))


def _short(reason: str, message: str) -> str:
    return f"{reason}: {message[:200]}" if message else reason
