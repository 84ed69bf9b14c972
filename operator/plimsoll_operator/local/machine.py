"""Runs the controllers of a local cluster's API server after each change, and periodically.

The controllers collect garbage and reconcile StatefulSets, Jobs and pods; one run handles all
changes that arrive together. A pod is run by the runtime of brokers or by that of Spark drivers;
each runs only pods of its own kind. Events, and the progress of objects that run once, are logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from plimsoll_operator.api import labels
from plimsoll_operator.api_server import jobs
from plimsoll_operator.api_server.kubelets import RuntimeState, Workloads
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local.broker_pods import BrokerPods
from plimsoll_operator.local.driver_pods import DriverPods
from plimsoll_process.waits import set_within


class LocalPods:
    """Runs every pod, by the runtime of brokers or that of drivers: an
    `api_server.kubelets.PodRuntime`."""

    def __init__(self, brokers: BrokerPods, drivers: DriverPods) -> None:
        self._brokers = brokers
        self._drivers = drivers

    def tell(self, changed: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """Set the callbacks of both runtimes. `changed`: the state of a pod has changed; `failed`:
        a task has raised an exception, which only a bug can cause."""
        for runtime in (self._brokers, self._drivers):
            runtime.on_change, runtime.on_failure = changed, failed

    async def stop_all(self) -> None:
        """Stop all pods: drivers first, since they are clients of the brokers."""
        await self._drivers.stop_all()
        await self._brokers.stop_all()

    def place(self, pod: Object) -> str | None:
        return self._of(pod).place(pod)

    def start(self, pod: Object) -> None:
        self._of(pod).start(pod)

    def stop(self, pod: Object, grace_seconds: int) -> None:
        self._of(pod).stop(pod, grace_seconds)

    def state(self, pod: Object) -> RuntimeState | None:
        return self._of(pod).state(pod)

    def has_ended(self, pod: Object) -> bool:
        return self._of(pod).has_ended(pod)

    def _of(self, pod: Object) -> BrokerPods | DriverPods:
        wanted = labels.VERIFICATION in (pod["metadata"].get("labels") or {})
        return self._drivers if wanted else self._brokers


logger = logging.getLogger("plimsoll.local")

CLOCK_S = 2.0
"""Period in seconds of runs for work that no change triggers, such as the end of grace periods."""
TOGETHER_S = 0.01
EVENTS_MAX = 1_000
"""Bound on the Events kept in each of the two API groups. A real API server deletes Events after an
hour."""
WORKLOADS = frozenset(
    {resources.PODS, resources.STATEFUL_SETS, resources.VOLUME_CLAIMS, resources.JOBS}
)


class Machine:
    """Runs the controllers over the API server of one local cluster. `run` works until it is
    cancelled. `stopping`: set it before all brokers are stopped; their Events are then no
    warnings."""

    def __init__(
        self, server: MemoryApiServer, pods: LocalPods, failed: Callable[[BaseException], None]
    ) -> None:
        self._server = server
        self._workloads = Workloads(server, pods)
        # True while the user stops all brokers.
        self.stopping = False
        # Set by changes that the controllers may have to act on.
        self._changed = asyncio.Event()
        pods.tell(self._changed.set, failed)
        server.store.observers.append(self._observe)

    async def run(self) -> None:
        while True:
            self._changed.clear()
            jobs.reconcile(self._server)
            self._workloads.reconcile()
            if await set_within(self._changed, CLOCK_S):
                await asyncio.sleep(TOGETHER_S)

    def _observe(self, change: ObjectChange) -> None:
        kind = change.resource.kind
        going = change.type == "DELETED" or "deletionTimestamp" in change.after.metadata
        if kind in WORKLOADS or going:
            self._changed.set()
        if kind == resources.EVENTS and change.type == "ADDED":
            _tell_event(change.after.body, expected=self.stopping)
            self._show_event(change.after.body)
        elif kind in resources.RUN_ONCE and change.type == "MODIFIED":
            before = {} if change.before is None else change.before.body
            _tell_progress(before, change.after.body)

    def _show_event(self, event: Object) -> None:
        """Copy an Event of `events.k8s.io` to the core API, where `kubectl get events` and
        `describe` read it. Remove the oldest Events of each API beyond `EVENTS_MAX`."""
        at = event.get("eventTime")
        shown = {
            "metadata": {key: event["metadata"][key] for key in ("name", "namespace")},
            "involvedObject": event.get("regarding") or {},
            "reason": event.get("reason", ""),
            "message": event.get("note", ""),
            "type": event.get("type", ""),
            "source": {"component": event.get("reportingController", "")},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._server.seed(resources.CORE_EVENTS, shown)
        for kind in (resources.EVENTS, resources.CORE_EVENTS):
            table = self._server.store.table(self._server.store.resources[kind.path()])
            while len(table) > EVENTS_MAX:
                self._server.store.remove(next(iter(table.values())))


def _tell_event(event: Object, *, expected: bool) -> None:
    is_warning = event.get("type") == "Warning" and not expected
    level = logging.WARNING if is_warning else logging.INFO
    about = event.get("regarding") or {}
    text = (
        f"{about.get('kind')} {about.get('name')}: {event.get('reason')}: {event.get('note', '')}"
    )
    logger.log(level, "%s", text)


def _tell_progress(before: Object, after: Object) -> None:
    said = _progress(after)
    if said and said != _progress(before):
        logger.info("%s %s: %s", after["kind"], after["metadata"]["name"], said)


def _progress(body: Object) -> str:
    """Return the phase in the object's status and the message of its condition Ready, if any."""
    status = body.get("status") or {}
    none: Object = {}
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), none)
    return " ".join(filter(None, (status.get("phase"), ready.get("message"))))
