"""BrokerNode: a broker from its start to its clean stop, in the protocol's order.

`__main__` runs one. Start: lock the volume, check its owner, read the clean-stop marker and delete
it, register, catch up with its own registration, load the logs and take up roles, listen, ask to be
unfenced. Stop: ask to leave (bounded), close the network, close the logs, and only then write the
marker. Nothing is served or fetched without this lifetime's epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from plimsoll_broker.background import in_thread
from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.control.controller_client import ControllerClient, NoController, Peers
from plimsoll_broker.control.copy_offers import CopyOffers
from plimsoll_broker.control.metadata_store import MetadataCopy
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.node.assembly import OwnLifetime, assemble
from plimsoll_broker.node.client_listeners import implicit_endpoint
from plimsoll_broker.node.drill_faults import DrillFaults
from plimsoll_broker.node.heartbeats import HeartbeatPeers, Heartbeats
from plimsoll_broker.node.metrics_server import MetricsServer
from plimsoll_broker.node.serving import Serving
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_broker.storage.cleaner.round import CleaningWork
from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.cluster.record_versions import UNDERSTOOD, MetadataTooNew
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerEpoch, BrokerId, MetadataOffset
from plimsoll_core.messages.brokers import BrokerFigures, LogOutput
from plimsoll_core.messages.requests import Refused, RegisterBroker, Registered
from plimsoll_core.release import RELEASE
from plimsoll_core.replica.leader_lease import LeaderLease
from plimsoll_process.loop_watch import LoopHolds

logger = logging.getLogger("plimsoll.broker")

REGISTER_MS_MAX = 60_000
REGISTER_RETRY_MS = 500
REGISTER_ANEW_MS_MAX = 5_000
STOP_SILENT_MS_MAX = 5_000
STOP_MS_MAX = 20_000
# Other refusals may pass with another attempt: an old session, no cluster yet, an empty volume.
FINAL_REFUSALS = frozenset({"InconsistentClusterId"})


class BrokerState(Enum):
    """The states of a broker process from start to stop."""

    NOT_RUNNING = "NotRunning"
    STARTING = "Starting"
    RECOVERY = "Recovery"
    RUNNING = "Running"
    PENDING_CONTROLLED_SHUTDOWN = "PendingControlledShutdown"
    SHUTTING_DOWN = "ShuttingDown"


class CannotStart(Exception):
    """The broker cannot start, and the volume was not changed. The message is for the user."""


class BrokerNode:
    """Runs one broker from its start to its stop. `run` returns after a clean stop, and raises the
    error that the broker cannot continue with. `cleaning`: where the work of compaction runs; None
    for a thread of this process. `holds`: how long single callbacks have held the event loop,
    measured by a watcher that the owner sets; None without one."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk | None = None,
        cleaning: CleaningWork | None = None,
    ) -> None:
        self.config = config
        self._disk = disk if disk is not None else Disk()
        self.holds: LoopHolds | None = None
        # Sets the format of log lines; replaced by the owner of the log output.
        self.write_lines: Callable[[LogOutput], None] = lambda _: None
        # How long the calling thread has waited for a processor; replaced by the process.
        self.thread_waited_ms: Callable[[], int] = lambda: 0
        self.state = BrokerState.NOT_RUNNING
        self._started_ms = monotonic_ms()
        self._stop_wanted = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store = LogStore(Path(config.data_dir), self._disk)
        self._store.cleaning = cleaning
        self._serving: Serving | None = None
        self._heartbeats: Heartbeats | None = None
        self._epoch: BrokerEpoch | None = None
        self._stream: MetadataStream | None = None
        self._copy: MetadataCopy | None = None
        self._registration: RegisterBroker | None = None
        peers = Peers(
            cluster_id=config.cluster_id,
            broker_id=BrokerId(config.id),
            controllers=config.controllers,
        )
        self._inside = InsidePeers(config.cluster_id, config.certificates)
        self._client = ControllerClient(peers, self._inside)
        self._drill = DrillFaults(
            peers.broker_id, self._inside, self._disk, allowed=config.allow_drills
        )

    @property
    def ready(self) -> bool:
        """True if the broker is running and unfenced, has met no metadata that only a newer release
        can read, and no partition's min ISR waits for it to catch up. The readiness probe reads
        it."""
        running = self.state is BrokerState.RUNNING
        fenced = self._heartbeats is None or self._heartbeats.fenced
        behind = fenced or bool(self.unknown_metadata)
        return running and not behind and self._serving is not None and self._serving.settled

    @property
    def unknown_metadata(self) -> str:
        """The sentence of the error that ended the applying of metadata, since only a newer release
        can read them; empty while all metadata are applied."""
        return self._stream.unknown if self._stream is not None else ""

    @property
    def manager(self) -> ReplicaManager | None:
        """The replica manager. None until the broker has registered."""
        return self._serving.data.manager if self._serving is not None else None

    @property
    def coordinators(self) -> Coordinators | None:
        """The group coordinators. None until the broker has registered."""
        return self._serving.coordinators if self._serving is not None else None

    @property
    def authority(self) -> Authority | None:
        """The authority, which decides what clients may do. None until the broker has
        registered."""
        return self._serving.authority if self._serving is not None else None

    @property
    def quotas(self) -> Quotas | None:
        """The clients' quotas. None until the broker has registered."""
        return self._serving.quotas if self._serving is not None else None

    @property
    def long_work(self) -> FairWork | None:
        """The pool of threads for clients' long work. None until the broker has registered."""
        return self._serving.long_work if self._serving is not None else None

    @property
    def listeners(self) -> Mapping[str, BrokerListener]:
        """The open clients' listeners by name, and the followers' as "replication". Empty until the
        broker has registered."""
        return {} if self._serving is None else self._serving.listeners

    @property
    def handler_failures(self) -> Mapping[str, int]:
        """The number of requests that failed by a bug of the broker, by API."""
        return {} if self._serving is None else self._serving.handler_failures

    @property
    def inside(self) -> InsidePeers:
        """The connections to brokers and controllers of this cluster, and their certificates."""
        return self._inside

    def _groups(self) -> int | None:
        """Return the number of groups coordinated here; None until the logs are loaded."""
        return None if (found := self.coordinators) is None else found.groups

    def _figures(self) -> BrokerFigures:
        """Return the figures that heartbeats send for the cluster's status, such as disk space.
        Those not known yet are None."""
        serving, stream, room = self._serving, self._stream, self._store.room
        manager = serving.data.manager if serving is not None and serving.loaded else None
        return BrokerFigures(
            disk_free_bytes=None if room is None else room[0],
            disk_bytes=None if room is None else room[1],
            completed_offset=None if manager is None else manager.roles.applied,
            copied_offset=None if stream is None else stream.copied_offset,
            inside=self._inside.figures,
            closed_listeners={} if serving is None else serving.clients.closed,
            partitions_max=self._store.partitions_max,
            disk_short=manager is not None and manager.disk_shares.short,
            drill=self._drill.number,
        )

    def _acted_beyond(self) -> bool:
        """Return True if a replica here knows a newer state of its partition than the metadata that
        this broker has applied: an answer of the controller has overtaken the metadata stream."""
        if self.manager is None or self._stream is None:
            return False
        known = self._stream.image.partitions
        return any(
            hosted.key in known
            and hosted.replica.partition.partition_epoch > known[hosted.key].partition_epoch
            for hosted in self.manager
        )

    def fail(self, error: BaseException) -> None:
        """Have `run` stop the broker at once and raise this error; neither the logs nor the marker
        of a clean stop are written. Later calls than the first are ignored."""
        if not self._failed.done():
            self._failed.set_exception(error)

    @property
    def controller_silent_ms(self) -> int:
        """The time in ms since a confirmed controller last answered, or since the start if none
        has."""
        if self._heartbeats is None:
            return monotonic_ms() - self._started_ms
        return self._heartbeats.silent_ms

    def stop(self) -> None:
        """Begin a clean stop. It may be called more than once, and from a signal handler."""
        self._stop_wanted.set()

    async def run(self) -> None:
        """Run the broker until `stop` is called and the clean stop is done. Raise CannotStart if
        the volume or the controller does not permit the start, or the error that ended the broker.
        All tasks, connections and the volume's lock are released in any case."""
        metrics_server = MetricsServer(self)
        try:
            await metrics_server.start(self.config.metrics, self.config.health)
            await self._until_stop(self._start())
            if not self._stop_wanted.is_set():
                await self._until_stop(self._forever())
            await self._stop()
        finally:
            await self._cancel_tasks()
            self._close_copy()
            self._drill.close()
            self._client.close()
            self._store.release_lock()
            await metrics_server.close()
            self.state = BrokerState.NOT_RUNNING

    # --- start ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Do the steps of the start, from locking the volume to being unfenced by the controller,
        for which it waits without a time limit. Raise CannotStart if the volume belongs to another
        broker, the local metadata are too new, or the controller refuses for good."""
        self.state = BrokerState.STARTING
        meta_directory_id = self._open_volume()
        directory_id = meta_directory_id or uuid4()
        self._copy = MetadataCopy(Path(self.config.data_dir), self._disk)
        # Before the marker is removed: a broker that cannot read its metadata leaves the volume as
        # it is.
        try:
            self._stream = stream = MetadataStream(self._client, self._copy)
        except MetadataTooNew as error:
            raise CannotStart(
                f"this broker cannot read its metadata (MetadataTooNew): {error}; run a newer"
                " release"
            ) from error
        self._inside.learn(stream.image)
        stream.subscribe(self._inside.update)
        self._spawn("certificates inside", self._inside.run())
        offers = CopyOffers(self._client, stream, self._copy, self._acted_beyond)
        self._spawn("offers of the metadata", offers.run())
        previous = self._store.take_clean_marker()
        registered = await self._register(
            stream, directory_id, previous, empty=meta_directory_id is None
        )
        self._epoch = registered.broker_epoch
        logger.info(
            "broker %d is registered with the controller, broker epoch %d",
            self.config.id,
            self._epoch,
        )
        if meta_directory_id is None:
            self._store.format(self.config.cluster_id, self.config.id, directory_id)
        lease = LeaderLease()
        asked = HeartbeatPeers(
            groups=self._groups,
            figures=self._figures,
            write_lines=self.write_lines,
            drill=self._drill.ordered,
        )
        self._heartbeats = Heartbeats(self._client, stream, self._epoch, lease, asked)
        self._spawn("metadata stream", stream.run())
        self._spawn("heartbeats", self._heartbeats.run())

        # A broker epoch is the metadata offset of the registration record.
        await stream.wait_applied(MetadataOffset(self._epoch))
        self.state = BrokerState.RECOVERY
        own = OwnLifetime(broker_epoch=self._epoch, lease=lease, register=self._register_anew)
        self._serving = assemble(self.config, self._store, self._client, stream, own)
        self._serving.long_work.thread_waited_ms = self.thread_waited_ms
        self._serving.data.manager.opener.thread_waited_ms = self.thread_waited_ms
        self._serving.clients.thread_waited_ms = self.thread_waited_ms
        await self._serving.start()
        for name, work in self._serving.tasks():
            self._spawn(name, work)
        self._heartbeats.unfence()
        await self._heartbeats.wait_unfenced()
        self.state = BrokerState.RUNNING
        logger.info("broker %d is running: it serves clients", self.config.id)

    def _open_volume(self) -> UUID | None:
        """Lock the volume and return its directory id; None if it is not formatted. Raise
        CannotStart if another process or broker owns it."""
        refused = self._store.open() or self._store.identify(self.config.cluster_id, self.config.id)
        if refused is not None:
            raise CannotStart(
                f"the broker's volume cannot be used ({refused.reason}): {refused.message}"
            )
        meta = self._store.meta
        return meta.directory_id if meta is not None else None

    def _endpoints(self, clients: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Return the clients' endpoints and the replication endpoint."""
        host, port = self.config.reachable.host, self.config.replication.port
        return *clients, Endpoint(name=listener_peers.REPLICATION, host=host, port=port)

    async def _register_anew(self, clients: tuple[Endpoint, ...]) -> bool:
        """Register these client endpoints under the present broker epoch. Return True if the
        controller has committed them; False if it refused or did not answer within
        REGISTER_ANEW_MS_MAX."""
        assert self._stream is not None, "it follows the metadata"
        assert self._registration is not None, "it is registered"
        request = replace(
            self._registration,
            endpoints=self._endpoints(clients),
            volume_is_empty=False,
            position=self._stream.position,
        )
        try:
            answer = await self._client.command(request, REGISTER_ANEW_MS_MAX)
        except NoController:
            return False
        if isinstance(answer, Refused):
            logger.warning(
                "the controller refused the new listener addresses of this broker, so clients "
                "still get the former ones; the broker sends them again: %s",
                answer.message,
            )
        return isinstance(answer, Registered)

    async def _register(
        self, stream: MetadataStream, directory_id: UUID, previous: int | None, *, empty: bool
    ) -> Registered:
        """Register this broker and return the controller's answer; retry until a controller
        accepts. `previous`: the broker epoch of the last clean stop; None if the last stop was
        unclean. `empty`: True if the volume is not formatted yet. Raise CannotStart if the
        controller refuses for good."""
        request = RegisterBroker(
            cluster_id=self.config.cluster_id,
            broker_id=BrokerId(self.config.id),
            incarnation_id=uuid4(),
            previous_broker_epoch=None if previous is None else BrokerEpoch(previous),
            directory_ids=(directory_id,),
            endpoints=self._endpoints((implicit_endpoint(self.config),)),
            rack=self.config.rack,
            pod_uid=self.config.pod_uid,
            revision=self.config.revision,
            volume_is_empty=empty,
            position=stream.position,
            metadata_versions=UNDERSTOOD,
            release=RELEASE,
        )
        self._registration = request
        said: str | None = None
        while True:
            try:
                answer = await self._client.command(request, REGISTER_MS_MAX)
            except NoController as error:
                logger.warning(
                    "this broker cannot register with the controller and tries again; until then "
                    "it serves no clients: %s",
                    error,
                )
                continue
            match answer:
                case Registered():
                    return answer
                case Refused(reason=Reason.MetadataDismissed.name, message=message, keep_logs=kept):
                    logger.warning(
                        "this broker deletes its copy of the metadata, and the controller sends "
                        "the metadata again; nothing needs to be done: %s",
                        message,
                    )
                    await in_thread(partial(self._forget_history, stream, kept))
                    request = replace(request, previous_broker_epoch=None, position=stream.position)
                    self._registration = request
                case Refused(reason=reason, message=message) if reason in FINAL_REFUSALS:
                    raise CannotStart(message)
                case Refused(message=message):
                    if message != said:
                        logger.warning(
                            "this broker cannot register with the controller and tries again; "
                            "until then it serves no clients: %s",
                            message,
                        )
                    said = message
                    await asyncio.sleep(REGISTER_RETRY_MS / 1000)
                case other:
                    raise AssertionError(
                        f"the controller answered a registration with an "
                        f"unexpected message: {other}"
                    )

    def _forget_history(
        self, stream: MetadataStream, kept: tuple[tuple[str, tuple[int, ...]], ...]
    ) -> None:
        """Drop the copy of the metadata, of a history that was given up, and set aside every log
        that other replicas have too, but those that are to be `kept`: in both histories records may
        have been written at the same offsets in the same leader epoch, so no comparison of epochs
        finds where they part. The logs go first: a crash in between repeats this. May run in a
        thread."""
        keeps = {(topic, index) for topic, indexes in kept for index in indexes}
        image = stream.image

        def replicated(topic: str, index: int) -> bool:
            if (topic, index) in keeps:
                return False
            known = image.partition_named(topic, index)
            return known is None or len(known.replicas) > 1

        self._store.doubt_logs(replicated, monotonic_ms())
        stream.forget()

    # --- stop -----------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Do the steps of a clean stop: ask the controller for a controlled shutdown (at most
        STOP_MS_MAX, or STOP_SILENT_MS_MAX without an answer), close the network, end the tasks,
        close the logs and write the marker. If a step failed, or the logs were never loaded, no
        marker is written."""
        if self._heartbeats is not None and not self._heartbeats.fenced:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._heartbeats.shut_down()
            granted = await self._heartbeats.wait_may_stop(
                silent_ms_max=STOP_SILENT_MS_MAX, all_ms_max=STOP_MS_MAX
            )
            text = (
                "this broker may shut down: other brokers lead its partitions now"
                if granted
                else (
                    "the controller did not move this broker's leaderships in time; the broker "
                    "stops anyway, and its partitions get other leaders after its session timeout"
                )
            )
            logger.info(text)
        self.state = BrokerState.SHUTTING_DOWN
        if self._serving is not None:
            await self._serving.stop_network()
        await self._cancel_tasks()
        self._close_copy()
        clean = False
        if self._serving is not None:
            await self._serving.close()
            # Only a broker that loaded every log, and met no bug, can mark a clean stop.
            sound = self._serving.loaded and not self._failed.done()
            epoch = self._epoch if sound else None
            clean = self._store.close(epoch, self._serving.high_watermarks())
        logger.info(
            "this broker stopped%s",
            " cleanly" if clean else ", but not cleanly; its next start checks the logs by itself",
        )

    def _close_copy(self) -> None:
        """Close the local copy of the metadata. A disk error is logged and the broker goes on
        stopping, since only the next start would have used the copy."""
        if self._copy is None:
            return
        try:
            self._copy.close()
        except StorageError as error:
            logger.warning(
                "this broker, which is stopping, cannot write its copy of the metadata to disk; "
                "the controller sends the missing metadata at its next start, so nothing needs "
                "to be done: %s",
                error,
            )

    # --- tasks ----------------------------------------------------------------------------------

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """Remove a task that has ended, and, unless it was cancelled, have `run` fail with its
        error: these tasks must run as long as the broker does."""
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            self.fail(
                error
                or AssertionError(
                    f"the task {task.get_name()} ended, but must run as long as the broker"
                )
            )

    async def _until_stop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, or until `stop` is called. Raise the error of `work` or of a
        failed task."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop_wanted.wait())
        try:
            watched: set[asyncio.Future[Any]] = {task, stop, self._failed}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            if task.done():
                task.result()
        finally:
            for unfinished in (task, stop):
                unfinished.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

    async def _forever(self) -> None:
        await asyncio.Event().wait()

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
