"""One pass over a Rebalance: makes its plan, begins the plan once it is approved, or continues it.

Called by the reconciler at each pass. Planning takes seconds in a large cluster, so it runs in a
thread, on an immutable image; the controller checks that the plan still holds when it begins. A
plan is kept in memory only: it is made again after a change of the cluster, and by the next leading
operator. No plan begins without approval: the spec's `approval: Automatic`, or exactly its hash in
`approvedPlan`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage, RebalanceObject
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.controller.moves.target_choice import Measured, measured
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import (
    CONCURRENT_MOVES_PER_BROKER,
    BeginRebalance,
    MoveLimits,
    RebalanceState,
    RunRebalance,
)
from plimsoll_core.messages.requests import Answer, Refused, Request
from plimsoll_core.planner.placement import RackPolicy
from plimsoll_core.planner.rebalance import Planned, PlanRequest, make
from plimsoll_core.planner.request import EvenLoad
from plimsoll_core.planner.traffic_capacity import TrafficCapacity
from plimsoll_operator.api.labels import PURPOSE
from plimsoll_operator.api.quantities import amount, bytes_per_second
from plimsoll_operator.api.rebalance import Goals, Rebalance

REPLAN_MS = 10_000
"""Minimum age of a plan that waits for approval before it is made again after a change of the
placement, in milliseconds."""
REFRESH_MS = 300_000
"""Age in milliseconds at which a plan that waits for approval is made again in any case, since
sizes of partitions grow."""
ATTEMPTS_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A plan that has not begun, or the reason why there is none (`planned`). `image`: the image
    from which it was made. `away`: the brokers that were regarded as lost. `made_ms`: its
    wall-clock time. `generation`: that of the spec."""

    planned: Planned | Refusal
    image: ClusterImage
    away: frozenset[BrokerId]
    made_ms: int
    generation: int
    traffic: Mapping[BrokerId, TrafficCapacity]

    def holds(self, image: ClusterImage, away: frozenset[BrokerId], found: Rebalance) -> bool:
        """Return True if planning again, from `image`, would give the same plan. Members, racks,
        strategies and replicas are compared; ISRs do not matter."""
        if not isinstance(self.planned, Planned) or self.generation != found.metadata.generation:
            return False
        return self.away == away and _same_placement(self.image, image)


def _same_placement(old: ClusterImage, new: ClusterImage) -> bool:
    if (old.members, old.leaving) != (new.members, new.leaving) or _racks(old) != _racks(new):
        return False
    if old.topics is not new.topics and _strategies(old) != _strategies(new):
        return False
    if old.partitions is new.partitions:
        return True
    if len(old.partitions) != len(new.partitions):
        return False
    for key, partition in new.partitions.items():
        known = old.partitions.get(key)
        if known is None or (known is not partition and known.target != partition.target):
            return False
    return True


def _racks(image: ClusterImage) -> dict[BrokerId, str | None]:
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items()}


