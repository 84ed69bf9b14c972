"""Nodes with one broker each: starts and ends simulated processes as kubelets do, and runs the API
server's controllers on virtual time.

The controllers (StatefulSets, kubelets, garbage collection) are those of `api_server`, as in local
mode; this module supplies their pods' runtime and their clock. They never die, but they see changes
as late as any client of the API server, and do nothing while it is unavailable.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from plimsoll_operator.api import labels
from plimsoll_operator.api_server.kubelets import RuntimeState, Workloads, claim_names
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found, target, write_status
from plimsoll_operator.api_server.store import ObjectChange, StoredObject
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    NODES,
    PODS,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
)
from plimsoll_sim.desired import revisions
from plimsoll_sim.desired.objects import tag_of
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.environment.api_server_faults import Weather
from plimsoll_sim.hosts.brokers import BrokerHost

RESTART_US = (500_000, 6_000_000)
"""Shortest and longest delay before a container that ended is restarted, in virtual
microseconds."""
PERIOD_US = 5_000_000
"""Virtual microseconds between two runs of the controllers without a change."""
AWAY_US = 500_000
"""Virtual microseconds that controllers wait before they try again while the API server is
unavailable."""
WATCHED = frozenset({PODS.plural, STATEFUL_SETS.plural, VOLUME_CLAIMS.plural, JOBS.plural})


class Nodes:
    """The `PodRuntime` of all brokers' machines, and the clock of `Workloads`."""

    def __init__(
        self,
        loop: SimLoop,
        rng: random.Random,
        server: MemoryApiServer,
        weather: Weather,
        brokers: dict[int, BrokerHost],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._server = server
        self._weather = weather
        self._brokers = brokers
        self._workloads = Workloads(server, self)
        # When the controllers run next (µs); None if no run is due.
        self._due_us: int | None = None
        # The image tag of each revision that a pod or a template names.
        self.tags: dict[str, str] = {}
        # Called with each broker whose process has been started.
        self.started: Callable[[BrokerHost], None] = lambda host: None
        self.note: Callable[[str], None] = lambda text: None
        for host in brokers.values():
            server.seed(NODES, {"metadata": {"name": f"node-{host.id}"}})
        server.store.observers.append(self._stored)

    # --- the controllers' clock -------------------------------------------------------------------

    def look_soon(self) -> None:
        """Schedule a run of the controllers after a change that they or a kubelet watch."""
        self._look_at(self._loop.now_us + self._rng.randint(*self._weather.latency_us))

    def _look_at(self, us: int) -> None:
        if self._due_us is None or us < self._due_us:
            self._due_us = us
            self._loop.later(us - self._loop.now_us, lambda: self._look(us))

    def _look(self, us: int) -> None:
        if self._due_us != us:
            return
        self._due_us = None
        if self._weather.down or self._weather.hung:
            self._look_at(self._loop.now_us + AWAY_US)
            return
        self._workloads.reconcile()
        self._look_at(self._loop.now_us + PERIOD_US)

    def _stored(self, change: ObjectChange) -> None:
        if change.type != "DELETED" and change.resource.kind.plural not in WATCHED:
            return
        if change.resource.kind == STATEFUL_SETS:
            self._name(change.after.body["spec"]["template"])
        self.look_soon()

    def _name(self, body: Object) -> None:
        revision = (body["metadata"].get("annotations") or {}).get(labels.REVISION, "")
        self.tags[revision] = tag_of(body["spec"]["containers"][0]["image"])

    # --- PodRuntime -------------------------------------------------------------------------------

    def _host(self, pod: Object) -> BrokerHost:
        return self._brokers[int(pod["metadata"]["labels"][labels.BROKER_ID])]

    def place(self, pod: Object) -> str | None:
        return f"node-{self._host(pod).id}"

    def start(self, pod: Object) -> None:
        host, meta = self._host(pod), pod["metadata"]
        host.kill()  # of a pod that has been deleted
        claim = found(self._server, VOLUME_CLAIMS, meta["namespace"], claim_names(pod)[0])
        assert claim is not None, "the scheduler binds no pod without its claims"
        host.mount(claim.metadata["uid"])
        first = host.lives == 0
        host.give(meta["uid"], tag_of(pod["spec"]["containers"][0]["image"]))
        host.revision = (meta.get("annotations") or {}).get(labels.REVISION, "")
        if first:
            self.start_container(host)
        else:
            self.start_soon(host)

    def stop(self, pod: Object, grace_seconds: int) -> None:
        host = self._host(pod)
        if host.pod_uid != pod["metadata"]["uid"]:
            return
        self.note(f"{host.name}: its pod is deleted, with {grace_seconds} s")
        host.going = True
        process = host.process
        if process is None or not host.running:
            return
        if not grace_seconds:
            process.die()
            return
        host.stop()
        self._loop.later(grace_seconds * 1_000_000, process.die)

    def state(self, pod: Object) -> RuntimeState | None:
        host = self._host(pod)
        if host.powered_off or host.pod_uid != pod["metadata"]["uid"]:
            return None
        if host.running:
            return RuntimeState(phase="Running", ready=host.serving, pod_ip=host.name)
        if not revisions.starts(host.tag):
            return RuntimeState(phase="Pending", waiting=("ImagePullBackOff", "no such image"))
        if host.process is None:
            return RuntimeState(phase="Pending")
        return RuntimeState(phase="Running", ended=True, exit_code=1, restarts=host.restarts)

    def has_ended(self, pod: Object) -> bool:
        host = self._host(pod)
        if host.pod_uid != pod["metadata"]["uid"]:
            return True
        if host.running or host.powered_off:
            return False
        host.take()
        return True

    # --- containers -------------------------------------------------------------------------------

    def start_container(self, host: BrokerHost) -> None:
        """Start the container of the machine's pod, unless it runs already or cannot run."""
        host.power_on()
        self.look_soon()
        if host.running or host.going or host.pod_uid is None or not revisions.starts(host.tag):
            return
        process = host.start()
        process.at_death.append(self.look_soon)
        self.started(host)

    def start_soon(self, host: BrokerHost) -> None:
        """Restart a container that has ended after a delay, as a kubelet does."""
        uid = host.pod_uid

        def start() -> None:
            if host.pod_uid == uid:
                self.start_container(host)

        self._loop.later(self._rng.randint(*RESTART_US), start)


DRIVER_US = (1_000_000, 8_000_000)
"""Shortest and longest time of each half of a driver's life, in virtual microseconds."""
FAILED_SHARE = 0.3
"""Share of drivers that end without a verdict."""


class Jobs:
    """The Job controller and the drivers that it runs, as far as an operator can see them."""

    def __init__(self, loop: SimLoop, rng: random.Random, server: MemoryApiServer) -> None:
        self._loop = loop
        self._rng = rng
        self._server = server
        server.store.observers.append(self._stored)

    def _stored(self, change: ObjectChange) -> None:
        if change.resource.kind == JOBS and change.type == "ADDED":
            progress = {"phase": "Verifying", "counts": {"sent": 10, "acked": 10}}
            self._later(change.after, {"progress.json": progress})

    def _later(self, job: StoredObject, report: dict[str, Object]) -> None:
        self._loop.later(self._rng.randint(*DRIVER_US), lambda: self._report(job, report))

    def _report(self, job: StoredObject, report: dict[str, Object]) -> None:
        """Write a driver's report, unless its Job is gone: first progress, later a verdict."""
        now = found(self._server, JOBS, *job.key)
        if now is None or now.metadata["uid"] != job.metadata["uid"]:
            return
        if self._rng.random() < FAILED_SHARE:
            self._end(now, "Failed")
            return
        self._write(now, report)
        if "verdict.json" in report:
            self._end(now, "Complete")
        else:
            verdict = {"verdict": "Passed", "counts": {"sent": 10, "acked": 10, "read": 10}}
            self._later(job, {"verdict.json": verdict})

    def _write(self, job: StoredObject, report: dict[str, Object]) -> None:
        name = job.key[1].removesuffix("-driver") + "-report"
        known = found(self._server, CONFIG_MAPS, job.key[0], name)
        if known is not None and not known.metadata.get("deletionTimestamp"):
            data = {key: json.dumps(value) for key, value in report.items()}
            where = target(self._server, CONFIG_MAPS, *known.key)
            self._server.writes.replace(where, {**known.body, "data": data}, dry_run=False)

    def _end(self, job: StoredObject, how: str) -> None:
        condition = {"type": how, "status": "True"}
        write_status(self._server, job, {"conditions": [condition]})
