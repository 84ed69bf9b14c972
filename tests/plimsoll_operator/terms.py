"""A term whose controller answers as told: what the handlers of one cluster work with."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from tests.plimsoll_operator.builders import a_cluster_body
from tests.plimsoll_operator.scripted_kube import ScriptedKube

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import Record
from plimsoll_core.controller.decide import decide
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.messages.requests import Answer, Done, Request
from plimsoll_operator.controller.controller_stats import ControllerStats
from plimsoll_operator.controller.drill_orders import DrillOrders
from plimsoll_operator.kube.resources import LEASES, LOG_CLUSTERS
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.metalog.interface import LogUsage
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.reconcile.cluster.inside import certificates_status
from plimsoll_operator.reconcile.effects import TermEffects
from plimsoll_operator.reconcile.pass_result import ObjectStatus, PassResult
from plimsoll_operator.reconcile.reconcile_term import Term, Work
from plimsoll_operator.status.status_writer import Status, Target

Reply = Callable[[Request], Answer]
Reconcile = Callable[[Term, Any], Awaitable[PassResult]]


class StubSnapshotter:
    """Of a log that has no limit."""

    usage: LogUsage | None = None


class StubController:
    """`image` is committed; `reply` may replace it, as a commit would."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.soft = VolatileState()
        self.settings = Settings()
        self.now_ms = 1_000_000
        self.stats = ControllerStats()
        self.snapshotter = StubSnapshotter()
        self.drill_orders = DrillOrders(lambda: self.now_ms)
        self.active = True
        self.not_restored = None
        self.restores = False
        self.stalled = None
        self.reply: Reply = lambda _: Done()
        self.asked: list[Request] = []

    async def request(self, request: Request) -> Answer:
        self.asked.append(request)
        return self.reply(request)


class Scene:
    """A LogCluster that exists, its API server, and its term."""

    def __init__(
        self, image: ClusterImage, controller: StubController | None = None, **cluster_spec: Any
    ) -> None:
        self.kube = ScriptedKube()
        self.objects = Objects()
        self.controller = controller or StubController(image)
        self.work: list[Work] = []
        self.marked: list[Any] = []
        self.declare(**cluster_spec)
        self.kube.put(LEASES, {"metadata": {"name": "main-1", "namespace": "kafka"}, "spec": {}})
        self.term = Term(
            key=("kafka", "main"),
            cluster_id=image.cluster_id,
            controller=self.controller,  # type: ignore[arg-type]
            kube=self.kube,
            objects=self.objects,
            options=OperatorOptions(identity="x", broker_image="b:1", controllers=("c:1",)),
            lease_name="main-1",
            write_status=self._write_status,
            now_ms=wall_ms,
            monotonic_ms=monotonic_ms,
        )
        self.effects = TermEffects(
            term=self.term,
            add=self.work.append,
            add_later=lambda work, _: self.work.append(work),
            mark=self.marked.append,
        )

    async def run(self, reconcile: Reconcile, key: Any = None) -> None:
        """One pass of a reconciler, and its effects. Raises its error."""
        self.effects.carry_out(await reconcile(self.term, key or self.term.key))

    async def run_part(self, part: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """One part of a pass, and its effects. Return its answer; raises its error."""
        answer = None
        with PassResult() as result:
            answer = await part(self.term, result, *args)
        self.effects.carry_out(result)
        return answer

    def shows(self, target: Target, generation: int, status: Status | None) -> None:
        """A pass that found only this status of its object; None if the object is gone."""
        found = ObjectStatus(target=target, generation=generation, status=status)
        self.effects.carry_out(PassResult(status=found))

    async def _write_status(self) -> None:
        """The part of it that is read again."""
        found = self.kube.find(LOG_CLUSTERS, "kafka", "main")
        shown = {"certificates": msgspec.to_builtins(certificates_status(self.term))}
        self.kube.put(LOG_CLUSTERS, {**found, "status": {**found.get("status", {}), **shown}})

    def declare(self, **cluster_spec: Any) -> None:
        """The LogCluster as its owner has it now."""
        body = a_cluster_body(**cluster_spec)
        self.kube.put(LOG_CLUSTERS, body)
        self.objects.clusters.put(body)

    def made(self, plural: str) -> list[str]:
        """The names of what exists of a kind."""
        return sorted(name for kind, _, name in self.kube.objects if kind == plural)


class Deciding(StubController):
    """A controller that decides as the real one does, and commits at once."""

    def __init__(self, image: ClusterImage) -> None:
        super().__init__(image)
        self.records: list[Record] = []

    async def request(self, request: Request) -> Answer:
        self.asked.append(request)
        again: Request | None = request
        while again is not None:
            decision = decide(self.image, self.soft, again, self.now_ms, self.settings)
            self.image = decision.image
            self.records += decision.records
            again = decision.again
        return decision.answer