def _strategies(image: ClusterImage) -> dict[UUID, str]:
    return {topic_id: topic.strategy for topic_id, topic in image.topics.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """The parts of a controller that planning uses. `now_ms` is the controller's clock of
    decisions, `wall_ms` the host's wall clock. `traffic`: the capacity that pools declare."""

    image: Callable[[], ClusterImage]
    soft: Callable[[], VolatileState]
    settings: Callable[[], Settings]
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    ask: Callable[[Request], Awaitable[Answer]]
    traffic: Callable[[], Mapping[BrokerId, TrafficCapacity]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePass:
    """Result of a pass. `answer` is the controller's, None if the plan waits for approval or the
    Rebalance is paused before it began. `sketch` is the plan if it has not begun."""

    answer: RebalanceState | Refused | None
    sketch: Sketch | None


class RebalancePlanning:
    """Plans and runs the Rebalances of one cluster. `sketches` holds the plans by the uids of their
    objects."""

    def __init__(self, controller: Deciding) -> None:
        self._controller = controller
        self.sketches: dict[str, Sketch] = {}

    async def look(self, found: Rebalance) -> RebalancePass:
        uid = found.metadata.uid
        row = self._controller.image().rebalances.get(uid)
        if row is None or row.phase == "Beginning":
            seen = await self._begin(found)
            row = self._controller.image().rebalances.get(uid)
            if seen.answer is None or row is None or row.phase != "Running":
                return seen
        return RebalancePass(
            answer=await self._ask(run_request(found, self._controller.wall_ms())),
            sketch=self.sketches.get(uid),
        )

    def forget(self, uid: str) -> None:
        """Forget the plan of an object that was deleted or has ended."""
        self.sketches.pop(uid, None)

    async def _begin(self, found: Rebalance) -> RebalancePass:
        if found.spec.cancelled:
            answer = await self._ask(begin_request(found, None, self._controller.wall_ms()))
            return RebalancePass(answer=answer, sketch=None)
        for attempt in range(ATTEMPTS_MAX):
            sketch = await self._plan(found, again=attempt > 0)
            planned = sketch.planned
            if isinstance(planned, Refusal):
                return RebalancePass(answer=_refused(planned), sketch=sketch)
            if found.spec.paused or not is_approved(found, planned):
                return RebalancePass(answer=None, sketch=sketch)
            answer = await self._ask(begin_request(found, planned, self._controller.wall_ms()))
            if not (isinstance(answer, Refused) and answer.known_reason is Reason.PlanOutdated):
                break
        return RebalancePass(answer=answer, sketch=sketch)

    async def _plan(self, found: Rebalance, *, again: bool) -> Sketch:
        """Return the plan made before if it is still usable, else make a new one. With `again`,
        make a new one in any case."""
        controller, uid = self._controller, found.metadata.uid
        image, known = controller.image(), self.sketches.get(uid)
        away = self._away(image)
        if known is not None and not again and self._still(known, found, image, away):
            return known
        soft, settings = controller.soft(), controller.settings()
        reported = measured(image, soft, controller.now_ms())
        traffic = controller.traffic()
        wish = wish_of(found, settings.rack_policy, away, reported, traffic)
        planned = await asyncio.to_thread(make, image, wish)
        sketch = Sketch(
            planned=planned,
            image=image,
            away=away,
            made_ms=controller.wall_ms(),
            generation=found.metadata.generation,
            traffic=traffic,
        )
        self.sketches[uid] = sketch
        return sketch

    def _still(
        self, known: Sketch, found: Rebalance, image: ClusterImage, away: frozenset[BrokerId]
    ) -> bool:
        """Return True if the plan made before is still usable: it is approved, or made recently, or
        a new plan would be the same."""
        if not isinstance(known.planned, Planned):
            return False
        if known.traffic != self._controller.traffic():
            return False
        if is_approved(found, known.planned):
            return True  # its rows are compared when it begins
        age_ms = self._controller.wall_ms() - known.made_ms
        if age_ms < REPLAN_MS and known.generation == found.metadata.generation:
            return True
        return age_ms < REFRESH_MS and known.holds(image, away, found)

    def _away(self, image: ClusterImage) -> frozenset[BrokerId]:
        """Return the registered brokers that have been inactive for so long that their replicas are
        placed elsewhere."""
        controller = self._controller
        now_ms, limit_ms = controller.now_ms(), controller.settings().target_lost_ms
        since = controller.soft().away_ms
        return frozenset(b for b in image.brokers if now_ms - since.get(b, now_ms) >= limit_ms)

    async def _ask(self, request: Request) -> RebalanceState | Refused:
        answer = await self._controller.ask(request)
        assert isinstance(answer, RebalanceState | Refused), answer
        return answer


def _refused(refusal: Refusal) -> Refused:
    return Refused(reason=refusal.reason.name, code=refusal.reason.code, message=refusal.message)


def is_approved(found: Rebalance, planned: Planned) -> bool:
    """Return True if exactly this plan may be carried out: it moves nothing, its hash is approved,
    or approval is Automatic."""
    if planned.plan.nothing_to_do:
        return True
    return found.spec.approval == "Automatic" or found.spec.approved_plan == planned.hash


def approval_reason(
    found: Rebalance, name: str, image: ClusterImage, shown: Collection[str]
) -> tuple[str, str]:
    """Return (reason, sentence) of the conditions of a plan that has not begun. `name` is the
    present plan's hash, `shown` are the hashes of the plans shown in this term."""
    ask = f"Set spec.approvedPlan to {name} to carry out the plan in status.plan."
    if any(p.moving for p in image.partitions.values()):
        ask += " Other moves are in progress and change the plan: approve it when they are done."
    approved = found.spec.approved_plan
    if approved and approved == name:
        return "Starting", (
            "The plan of the Rebalance is approved, and its moves are about to start."
        )
    if approved in shown:
        return "PlanChanged", f"The approved plan is out of date. {ask}"
    if approved:
        text = f"spec.approvedPlan is {approved}, which matches no recent plan, so nothing moves."
        return "UnknownPlan", f"{text} {ask}"
    return "AwaitingApproval", ask


def object_of(found: Rebalance) -> RebalanceObject:
    """Return the reference to the object for the metadata log."""
    meta = found.metadata
    return RebalanceObject(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def wish_of(
    found: Rebalance,
    rack_policy: RackPolicy,
    away: AbstractSet[BrokerId],
    reported: Measured,
    traffic: Mapping[BrokerId, TrafficCapacity],
) -> PlanRequest:
    """Return the planner's input for this Rebalance."""
    return PlanRequest(
        mode=found.spec.mode,
        brokers=_brokers(found),
        limits=limits_of(found),
        rack_policy=rack_policy,
        away=away,
        sizes=reported.sizes,
        rates=reported.rates,
        even_load=_goals(found),
        disks=reported.disks,
        traffic=traffic,
        replicas=reported.replicas,
    )


def _goals(found: Rebalance) -> EvenLoad:
    """Return the goals of the mode Load, with defaults for those that the spec leaves out."""
    goals, default = found.spec.goals or Goals(), EvenLoad()
    stated = (goals.disk_percent, goals.bytes_in_percent, goals.bytes_out_percent)
    disk, came, went = (
        usual if percent is None else percent
        for percent, usual in zip(stated, default.percent, strict=True)
    )
    most = None if goals.max_copied_bytes is None else int(amount(goals.max_copied_bytes))
    return EvenLoad(percent=(disk, came, went), max_bytes=most)


def begin_request(found: Rebalance, planned: Planned | None, wall_ms: int) -> BeginRebalance:
    """Return the request to begin the plan. If `planned` is None, return the request to record that
    the Rebalance was cancelled before it began."""
    return BeginRebalance(
        object=object_of(found),
        mode=found.spec.mode,
        brokers=_brokers(found),
        plan_hash="" if planned is None else planned.hash,
        moves=() if planned is None else planned.moves,
        waves=0 if planned is None else planned.waves,
        bytes_per_second=_throttle(found),
        cancelled=planned is None,
        wall_ms=wall_ms,
        by_itself=is_by_itself(found),
    )


def run_request(found: Rebalance, wall_ms: int) -> RunRebalance:
    """Return the request to continue a Rebalance that has begun, by the object's present spec."""
    return RunRebalance(
        object=object_of(found),
        limits=limits_of(found),
        bytes_per_second=_throttle(found),
        paused=bool(found.spec.paused),
        cancelled=bool(found.spec.cancelled),
        wall_ms=wall_ms,
        by_itself=is_by_itself(found),
    )


def is_by_itself(found: Rebalance) -> bool:
    """Return True if the operator made the Rebalance (a drain or a fill) and no person approved its
    plan."""
    return PURPOSE in found.metadata.labels and not found.spec.approved_plan


def limits_of(found: Rebalance) -> MoveLimits:
    """Return the limits that the spec states, with defaults for the others."""
    limits = found.spec.limits
    if limits is None:
        return MoveLimits()
    most = None if limits.max_bytes is None else max(1, int(amount(limits.max_bytes)))
    concurrent = limits.concurrent_moves_per_broker or CONCURRENT_MOVES_PER_BROKER
    return MoveLimits(concurrent_moves_per_broker=concurrent, max_bytes=most)


def _throttle(found: Rebalance) -> int | None:
    throttle = found.spec.throttle
    return None if throttle is None else bytes_per_second(throttle.bytes_per_second)


def _brokers(found: Rebalance) -> tuple[BrokerId, ...]:
    return tuple(sorted({BrokerId(number) for number in found.spec.brokers or ()}))
