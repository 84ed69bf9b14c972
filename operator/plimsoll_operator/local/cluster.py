"""Runs a local cluster from start to stop: the operator, an API server in memory, brokers.

The command line runs one `LocalCluster`, which hosts `process.operator` without Kubernetes:
processes stand for pods, a directory for the objects of the metadata log, and files for the objects
that a user applied.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster.listener_peers import open_to_all
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.ids import BrokerId
from plimsoll_core.release import RELEASE
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_ids import cluster_id, kafka_id
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.stateful_sets import found
from plimsoll_operator.backup.s3_store import bucket
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.history.archive import Archive
from plimsoll_operator.history.segment_stores import DirectoryStore
from plimsoll_operator.history.segments import Budget
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.local import earlier_run
from plimsoll_operator.local.api_endpoint import ApiAccess, ApiEndpoint, ApiPlace
from plimsoll_operator.local.background_tasks import BackgroundTasks
from plimsoll_operator.local.broker_pods import BrokerPods
from plimsoll_operator.local.documents import Documents, stranger
from plimsoll_operator.local.driver_pods import DriverPods, why_no_driver
from plimsoll_operator.local.kept_objects import LocalObjects
from plimsoll_operator.local.layout import DirectoryLayout, Remembered, plan
from plimsoll_operator.local.machine import LocalPods, Machine
from plimsoll_operator.local.ports import LOOPBACK, HeldPorts, Ports, taken
from plimsoll_operator.local.start import CannotRun, Start
from plimsoll_operator.manifests.listener_secrets import CA_FILE
from plimsoll_operator.metalog.directory import DirectoryLog, write_whole
from plimsoll_operator.metalog.interface import LogOfAnother, MetadataLog, OpenedLog
from plimsoll_operator.options import TOPIC_ID_KEY_BYTES, OperatorOptions
from plimsoll_operator.process.object_watches import ObjectWatches
from plimsoll_operator.process.operator import Operator
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.status.operator_metrics import Metrics
from plimsoll_process.loop_watch import LoopWatch
from plimsoll_process.waits import cancelled


def show_authority(server: MemoryApiServer, key: Key, layout: DirectoryLayout) -> str:
    """Write the CA certificate that clients of the LogCluster's TLS listeners must trust to a file,
    and return its path. Return "", and write nothing, if the LogCluster has no such CA (yet)."""
    namespace, name = key
    shown = found(server, resources.CONFIG_MAPS, namespace, labels.listener_authority_map(name))
    if shown is None:
        return ""
    layout.pki.mkdir(mode=0o700, exist_ok=True)
    write_whole(layout.listener_authority, shown.body["data"][CA_FILE].encode())
    return str(layout.listener_authority)


R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How to run a local cluster, as the command line states it."""

    root: Path
    port: int | None
    restart: bool
    documents: Documents
    address: str = LOOPBACK
    """The address of this machine at which everything listens."""
    restore_metadata: str = ""
    """The history of the metadata that the user has confirmed to restore, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReady:
    """The line that `plimsoll local` prints when the cluster is ready: addresses, process ids,
    credentials."""

    bootstrap: str
    controller: str
    api: str
    metrics: dict[str, str]
    pids: dict[str, int]
    listeners: dict[str, str]
    """For each declared listener by name: the brokers' addresses, comma-separated. Empty if no
    listener is declared; clients then use `bootstrap`."""
    authority: str
    """The file with the CA certificate that clients of TLS listeners must trust; empty if there is
    none."""
    users: str
    """The directory with a folder of credentials for each User; empty if there is none."""


class OtherCluster(DirectoryLog):
    """Stands for the metadata log of a LogCluster that this directory does not hold, because its id
    differs. `open` raises LogOfAnother, so the LogCluster is never led."""

    def __init__(self, path: Path, cluster_id: UUID, own: UUID) -> None:
        super().__init__(path, cluster_id)
        self._own = own

    async def open(self) -> OpenedLog:
        raise LogOfAnother(
            f"the local cluster's directory holds cluster {kafka_id(self._own)}; to create its "
            "LogCluster again, set that id in spec.clusterId"
        )


class LocalCluster:
    """A cluster on this machine: operator, API server in memory, brokers and drivers. `run` starts
    it, and returns after `stop`."""

    def __init__(self, wishes: LocalOptions) -> None:
        self._wishes = wishes
        self._address = wishes.address
        self._access = ApiAccess(wishes.address, wall_ms())
        self._layout = DirectoryLayout(wishes.root)
        # All ports of the cluster, held while it runs.
        self._held = HeldPorts(wishes.address)
        self._stop_wanted = asyncio.Event()
        # The running tasks; a failure of one ends the cluster.
        self._tasks = BackgroundTasks(self.fail)
        # The first error of any part, which `run` raises.
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Request a clean stop, upon which `run` returns. May be called from a signal handler."""
        self._stop_wanted.set()

    async def run(self, when_ready: Callable[[LocalReady], None]) -> None:
        """Start everything, call `when_ready` once, and run until `stop`. Raises CannotRun or
        BadDirectory if the cluster cannot be started, and any fatal error of the operator."""
        if why := stranger(self._wishes.documents):
            raise CannotRun(why)
        self._layout.prepare()
        with self._held:
            await self._run(when_ready)

    async def _run(self, when_ready: Callable[[LocalReady], None]) -> None:
        # Ids and ports; brokers that join later are added.
        planned = self._planned = self._plan()
        image = await earlier_run.committed(self._layout, planned.cluster_id)
        objects = LocalObjects(self._layout)
        brokers = BrokerPods(
            objects.server,
            self._layout,
            self._ports,
            restart=self._wishes.restart,
            address=self._address,
        )
        parts = self._parts(objects)
        pods = LocalPods(brokers, self._drivers(objects, parts))
        machine = Machine(objects.server, pods, self.fail)
        parts.metrics.watch(parts)
        loop_watch = LoopWatch()
        parts.metrics.watch_loop(loop_watch.holds)
        place = ApiPlace(
            address=self._address, port=planned.api_port, metrics_port=planned.metrics_port
        )
        api = ApiEndpoint(objects.server, place, self._access, parts)
        start = Start(
            parts, objects, brokers, self._wishes.documents, image, self._wishes.restore_metadata
        )
        start.prepare(planned.cluster_id)
        loop_watch.start()
        operator = self._tasks.spawn(self._operate(parts), "operator")
        workloads = members = None
        try:
            if led := await self._until_stop(start.led()):
                # No other run uses this directory now: a taken port is in use by another program.
                self._check_ports(led.controller.image.members)
                workloads = self._tasks.spawn(machine.run(), "workloads")
                members = await self._until_stop(start.run())
            if members is not None:
                await self._serve(api)
                objects.save()
                self._tasks.spawn(objects.save_forever(), "objects")
                when_ready(self._ready(members, api.url, brokers, parts))
                await self._until_stop(self._stop_wanted.wait())
        finally:
            loop_watch.stop()
            # Stop brokers while the controller can still grant their controlled shutdown.
            machine.stopping = True
            if workloads is not None:
                await cancelled(workloads)
            await pods.stop_all()
            await cancelled(operator)
            for task in self._tasks:
                await cancelled(task)
            await api.stop()
        if members is not None:
            objects.save()

    # --- what it is made of -----------------------------------------------------------------------

    def _plan(self) -> Remembered:
        cluster, known = self._wishes.documents.cluster, self._layout.remembered()
        wanted = cluster_id(cluster) if cluster.spec.cluster_id else None
        before = tuple(BrokerId(b) for b in known.brokers) if known else ()
        members = next_members(before, cluster.id_ranges, cluster.excluded_ids)
        planned = plan(known, tuple(map(int, members)), wanted, self._wishes.port, self._held)
        self._layout.remember(planned)
        return planned

    def _ports(self, broker_id: int) -> Ports:
        """Return a broker's ports. Those of a broker that joined after the start are picked, held
        and stored at the first call."""
        known = self._planned.brokers.get(broker_id)
        if known is None or not known.kafka:
            self._planned = plan(self._planned, (broker_id,), None, self._wishes.port, self._held)
            self._layout.remember(self._planned)
        return self._planned.brokers[broker_id]

    def _check_ports(self, members: Iterable[BrokerId]) -> None:
        """Raise CannotRun if another process listens on a port of one of the members."""
        present = list(map(int, members)) or list(self._planned.brokers)
        listeners = tuple(one.port for one in self._wishes.documents.cluster.listeners)
        ports = {broker_id: self._ports(broker_id) for broker_id in present}
        if why := taken(ports, listeners, self._address):
            raise CannotRun(why)

    def _drivers(self, objects: LocalObjects, parts: Parts) -> DriverPods:
        """Build the runtime for the pods of Spark drivers. A driver bootstraps with all brokers
        that exist when the driver starts."""

        def bootstrap() -> str:
            return self._bootstrap(parts, map(BrokerId, self._planned.brokers))

        return DriverPods(
            objects.server,
            self._layout,
            bootstrap=bootstrap,
            api=f"https://{self._at(self._planned.api_port)}",
            owner=self._access.owner,
            address=self._address,
        )

    def _parts(self, objects: LocalObjects) -> Parts:
        kube = KubeApi(MemoryTransport(objects.server))
        port = self._planned.controller_port
        return Parts(
            options=OperatorOptions(
                identity=f"local-{os.getpid()}",
                broker_image=f"plimsoll-broker:{RELEASE}",
                controllers=(self._at(port),),
                topic_id_key=secrets.token_bytes(TOPIC_ID_KEY_BYTES),
                server_names=(self._address, "localhost"),
                spark_image=f"plimsoll-spark:{RELEASE}",
                no_driver=why_no_driver(os.environ),
                local_faults=True,
                shared_drills=True,
                driver_output=f"the newest file {self._layout.pod_log('{job}-*')}",
            ),
            kube=kube,
            lease_kube=kube,
            status_kube=kube,
            watch_kube=kube,
            metadata_log=self._log,
            objects=Objects(),
            server=ControllerServer(self._address, port, InsideServer()),
            metrics=Metrics(),
            now_ms=wall_ms,
            monotonic_ms=monotonic_ms,
            alone=True,
            history=self._history,
            backup_directory=self._layout.backup,
            make_bucket=partial(bucket, wall_ms),
            history_directory=str(self._layout.history),
        )

    def _log(self, key: Key, wanted: UUID) -> MetadataLog:
        path, own = self._layout.metadata, self._planned.cluster_id
        return DirectoryLog(path, own) if wanted == own else OtherCluster(path, wanted, own)

    def _history(self, key: Key, wanted: UUID) -> Archive:
        return Archive(DirectoryStore(self._layout.history), str(wanted), Budget())

    async def _operate(self, parts: Parts) -> None:
        port = self._planned.controller_port
        try:
            kube = parts.watch_kube
            await Operator(parts, lambda receiver: ObjectWatches(kube, receiver)).run()
        except OSError as error:
            raise self._taken(port, "controller") from error

    async def _serve(self, api: ApiEndpoint) -> None:
        try:
            await api.start()
        except OSError as error:
            raise self._taken(self._planned.api_port, "API") from error
        namespace = self._wishes.documents.cluster.key[0]
        self._layout.show_api(api.url, self._access.owner, namespace)

    def _taken(self, port: int, kind: str) -> CannotRun:
        return CannotRun(
            f"The local cluster cannot start, because its {kind} port, {port}, is in use. "
            f"Probably another `plimsoll local` runs on {self._wishes.root}; stop it first."
        )

    def _at(self, port: int) -> str:
        """Return `HOST:PORT` of a port of this cluster, for clients."""
        return host_and_port(self._address, port)

    def _listeners(self, parts: Parts) -> tuple[Listener, ...]:
        led = parts.leaders.get(self._wishes.documents.cluster.key)
        return () if led is None else led.controller.image.listeners

    def _bootstrap(self, parts: Parts, broker_ids: Iterable[BrokerId]) -> str:
        """Return the brokers' addresses, comma-separated, for clients that choose no listener:
        those of the first inside listener that is plaintext without a login; if there is none,
        those of the first listener; without any listener, those of the brokers' Kafka ports."""
        present, listeners = tuple(broker_ids), self._listeners(parts)
        if not listeners:
            return ",".join(self._at(self._ports(int(one)).kafka) for one in present)
        return self._addresses(open_to_all(listeners) or listeners[0], present)

    def _addresses(self, listener: Listener, broker_ids: Iterable[BrokerId]) -> str:
        """Return the brokers' addresses at a listener, comma-separated. Brokers share one address
        here, so each adds its id to the listener's port."""
        return ",".join(self._at(listener.port + broker_id) for broker_id in broker_ids)

    def _ready(
        self, members: tuple[BrokerId, ...], api: str, brokers: BrokerPods, parts: Parts
    ) -> LocalReady:
        ports = {str(b): self._ports(int(b)).metrics for b in members}
        ports["controller"] = self._planned.metrics_port
        key = self._wishes.documents.cluster.key
        return LocalReady(
            bootstrap=self._bootstrap(parts, members),
            controller=self._at(self._planned.controller_port),
            api=api,
            metrics={name: f"http://{self._at(port)}/metrics" for name, port in ports.items()},
            pids=brokers.pids,
            listeners={
                listener.name: self._addresses(listener, members)
                for listener in self._listeners(parts)
            },
            authority=show_authority(brokers.server, key, self._layout),
            users=str(self._layout.users) if self._layout.users.exists() else "",
        )

    # --- tasks ------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Report a fatal error of a part. `run` raises the first one."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _until_stop(self, work: Coroutine[Any, Any, R]) -> R | None:
        """Return the result of `work`. If `stop` is called first, cancel `work` and return None. If
        a part reports an error to `fail` first, cancel `work` and raise that error."""
        stop = asyncio.ensure_future(self._stop_wanted.wait())
        working = asyncio.ensure_future(work)
        watched: set[asyncio.Future[Any]] = {stop, working, self._failed}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            return working.result() if working.done() else None
        finally:
            await cancelled(stop)
            await cancelled(working)
