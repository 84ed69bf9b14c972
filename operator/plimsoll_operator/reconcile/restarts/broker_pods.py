"""State of brokers' pods, and replacement of pods on unreachable nodes.

Called by the restart reconciler. `PodState` holds the StatefulSet and the pod of a broker. A pod on
a node that is deleted or tainted out-of-service is deleted by force, so that another can start.
Before that, it must be certain that the pod no longer runs, and its broker must be fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.kube.errors import NotFound, Rejected
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import NODES, PODS
from plimsoll_operator.manifests.statefulset import CONTAINER
from plimsoll_operator.reconcile.reconcile_term import Term

logger = logging.getLogger("plimsoll.restarts")

FAILED_CREATE = "FailedCreate"
REPLACE: Final = "ReplacePod"
MESSAGE_MAX = 250
STUCK_MS = 30_000
"""For how many milliseconds after the end of its grace period a pod may still be terminating before
its node's kubelet counts as unresponsive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """The StatefulSet (`owner`) and the pod of a broker, as just read from the API server. `pod` is
    None if it does not exist. `claim_deleted`: True if the data goes when the pod stops
    (`deleted_claims`)."""

    broker_id: BrokerId
    owner: Object
    pod: Object | None
    claim_deleted: bool = False

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
    """A StatefulSet that was found to match its manifest. `now`: its generation, and the revision
    that was wanted at that time. `template`: its pod template, which has the revision
    `revision`."""

    now: tuple[int, str]
    revision: str
    template: Object


def revision_of(body: Object) -> str:
    """Return the revision that a pod or template states in its annotation. Return "" if it states
    none, as those made by early releases."""
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(labels.REVISION, ""))


def trouble(pod: Object | None) -> str:
    """Return why the pod does not start, in Kubernetes' words. Return "" if there is no pod, or no
    reason is known."""
    if pod is None:
        return ""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if container.get("name") == CONTAINER and waiting.get("reason"):
            said = _last_words(container) or str(waiting.get("message") or "")
            return _short(str(waiting["reason"]), said)
    for found in status.get("conditions") or ():
        if found.get("type") == "PodScheduled" and found.get("status") == "False":
            return _short(str(found.get("reason") or ""), str(found.get("message") or ""))
    return ""


def _last_words(container: Object) -> str:
    """Return the termination message of the container's last process, in which a broker says why it
    cannot start; "" if there is none."""
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return str(ended.get("message") or "")


def not_created(events: Sequence[Object]) -> str:
    """Return why a StatefulSet could not create its pod, by the newest of `events`, "" without
    events."""
    newest = max(events, key=lambda e: str(e.get("lastTimestamp") or ""), default=None)
    if newest is None:
        return ""
    # create Pod x in StatefulSet y failed error: pods "x" is forbidden: exceeded quota: …
    return _short(FAILED_CREATE, str(newest.get("message") or "").split("failed error: ")[-1])


def _short(reason: str, message: str) -> str:
    return f"{reason}: {message[:MESSAGE_MAX]}" if message else reason


def is_stuck(pod: Object, now_ms: int) -> bool:
    """Return True if the pod has been terminating for longer than a responsive kubelet would
    take."""
    stamp = pod["metadata"].get("deletionTimestamp")
    return stamp is not None and now_ms - milliseconds(stamp) > STUCK_MS


def is_out_of_service(node: Object) -> bool:
    """Return True if the node has the taint by which an administrator states that nothing runs on
    it."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") == labels.OUT_OF_SERVICE for taint in taints)


async def replace_pod(term: Term, broker_id: BrokerId, pod: Object) -> BlockedAction | None:
    """Force the deletion of a stuck pod if it is certainly dead, and return None. Otherwise return
    the row of `status.blocked` that says what that waits for.

    The pod's volume stays attached until an administrator declares the node dead.
    """
    node_name = str((pod.get("spec") or {}).get("nodeName") or "")
    vouched = await _is_gone(term, node_name)
    broker = term.image.brokers.get(broker_id)
    if not vouched:
        until = f"node {node_name} is back, is deleted, or has the taint {labels.OUT_OF_SERVICE}"
        return _stays(term, broker_id, "NodeUnreachable", until)
    if broker is not None and not broker.fenced:
        return _stays(term, broker_id, "BrokerNotFenced", f"broker {broker_id} is fenced")
    meta = pod["metadata"]
    logger.warning(
        "the operator deletes pod %s by force, because its node %s is gone", meta["name"], node_name
    )
    await term.kube.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_seconds=0)
    return None


def _stays(term: Term, broker_id: BrokerId, reason: str, until: str) -> BlockedAction:
    since = timestamp(term.now_ms())
    return BlockedAction(action=REPLACE, broker=broker_id, reason=reason, until=until, since=since)


async def _is_gone(term: Term, node_name: str) -> bool:
    if not node_name:
        return False
    try:
        node = await term.kube.get(NODES, None, node_name)
    except NotFound:
        return True
    except Rejected:
        return False
    return is_out_of_service(node)
