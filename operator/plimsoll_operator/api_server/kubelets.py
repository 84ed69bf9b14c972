"""Scheduler, kubelets and volumes: pods get a node, run, and end; claims are bound and protected.

The host supplies the runtime of pods: processes of this machine, or simulated ones. It calls
`Workloads.reconcile` on its clock, as often as it likes; nothing here waits. Source: Kubernetes'
"Pod Lifecycle", "Storage Object in Use Protection".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from plimsoll_operator.api.labels import VOLUME_PROTECTION
from plimsoll_operator.api_server import garbage_collection, stateful_sets
from plimsoll_operator.api_server.owned_pods import ENDED, phase
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import (
    found,
    listed,
    target,
    write_status,
)
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.api_server.stored_object import timestamp
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeState:
    """State of a pod as its kubelet would report it. It holds for every container of the pod."""

    phase: Phase
    ready: bool = False
    restarts: int = 0
    ended: bool = False
    """True if the containers of a Running pod have exited and will be restarted."""
    exit_code: int = 0
    """Exit code of the containers; meaningful only after they have exited."""
    waiting: tuple[str, str] | None = None
    """(reason, message) if the containers wait to be started; None otherwise."""
    pod_ip: str | None = None


class PodRuntime(Protocol):
    """Runs the containers of pods; the host supplies it. A pod is identified by its uid."""

    def place(self, pod: Object) -> str | None:
        """Return the name of the node on which the pod shall run, or None to leave the pod
        Pending."""

    def start(self, pod: Object) -> None:
        """Start the pod's containers. Called once for each pod, after a node was assigned to it."""

    def stop(self, pod: Object, grace_seconds: int) -> None:
        """Begin to stop the pod: kill its containers if they still run after the grace period (0:
        immediately). Called again only with a shorter grace period."""

    def state(self, pod: Object) -> RuntimeState | None:
        """Return the pod's present state. Return None if the state is unknown (no container of the
        pod runs, or its node does not answer): the status in the API server then stays
        unchanged."""

    def has_ended(self, pod: Object) -> bool:
        """Return True if it is certain that no process of the pod runs any more."""


