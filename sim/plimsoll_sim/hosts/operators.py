"""A simulated operator process: the shipped operator, over the simulated API server and network.

It runs `process.operator.Operator`; this module builds the parts for it, as `__main__` does for a
real process.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.messages.requests import Request
from plimsoll_operator.api.evidence import S3
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.leadership.process_parts import Led, Parts
from plimsoll_operator.metalog import kubernetes_log
from plimsoll_operator.metalog.kube_objects import Place, TransportApi
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.process.object_watches import ObjectWatches
from plimsoll_operator.process.operator import Operator
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.status.operator_metrics import Metrics
from plimsoll_sim.desired.objects import IMAGE
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.api_server_faults import SimulatedTransport, Weather
from plimsoll_sim.environment.network import Network
from plimsoll_sim.environment.simulated_bucket import BackupBucket, SimulatedBucket
from plimsoll_sim.hosts.brokers import CONTROLLER_PORT, CONTROLLERS

LOG_TIMEOUT_MS = 60_000
"""Timeout in milliseconds of a request for the metadata log. It is longer than any wait that
simulated faults cause (`kube.GIVE_UP_US`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """Parts of the world that an operator process uses."""

    loop: SimLoop
    network: Network
    server: MemoryApiServer
    weather: Weather
    rng: random.Random
    settings: Settings
    slots: int
    asks_brokers: bool = False
    """True if brokers and controllers show each other certificates."""
    bucket: BackupBucket | None = None
    """The place of the metadata's backup; None if the run has none."""


class _Leaders(dict[Key, Led]):
    """The clusters that this process leads, and the controller that led last."""

    last: Controller | None = None

    def __setitem__(self, key: Key, led: Led) -> None:
        super().__setitem__(key, led)
        self.last = led.controller


def _bucket(bucket: BackupBucket, _: S3, directory: str, __: Mapping[str, str]) -> SimulatedBucket:
    return SimulatedBucket(bucket, directory)


class OperatorHost:
    """A machine with an operator on it."""

    def __init__(self, number: int, around: OperatorContext) -> None:
        self.name = f"operator-{number}"
        self._around = around
        self.process: Process | None = None
        self.lives = 0
        self._leaders = _Leaders()
        self._shown: Parts | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def active(self) -> bool:
        """Return True if the process leads a cluster."""
        return self.running and any(led.controller.active for led in self._leaders.values())

    @property
    def image(self) -> ClusterImage | None:
        """Return the committed metadata as its controller knows it; None if it leads no cluster."""
        if not self.active:
            return None
        return next((led.controller.image for led in self._leaders.values()), None)

    @property
    def backup_end(self) -> int | None:
        """Return the metadata offset up to which its clusters' metadata are backed up; None if it
        leads no cluster with a backup."""
        states = (led.backup for led in self._leaders.values())
        return next((state.end for state in states if state is not None), None)

    @property
    def log_start(self) -> int | None:
        """Return the first metadata offset that its controller still holds as a batch; None if it
        leads no cluster."""
        if not self.active:
            return None
        return next((led.controller.tail.start for led in self._leaders.values()), None)

    @property
    def seen_generation(self) -> int | None:
        """Return the generation of the LogCluster's spec that this process has seen; None if it has
        seen none, or sees only a part of it."""
        if self._shown is None:
            return None
        clusters = self._shown.objects.clusters
        for found in clusters:
            if clusters.unread(found.key) is None:
                return found.metadata.generation
        return None

    @property
    def ended(self) -> Outcome | None:
        """Return the outcome of the last term of this process."""
        return None if self._leaders.last is None else self._leaders.last.outcome

    @property
    def choice(self) -> str:
        """Return the history that a person may confirm to restore, as this process has named it
        last; empty if it has named none."""
        return "" if self._leaders.last is None else self._leaders.last.choice

    @property
    def choices(self) -> tuple[str, ...]:
        """Return all histories that a person may confirm, as `choice`."""
        last = self._leaders.last
        found = None if last is None else last.not_restored
        return () if found is None else tuple(one.value for one in found.choices)

    def start(self) -> Process:
        around = self._around
        self.lives += 1
        around.network.dark.discard(self.name)
        process = Process(around.loop, f"{self.name}#{self.lives}", self.name)
        process.at_death.append(lambda: around.network.process_died(process))
        self.process, self._leaders = process, _Leaders()
        process.start(self._main(process))
        return process

    async def _main(self, process: Process) -> None:
        parts = self._shown = self._parts(process)
        parts.metrics.watch(parts)
        operator = Operator(parts, lambda receiver: ObjectWatches(parts.watch_kube, receiver))
        await operator.run()

    def _parts(self, process: Process) -> Parts:
        around = self._around
        transport = SimulatedTransport(around.server, around.weather, around.loop, around.rng)
        kube = KubeApi(transport)

        def metadata_log(key: Key, cluster_id: UUID) -> kubernetes_log.RingLog:
            place = Place(namespace=key[0], cluster_name=key[1], cluster_id=cluster_id)
            options = kubernetes_log.RingOptions(slots=around.slots)
            return kubernetes_log.RingLog(TransportApi(transport, LOG_TIMEOUT_MS), place, options)

        return Parts(
            options=OperatorOptions(
                identity=process.name,
                broker_image=IMAGE,
                spark_image="spark",
                controllers=(f"{CONTROLLERS}:{CONTROLLER_PORT}",),
                settings=around.settings,
            ),
            kube=kube,
            lease_kube=kube,
            status_kube=kube,
            watch_kube=kube,
            metadata_log=metadata_log,
            objects=Objects(),
            server=ControllerServer(
                self.name, CONTROLLER_PORT, InsideServer() if around.asks_brokers else None
            ),
            metrics=Metrics(),
            now_ms=wall_ms,
            monotonic_ms=monotonic_ms,
            leaders=self._leaders,
            make_bucket=None if around.bucket is None else partial(_bucket, around.bucket),
        )

    def pass_on(self, request: Request) -> bool:
        """Pass a client's request, as a broker forwards it, to this operator's controller. Return
        False if it does not lead."""
        if not self.active or self.process is None:
            return False
        for led in self._leaders.values():
            self.process.call(led.controller.submit, request)
        return True

    def metrics(self) -> bytes:
        """Render the metrics of this process, as Prometheus would scrape them."""
        assert self.process is not None
        assert self._shown is not None
        return bytes(self.process.call(self._shown.metrics.render))

    def kill(self) -> None:
        if self.process is not None:
            self.process.die()

    def stop(self) -> None:
        """Send SIGTERM: the operator steps down, releases its Lease, and ends."""
        if self.process is not None and self.process.alive and self.process.main is not None:
            with contextlib.suppress(Exception):
                self.process.call(self.process.main.cancel)
