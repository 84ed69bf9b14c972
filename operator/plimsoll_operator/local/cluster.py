"""A local cluster from its start to its stop: controller, its server, broker processes, topics.

The command line runs one `LocalCluster`.  It uses the very controller, server and reconcile
functions of the operator; only the metadata log is a directory, and processes stand for pods.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.elections import ElectionsAnswer
from plimsoll_core.messages.membership import UnregisterBroker
from plimsoll_core.messages.reassignments import LimitMovement
from plimsoll_core.messages.requests import Refused, Request, SetMembers, TopicsAnswer
from plimsoll_operator.api.broker_configs import broker_configs_of, settings_of
from plimsoll_operator.api.cluster_ids import cluster_id
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.controller.outcome import ControllerOptions, Outcome
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.controller.server import ControllerServer
from plimsoll_operator.local.brokers import BrokerProcess
from plimsoll_operator.local.documents import Documents, declaration
from plimsoll_operator.local.layout import LOOPBACK, DirectoryLayout, Remembered, plan
from plimsoll_operator.local.moves import Moves
from plimsoll_operator.local.rebalances import Rebalances
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.reconcile.topic.request import named_leaders

logger = logging.getLogger("plimsoll.local")

START_MS_MAX = 120_000
RETRY_MS = 50
NAMING_MS_MAX = 10_000
FORGET_MS = 1_000


class CannotRun(Exception):
    """The cluster cannot be started; a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What the command line asks for."""

    root: Path
    port: int | None
    restart: bool
    documents: Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReady:
    """Where everything is."""

    bootstrap: str
    controller: str
    pids: dict[str, int]


class LocalCluster:
    """`run` starts everything, calls back once when ready, and returns after the stop."""

    def __init__(self, wishes: LocalOptions) -> None:
        self._wishes = wishes
        self._layout = DirectoryLayout(wishes.root)
        self._stop_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._brokers: list[BrokerProcess] = []
        self._members: tuple[BrokerId, ...] = ()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Begin a clean stop; may be called from a signal handler."""
        self._stop_wanted.set()

    async def run(self, when_ready: Callable[[LocalReady], None]) -> None:
        """Raises CannotRun, and whatever the controller cannot go on with."""
        planned = self._plan()
        log = DirectoryLog(self._layout.metadata, planned.cluster_id)
        controller = self._controller(planned, log)
        server = ControllerServer(LOOPBACK, planned.controller_port)
        try:
            await self._listen(server, planned)
            server.add(controller)
            running = self._spawn("controller", self._control(controller))
            ready = asyncio.ensure_future(self._start(controller, planned))
            await self._until_stop(ready)
            if not self._stop_wanted.is_set():
                when_ready(ready.result())
                await self._until_stop(None)
            await self._stop(controller, running)
        finally:
            for broker in self._brokers:
                await broker.stop()
            await controller.stop()
            await server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await log.close()

    # --- start ----------------------------------------------------------------------------------

    def _plan(self) -> Remembered:
        self._layout.prepare()
        documents = self._wishes.documents
        known = self._layout.remembered()
        stated = documents.cluster.spec.cluster_id
        wanted = cluster_id(documents.cluster) if stated else None
        cluster = documents.cluster
        committed = tuple(BrokerId(b) for b in known.brokers) if known else ()
        self._members = next_members(committed, cluster.count, cluster.excluded_ids)
        planned = plan(known, tuple(int(b) for b in self._members), wanted, self._wishes.port)
        self._layout.remember(planned)
        return planned

    def _controller(self, planned: Remembered, log: DirectoryLog) -> Controller:
        cluster = self._wishes.documents.cluster
        return Controller(
            cluster_id=planned.cluster_id,
            name=cluster.metadata.name,
            log=log,
            # There are no nodes here, so no broker has a rack.
            settings=replace(settings_of(cluster), rack_policy="Preferred"),
            identity=f"local-{os.getpid()}",
            options=ControllerOptions(always_confirmed=True),
        )

    async def _listen(self, server: ControllerServer, planned: Remembered) -> None:
        try:
            await server.start()
        except OSError as error:
            raise CannotRun(
                f"port {planned.controller_port}, this cluster's controller port, is taken. Most "
                f"likely another `plimsoll local` runs on {self._wishes.root}."
            ) from error

    async def _control(self, controller: Controller) -> None:
        """Nobody else can lead here: what ends one term begins the next."""
        while not self._stop_wanted.is_set():
            outcome = await controller.run()
            if outcome is Outcome.TOO_NEW and controller.stalled is not None:
                raise CannotRun(controller.stalled.message)
            if outcome is Outcome.STALLED:
                # Brokers keep serving; a person has to restore the log and start again.
                await self._stop_wanted.wait()
            elif outcome is not Outcome.STOPPED:
                logger.warning("the controller stepped down: %s", outcome.value)
                await asyncio.sleep(RETRY_MS / 1000)

    async def _start(self, controller: Controller, planned: Remembered) -> LocalReady:
        try:
            async with asyncio.timeout(START_MS_MAX / 1000):
                await controller.wait_active()
                await self._ask(controller, SetMembers(broker_ids=self._members))
                limit = self._wishes.documents.cluster.movement_bytes_per_second
                await self._ask(controller, LimitMovement(bytes_per_second=bytes_per_second(limit)))
                earlier = {id_: b.broker_epoch for id_, b in controller.image.brokers.items()}
                self._start_brokers(planned)
                await self._all_unfenced(controller, earlier)
                moves = Moves(controller, self._wishes.documents.reassignments)
                plans = Rebalances(controller, self._wishes.documents.rebalances)
                await moves.look()  # what is in no file any more would hold up its topics
                await plans.drop()
                await self._declare_topics(controller)
                self._spawn("moves", moves.run())
                self._spawn("rebalances", plans.run())
                self._spawn("former brokers", self._forget_former(controller))
        except TimeoutError:
            raise CannotRun(
                f"the cluster was not ready after {START_MS_MAX // 1000} s; see {self._layout.logs}"
            ) from None
        ports = [planned.brokers[int(broker_id)].kafka for broker_id in self._members]
        return LocalReady(
            bootstrap=",".join(f"{LOOPBACK}:{port}" for port in ports),
            controller=f"{LOOPBACK}:{planned.controller_port}",
            pids=self._pids(),
        )

    async def _forget_former(self, controller: Controller) -> None:
        """Unregister brokers that are no members any more, once their sessions are over."""
        while True:
            image = controller.image
            former = sorted(set(image.brokers) - set(image.members))
            if not former:
                return
            for broker_id in former:
                epoch = image.brokers[broker_id].broker_epoch
                request = UnregisterBroker(broker_id=broker_id, broker_epoch=epoch)
                await controller.request(request)
            await asyncio.sleep(FORGET_MS / 1000)

    def _start_brokers(self, planned: Remembered) -> None:
        cluster = self._wishes.documents.cluster
        configs = broker_configs_of(cluster)
        if isinstance(configs, Refusal):
            raise CannotRun(configs.message)
        for broker_id in self._members:
            broker = BrokerProcess(
                int(broker_id),
                self._layout,
                restart=self._wishes.restart,
                changed=lambda: self._layout.show_pids(self._pids()),
            )
            controller = f"{LOOPBACK}:{planned.controller_port}"
            ports = planned.brokers[int(broker_id)]
            broker.configure(
                planned.cluster_id, controller, ports, configs, cluster.on_controller_loss
            )
            self._brokers.append(broker)
            self._spawn(f"broker {broker_id}", broker.run())

    async def _all_unfenced(
        self, controller: Controller, earlier: dict[BrokerId, BrokerEpoch]
    ) -> None:
        """Those that run now: after a crash the log still shows the last lifetimes as alive."""
        while True:
            brokers = controller.image.brokers
            if all(
                b in brokers and brokers[b].active and brokers[b].broker_epoch != earlier.get(b)
                for b in self._members
            ):
                return
            if controller.stalled is not None:
                raise CannotRun(controller.stalled.message)
            for broker in self._brokers:
                if broker.ended:
                    raise CannotRun(f"broker {broker.broker_id} ended: {broker.last_words}")
            await asyncio.sleep(RETRY_MS / 1000)

    async def _declare_topics(self, controller: Controller) -> None:
        for topic in self._wishes.documents.topics:
            wish = declaration(self._wishes.documents, topic)
            label = f"Topic {topic.metadata.name}: "
            if isinstance(wish, Refusal):
                raise CannotRun(label + wish.message)
            await self._ask(controller, wish, label)
            await self._name_leaders(controller, topic, label)

    async def _name_leaders(self, controller: Controller, topic: Topic, label: str) -> None:
        """Brokers tell of their logs once a second: a refusal may be about the moment."""
        wish = named_leaders(topic)
        deadline = asyncio.get_running_loop().time() + NAMING_MS_MAX / 1000
        while wish is not None:
            answer = await controller.request(wish)
            if isinstance(answer, ElectionsAnswer):
                refused = [one.message for one in answer.partitions if one.code]
                if not refused:
                    return
                if asyncio.get_running_loop().time() >= deadline:
                    raise CannotRun(label + refused[0])
            await asyncio.sleep(RETRY_MS / 1000)

    async def _ask(self, controller: Controller, request: Request, label: str = "") -> None:
        """Commit it; a refusal that is not about the moment ends the start."""
        while True:
            answer = await controller.request(request)
            if isinstance(answer, Refused):
                if answer.known_reason is not Reason.NotController:
                    raise CannotRun(label + answer.message)
            elif isinstance(answer, TopicsAnswer) and (bad := _first_error(answer)):
                raise CannotRun(bad)
            else:
                return
            await asyncio.sleep(RETRY_MS / 1000)

    def _pids(self) -> dict[str, int]:
        running = {str(b.broker_id): b.pid for b in self._brokers if b.pid is not None}
        return {**running, "controller": os.getpid()}

    # --- stop -----------------------------------------------------------------------------------

    async def _stop(self, controller: Controller, running: asyncio.Task[Any]) -> None:
        """Brokers first, while the controller can still grant them their leave."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        await controller.stop()
        await asyncio.wait([running], timeout=2)

    # --- tasks ----------------------------------------------------------------------------------

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """It cannot go on: `run` raises the error."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _until_stop(self, work: asyncio.Future[LocalReady] | None) -> None:
        stop = asyncio.ensure_future(self._stop_wanted.wait())
        watched: set[asyncio.Future[Any]] = {stop, self._failed}
        if work is not None:
            watched.add(work)
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            if work is not None and work.done():
                work.result()
        finally:
            stop.cancel()
            if work is not None and not work.done():
                work.cancel()


def _first_error(answer: TopicsAnswer) -> str | None:
    for topic in answer.topics:
        if topic.code:
            return f"Topic {topic.name}: {topic.message}"
    return None