class Kubelets:
    """The scheduler, the kubelets of all nodes, and the binding of volume claims."""

    def __init__(self, server: MemoryApiServer, runtime: PodRuntime) -> None:
        self._server = server
        self._runtime = runtime
        self._started: dict[str, Object] = {}
        """Pods given to the runtime, by uid."""
        self._stopping: dict[str, int] = {}
        """Grace period of each stopping pod in seconds, by the pod's uid."""

    def reconcile(self) -> None:
        """Advance every pod and every volume claim by one step: assign nodes, start and stop
        containers, write statuses, and remove terminating pods that have ended."""
        present = set()
        for pod in listed(self._server, resources.PODS):
            present.add(pod.metadata["uid"])
            self._run(pod)
        for uid in [uid for uid in self._started if uid not in present]:
            self._forget(uid)
        for claim in listed(self._server, resources.VOLUME_CLAIMS):
            self._keep(claim)

    def _forget(self, uid: str) -> None:
        """Kill the containers of a started pod (by its uid) that a client removed from the API
        server without waiting for its kubelet."""
        self._runtime.stop(self._started.pop(uid), 0)
        self._stopping.pop(uid, None)

    def _run(self, pod: StoredObject) -> None:
        meta, uid = pod.metadata, pod.metadata["uid"]
        if meta.get("deletionTimestamp"):
            self._end(pod)
            return
        if not pod.body["spec"].get("nodeName"):
            bound = self._bind(pod)
            if bound is None:
                return
            pod = bound
        if uid not in self._started:
            if phase(pod) in ENDED:
                return  # it ended before this process started
            self._started[uid] = pod.body
            self._runtime.start(pod.body)
        state = self._runtime.state(pod.body)
        if state is not None:
            write_status(self._server, pod, self._status(pod, state))

    def _bind(self, pod: StoredObject) -> StoredObject | None:
        """Assign a node to the pod and return the pod as stored then. Return None, and change
        nothing, if a volume claim of the pod is absent or terminating, or the runtime offers no
        node."""
        for name in claim_names(pod.body):
            claim = found(self._server, resources.VOLUME_CLAIMS, pod.key[0], name)
            if claim is None or claim.metadata.get("deletionTimestamp"):
                return None
        node = self._runtime.place(pod.body)
        if node is None:
            return None
        spec = {**pod.body["spec"], "nodeName": node}
        return self._server.store.put(pod.resource, {**pod.body, "spec": spec}, pod.applied)

    def _end(self, pod: StoredObject) -> None:
        uid, grace = pod.metadata["uid"], pod.metadata["deletionGracePeriodSeconds"]
        if uid in self._started and self._stopping.get(uid, grace + 1) > grace:
            self._stopping[uid] = grace
            self._runtime.stop(pod.body, grace)
        if uid in self._started and not self._runtime.has_ended(pod.body):
            return
        self._started.pop(uid, None)
        self._stopping.pop(uid, None)
        where = target(self._server, resources.PODS, *pod.key)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._server.writes.delete(where, options, dry_run=False)

    def _status(self, pod: StoredObject, state: RuntimeState) -> Object:
        before = pod.body.get("status") or {}
        now = timestamp(self._server.now_ms())
        since = before.get("startTime") or now
        addresses = {} if state.pod_ip is None else {"podIP": state.pod_ip}
        return {
            **addresses,
            "phase": state.phase,
            "startTime": since,
            "conditions": _conditions(before, state, now),
            "containerStatuses": [
                _container_status(container, state, since)
                for container in pod.body["spec"]["containers"]
            ],
        }

    def _keep(self, claim: StoredObject) -> None:
        """Advance one volume claim: bind it once a pod that uses it has a node, and release a
        terminating claim once no pod uses it."""
        used = self._users(claim)
        if claim.metadata.get("deletionTimestamp"):
            if not used:
                self._release(claim)
            return
        if any(pod.body["spec"].get("nodeName") for pod in used):
            size = claim.body["spec"]["resources"]["requests"]["storage"]
            status = {
                "phase": "Bound",
                "accessModes": claim.body["spec"].get("accessModes") or [],
                "capacity": {"storage": size},
            }
            write_status(self._server, claim, status)

    def _users(self, claim: StoredObject) -> list[StoredObject]:
        namespace, name = claim.key
        pods = listed(self._server, resources.PODS)
        return [pod for pod in pods if pod.key[0] == namespace and name in claim_names(pod.body)]

    def _release(self, claim: StoredObject) -> None:
        finalizers = claim.metadata.get("finalizers") or ()
        left = [name for name in finalizers if name != VOLUME_PROTECTION]
        meta = {**claim.metadata, "finalizers": left}
        where = target(self._server, resources.VOLUME_CLAIMS, *claim.key)
        self._server.writes.replace(where, {**claim.body, "metadata": meta}, dry_run=False)


def claim_names(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]


def _conditions(before: Object, state: RuntimeState, now: str) -> list[Object]:
    shown = {one["type"]: one for one in before.get("conditions") or ()}
    wanted = {"PodScheduled": True, "ContainersReady": state.ready, "Ready": state.ready}
    return [
        shown[type_]
        if shown.get(type_, {}).get("status") == str(value)
        else {"type": type_, "status": str(value), "lastTransitionTime": now}
        for type_, value in wanted.items()
    ]


def _container_status(container: Object, state: RuntimeState, since: str) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": state.ready,
        "started": state.phase == "Running" and not state.ended,
        "restartCount": state.restarts,
        "state": _container_state(state, since),
    }


def _container_state(state: RuntimeState, since: str) -> Object:
    if state.waiting is not None:
        reason, message = state.waiting
        return {"waiting": {"reason": reason, "message": message}}
    if state.phase == "Pending":
        return {"waiting": {"reason": "ContainerCreating"}}
    if state.phase == "Running" and not state.ended:
        return {"running": {"startedAt": since}}
    reason = "Error" if state.exit_code else "Completed"
    return {"terminated": {"exitCode": state.exit_code, "reason": reason}}


class Workloads:
    """The controllers that run pods: garbage collection, the StatefulSet controller and the
    kubelets, over one API server and one runtime of pods."""

    def __init__(self, server: MemoryApiServer, runtime: PodRuntime) -> None:
        self._server = server
        self._kubelets = Kubelets(server, runtime)

    def reconcile(self) -> None:
        """Run garbage collection, the StatefulSet controller and the kubelets once, in that
        order."""
        garbage_collection.collect(self._server)
        stateful_sets.reconcile(self._server)
        self._kubelets.reconcile()
