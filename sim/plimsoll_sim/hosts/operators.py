"""A simulated operator process: the Lease, the metadata log, the controller and its server.

What an administrator wishes is in `DesiredState`; in place of kopf's handlers a task tells the
controller again and again, until it is so.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.cluster.model import Broker
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.messages.reassignments import ReassignmentObjectGone
from plimsoll_core.messages.rebalances import RebalanceObjectGone
from plimsoll_core.messages.requests import Request, TopicObjectGone
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.clocks import wall_ms
from plimsoll_operator.controller.outcome import ControllerOptions, Outcome
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.controller.server import ControllerServer
from plimsoll_operator.kube.client import Kube
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.leadership.candidate import Candidate
from plimsoll_operator.leadership.lease import Lease
from plimsoll_operator.metalog import kubernetes
from plimsoll_operator.metalog.kube_api import TransportApi
from plimsoll_operator.metalog.kube_objects import Place
from plimsoll_operator.reconcile.rebalance.planning import Deciding, Rebalancing
from plimsoll_operator.reconcile.stall_causes import Cause
from plimsoll_sim.desired import rebalances
from plimsoll_sim.desired.state import DesiredState
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process, current
from plimsoll_sim.environment.kube import NAMESPACE, SimulatedTransport, Weather
from plimsoll_sim.environment.network import Network
from plimsoll_sim.hosts import members
from plimsoll_sim.hosts.brokers import CONTROLLER_PORT, BrokerHost
from plimsoll_sim.hosts.pods import Pods
from plimsoll_sim.hosts.restarts import Roller

RECONCILE_S = 0.7
CLUSTER_NAME = "sim"
LOG_TIMEOUT_MS = 60_000
"""Longer than the weather lets anybody wait (`kube.GIVE_UP_US`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """What every operator process finds."""

    loop: SimLoop
    network: Network
    server: MemoryApiServer
    weather: Weather
    rng: random.Random
    brokers: dict[int, BrokerHost]
    wishes: DesiredState
    cluster_id: UUID
    settings: Settings
    slots: int
    pods: Pods


class SimLeader:
    """`leadership.candidate.LeadsWithLease` without custom resources."""

    def __init__(
        self, around: OperatorContext, controller: Controller, server: ControllerServer
    ) -> None:
        self._around = around
        self.controller = controller
        self._server = server
        self.outcomes: list[Outcome] = []
        self._rebalancing = Rebalancing(
            Deciding(
                image=lambda: controller.image,
                soft=lambda: controller.soft,
                settings=lambda: controller.settings,
                now_ms=lambda: controller.now_ms,
                wall_ms=wall_ms,
                ask=controller.request,
            )
        )

    async def run(self, vacant_ms: int = 0) -> Outcome:
        self._server.add(self.controller, self._evidence)
        around = self._around
        roller = Roller(
            self.controller,
            around.brokers,
            lambda: around.wishes.revision,
            self._api,
            around.pods.delete,
        )
        helpers = [asyncio.ensure_future(w) for w in (self._tell(), roller.forever())]
        try:
            outcome = await self.controller.run()
            self.outcomes.append(outcome)
            return outcome
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            await self._server.remove(self.controller.cluster_id)

    async def stop(self) -> None:
        await self.controller.stop()

    async def say(self, cause: Cause) -> None:
        pass

    async def _evidence(self, broker: Broker) -> str | None:
        """A fresh look at the pod."""
        around = self._around
        weather = around.weather
        await asyncio.sleep(around.rng.randint(*weather.latency_us) / 1_000_000)
        if weather.down or weather.hung:
            return None
        host = around.brokers[int(broker.id)]
        if host.running and host.pod_uid() == broker.pod_uid:
            return None
        return f"pod {broker.pod_uid} is gone"

    def _api(self) -> tuple[float, bool]:
        """How long a call to the API server takes now, and whether it comes through."""
        around, weather = self._around, self._around.weather
        seconds = around.rng.randint(*weather.latency_us) / 1_000_000
        away = current() in weather.away_from
        return seconds, not (weather.down or weather.hung or away)

    async def _tell(self) -> None:
        while True:
            await self.controller.wait_active()
            for request in self._requests():
                await self.controller.request(request)
            await self._rebalance()
            around, image = self._around, self.controller.image
            around.pods.reconcile(image, around.brokers, around.wishes.revision)
            await asyncio.sleep(RECONCILE_S)

    async def _rebalance(self) -> None:
        """Look at each; who sees a plan that waits for its approval approves it."""
        wishes = self._around.wishes
        for uid in list(wishes.rebalances):
            found = wishes.rebalances.get(uid)
            if found is None:
                continue
            seen = await self._rebalancing.look(found)
            planned = None if seen.sketch is None else seen.sketch.planned
            waits = seen.answer is None and not found.spec.paused
            if waits and isinstance(planned, Planned) and uid in wishes.rebalances:
                rebalances.change(wishes, uid, approved_plan=planned.hash)

    def _requests(self) -> list[Request]:
        wishes = self._around.wishes
        around, image = self._around, self.controller.image
        requests = list(members.requests(image, wishes.members, around.brokers))
        requests += list(wishes.topics.values())
        for name, gone in sorted(wishes.gone.items()):
            if name not in wishes.topics:
                requests.append(
                    TopicObjectGone(
                        object=gone,
                        server_now_ms=self._around.loop.now_us // 1_000,
                        grace_ms=0,
                        removals_per_hour_max=1_000,
                    )
                )
        requests += list(wishes.moves.values())
        requests += [ReassignmentObjectGone(object=one) for one in wishes.gone_moves.values()]
        given_up = wishes.gone_rebalances.values()
        requests += [RebalanceObjectGone(object=one) for one in given_up]
        requests += wishes.orders
        wishes.orders.clear()
        return requests


class OperatorHost:
    """A machine with an operator on it."""

    def __init__(self, number: int, around: OperatorContext) -> None:
        self.name = f"operator-{number}"
        self._around = around
        self.process: Process | None = None
        self.controller: Controller | None = None
        self.leader: SimLeader | None = None
        self.lives = 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def active(self) -> bool:
        return self.running and self.controller is not None and self.controller.active

    def start(self) -> Process:
        around = self._around
        self.lives += 1
        around.network.dark.discard(self.name)
        process = Process(around.loop, f"{self.name}#{self.lives}", self.name)
        process.at_death.append(lambda: around.network.process_died(process))
        self.process, self.controller, self.leader = process, None, None
        process.start(self._main(process))
        return process

    async def _main(self, process: Process) -> None:
        around = self._around
        transport = SimulatedTransport(around.server, around.weather, around.loop, around.rng)
        api = TransportApi(transport, LOG_TIMEOUT_MS)
        lease = Lease(
            Kube(transport),
            namespace=NAMESPACE,
            name=CLUSTER_NAME,
            identity=process.name,
            wall_ms=wall_ms,
        )
        place = Place(namespace=NAMESPACE, cluster_name=CLUSTER_NAME, cluster_id=around.cluster_id)
        log = kubernetes.RingLog(api, place, kubernetes.RingOptions(slots=around.slots))
        self.controller = Controller(
            cluster_id=around.cluster_id,
            name=CLUSTER_NAME,
            log=log,
            settings=around.settings,
            identity=process.name,
            options=ControllerOptions(),
        )
        server = ControllerServer(self.name, CONTROLLER_PORT)
        await server.start()
        self.leader = SimLeader(around, self.controller, server)
        candidate = Candidate(lease, self.leader, _no_objection)
        await candidate.forever()

    def kill(self) -> None:
        if self.process is not None:
            self.process.die()

    def stop(self) -> None:
        """SIGTERM: step down, release the Lease, end."""
        if self.process is not None and self.process.alive and self.process.main is not None:
            with contextlib.suppress(Exception):
                self.process.call(self.process.main.cancel)


async def _no_objection() -> None:
    return None
