"""A small Job controller: one pod at a time, until one succeeds, too many have failed, or one has
failed with an exit code that its `podFailurePolicy` makes final.

Called by hosts with a runtime for such pods, beside `Workloads`. It supports no parallel or indexed
Jobs, and does not delay retries. Source: Kubernetes' "Jobs" and `pkg/controller/job`.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.api.labels import JOB_NAME, JOB_UID
from plimsoll_operator.api_server.owned_pods import (
    ENDED,
    controller_reference,
    delete_pod,
    phase,
    pods_of,
)
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import listed, target, write_status
from plimsoll_operator.api_server.status_errors import StatusError
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.api_server.stored_object import timestamp
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object

BACKOFF_LIMIT_DEFAULT = 6
ENDINGS = ("Complete", "Failed")


def reconcile(server: MemoryApiServer) -> None:
    """Advance every unfinished Job that is not terminating by one step: count failed pods, create
    the next pod, or end the Job."""
    for stored in listed(server, resources.JOBS):
        if not stored.metadata.get("deletionTimestamp") and not has_ended(stored.body):
            _Job(server, stored).reconcile()


def has_ended(job: Object) -> bool:
    """Return True if the Job is Complete or Failed, so that no further pod of it will run."""
    return any(is_true(job, ending) for ending in ENDINGS)


class _Job:
    """One Job during one step of the controller."""

    def __init__(self, server: MemoryApiServer, stored: StoredObject) -> None:
        self._server = server
        self._stored = stored
        self._spec = stored.body["spec"]
        # Status as written at the last step.
        self._before: Object = stored.body.get("status") or {}
        self._now = timestamp(server.now_ms())
        self._started = self._before.get("startTime") or self._now

    def reconcile(self) -> None:
        pods = pods_of(self._server, self._stored)
        running = [pod for pod in pods if phase(pod) not in ENDED]
        failed = self._before.get("failed", 0)
        if any(phase(pod) == "Succeeded" for pod in pods):
            self._show(failed=failed, ending="Complete", reason="CompletionsReached")
            return
        if self._before.get("active") and not running:
            failed += 1  # its pod has failed, or was deleted before it had ended
        if any(self._is_final(pod) for pod in pods):
            self._show(failed=failed, ending="Failed", reason="PodFailurePolicy")
        elif failed > self._spec.get("backoffLimit", BACKOFF_LIMIT_DEFAULT):
            self._show(failed=failed, ending="Failed", reason="BackoffLimitExceeded")
        elif self._is_late():
            for pod in running:
                delete_pod(self._server, pod)
            failed += len(running)
            self._show(failed=failed, ending="Failed", reason="DeadlineExceeded")
        else:
            self._show(failed=failed, active=bool(running) or self._make(failed))

    def _is_final(self, pod: StoredObject) -> bool:
        """Return True if the pod failed with an exit code that a FailJob rule of the Job's
        `podFailurePolicy` lists."""
        if phase(pod) != "Failed":
            return False
        states = (pod.body.get("status") or {}).get("containerStatuses") or ()
        codes = [
            ((one.get("state") or {}).get("terminated") or {}).get("exitCode") for one in states
        ]
        rules = (self._spec.get("podFailurePolicy") or {}).get("rules") or ()
        return any(
            code in (rule.get("onExitCodes") or {}).get("values", ())
            for rule in rules
            if rule["action"] == "FailJob" and rule["onExitCodes"]["operator"] == "In"
            for code in codes
        )

    def _is_late(self) -> bool:
        limit_s = self._spec.get("activeDeadlineSeconds")
        started_ms = datetime.fromisoformat(self._started).timestamp() * 1000
        return limit_s is not None and self._server.now_ms() - started_ms >= 1000 * limit_s

    def _make(self, failed: int) -> bool:
        """Create the pod that follows `failed` failed ones, and return True. Return False if the
        API server refused it; the next step tries again."""
        template, uid = self._spec["template"], self._stored.metadata["uid"]
        namespace, job = self._stored.key
        meta = template.get("metadata") or {}
        own = {JOB_NAME: job, JOB_UID: uid}
        owner = controller_reference(self._stored)
        name = f"{job}-{hashlib.sha256(f'{uid}/{failed}'.encode()).hexdigest()[:5]}"
        labels = {**(meta.get("labels") or {}), **own}
        body = {
            "metadata": {**meta, "name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": template["spec"],
        }
        where = target(self._server, resources.PODS, namespace, None)
        try:
            self._server.writes.create(where, body, dry_run=False)
        except StatusError:
            return False
        return True

    def _show(
        self, *, failed: int, active: bool = False, ending: str = "", reason: str = ""
    ) -> None:
        status: Object = {
            "startTime": self._started,
            "active": int(active),
            "failed": failed,
            "succeeded": 1 if ending == "Complete" else 0,
        }
        if ending:
            condition = {
                "type": ending,
                "status": "True",
                "reason": reason,
                "lastTransitionTime": self._now,
            }
            status["conditions"] = [condition]
        if ending == "Complete":
            status["completionTime"] = self._now
        write_status(self._server, self._stored, status)
