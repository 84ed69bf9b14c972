"""The goal EvenLoad: balances measured load over brokers, with as few bytes copied as possible.

The loads are bytes on disk, bytes in and bytes out.

Called by the planner. The load of a broker is stated as a share of its capacity: of its disk, where
all brokers have reported one, and of the traffic that its pool declares, or else an equal share. No
step brings a broker above its declared traffic. A broker is overloaded if its
share exceeds the mean share by more than the goal's percentage. Each step takes the most overloaded
broker and makes the change that brings brokers closest together for each byte copied: another
preferred leader for a partition, which copies nothing, or one replica on a less loaded broker. The
plan ends when no broker is overloaded, no change helps, or the bytes of the goal are used up; the
loads that stay too high are reported (`Relaxation`). Racks, the reserve of each disk, and Explicit
topics are respected as by every other goal.

Source: the goals of Cruise Control (disk capacity, disk, network inbound and network outbound usage
distribution) as one sum of squares; docs/protocol.md §2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from heapq import nsmallest
from operator import add, mul, sub

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import NAMED_AT_MOST
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.draft import PlanDraft
from plimsoll_core.planner.outcome import Relaxation
from plimsoll_core.planner.placement import racks_of
from plimsoll_core.planner.request import EvenLoad, Request
from plimsoll_core.planner.survey import Survey, shares
from plimsoll_core.planner.traffic_capacity import TrafficCapacity

STEPS_MAX = 2_000
"""The most changes of one plan. A later Rebalance continues."""
LOOK_AT_MOST = 64
"""The most partitions of an overloaded broker that one step compares, by falling load."""
TARGETS_MAX = 8
"""The most brokers that a step compares as targets, the least loaded first."""
SMALL_BYTES = 1024 * 1024
"""The bytes that a copy costs at least, so that a thousand copies of nothing are not preferred to
one of a large log."""
GAIN_MIN = 1e-9
"""The least gain of a step. Less may be an error of rounding."""


class LoadKind(IntEnum):
    """A measured load."""

    DISK = 0
    BYTES_IN = 1
    BYTES_OUT = 2

    @property
    def words(self) -> str:
        return ("bytes on disk", "bytes written a second", "bytes read a second")[self]


Amounts = tuple[float, float, float]
"""One number for each LoadKind."""
NOTHING: Amounts = (0.0, 0.0, 0.0)
UNBOUNDED = TrafficCapacity()


@dataclass(frozen=True, slots=True)
class LoadShift:
    """One step of the plan: partition `p` gets the replicas `row`, which takes `amounts` of load
    off the broker `source` to the broker `target`. `copied`: the bytes that the step copies."""

    p: int
    row: tuple[BrokerId, ...]
    source: BrokerId
    target: BrokerId
    amounts: Amounts
    copied: int


class LoadModel:
    """The loads of brokers under a plan in the making.

    `loads`: of each broker, one number for each LoadKind. `scale`: the load of each usable broker
    at which it is as loaded as the mean, in relation to its capacity; 0 if there is no such load.
    `rows`: the replicas of each partition, changed in place. `held`: the partitions of each usable
    broker.
    """

    def __init__(self, survey: Survey, request: Request) -> None:
        self.survey = survey
        disks, self.traffic = request.rooms, request.capacities
        self.rows = survey.rows()
        self.room = {broker: disk.room_bytes for broker, disk in disks.items()}
        self.loads = {broker: list(NOTHING) for broker in survey.known}
        self.held: dict[BrokerId, dict[int, None]] = {broker: {} for broker in survey.usable}
        for p, row in enumerate(self.rows):
            for broker, amounts in shares(survey.partitions[p], row):
                loads = self.loads.setdefault(broker, list(NOTHING))
                loads[:] = map(add, loads, amounts)
                if broker in self.held:
                    self.held[broker][p] = None
        # No step moves load to or from brokers that are not usable, so the means stay.
        self.scale = self._scales(disks)

    def _scales(self, disks: Mapping[BrokerId, DiskRoom]) -> dict[BrokerId, list[float]]:
        usable = self.survey.usable
        sized = all(broker in disks for broker in usable)
        sizes = {broker: float(disks[broker].all_bytes) if sized else 1.0 for broker in usable}
        came = self._declared(lambda one: one.bytes_in)
        went = self._declared(lambda one: one.bytes_out)
        capacity = {broker: (sizes[broker], came[broker], went[broker]) for broker in usable}
        means = [
            sum(self.loads[broker][kind] for broker in usable)
            / sum(capacity[broker][kind] for broker in usable)
            for kind in LoadKind
        ]
        return {broker: list(map(mul, capacity[broker], means)) for broker in usable}

    def _declared(self, part: Callable[[TrafficCapacity], int | None]) -> dict[BrokerId, float]:
        """Return the declared capacity of each usable broker, or the same for all unless all have
        one."""
        usable = self.survey.usable
        stated = {b: part(self.traffic[b]) for b in usable if b in self.traffic}
        known = {broker: float(most) for broker, most in stated.items() if most is not None}
        return known if len(known) == len(usable) else dict.fromkeys(usable, 1.0)

    def bears(self, broker: BrokerId, amounts: Amounts) -> bool:
        """Return True if the broker stays within its declared capacity with these loads more."""
        most = self.traffic.get(broker, UNBOUNDED)
        return all(
            limit is None or not amounts[kind] or self.loads[broker][kind] + amounts[kind] <= limit
            for kind, limit in (
                (LoadKind.BYTES_IN, most.bytes_in),
                (LoadKind.BYTES_OUT, most.bytes_out),
            )
        )

    def level(self, broker: BrokerId, kind: LoadKind) -> float:
        """Return the broker's load in relation to the mean: 1.0 is even."""
        scale = self.scale[broker][kind]
        return self.loads[broker][kind] / scale if scale else 1.0

    def gain(self, source: BrokerId, target: BrokerId, amounts: Amounts) -> float:
        """Return by how much the sum of squared deviations from the mean, over all kinds of load,
        would fall if `source` gave this load to `target`."""
        gain = 0.0
        gives, gets = self.scale[source], self.scale[target]
        for kind, amount in enumerate(amounts):
            if not (amount and gives[kind]):
                continue
            less, more = amount / gives[kind], amount / gets[kind]
            above = self.loads[source][kind] / gives[kind] - 1
            below = self.loads[target][kind] / gets[kind] - 1
            gain += less * (2 * above - less) - more * (2 * below + more)
        return gain

    def make(self, step: LoadShift) -> None:
        source, target = step.source, step.target
        if target not in self.rows[step.p] and target in self.room:
            # What the source loses is room only when it is gone.
            self.room[target] -= self.survey.partitions[step.p].size_bytes or 0
        self.loads[source][:] = map(sub, self.loads[source], step.amounts)
        self.loads[target][:] = map(add, self.loads[target], step.amounts)
        self.rows[step.p] = list(step.row)
        if source not in step.row:
            del self.held[source][step.p]
        self.held[target][step.p] = None


def even_load(survey: Survey, request: Request, goal: EvenLoad) -> PlanDraft | Refusal:
    """Return the draft that balances measured load. It moves nothing if no broker is overloaded.
    Refuse if no broker is usable."""
    if not survey.usable:
        return Refusal(
            reason=Reason.NotEnoughBrokers,
            message=(
                "No broker can get replicas now: each one is down, or is being drained or removed. "
                "Start a broker that is down, or end a drain."
            ),
        )
    model = LoadModel(survey, request)
    left = goal.max_bytes
    before = [
        (broker, kind, model.level(broker, kind))
        for _, broker, kind in overloaded(model, goal)[:NAMED_AT_MOST]
    ]
    steps = 0
    while steps < STEPS_MAX and (step := _next_step(model, goal, left)) is not None:
        model.make(step)
        steps += 1
        if left is not None:
            left -= step.copied
    return PlanDraft(
        rows=model.rows,
        relaxations=_unmet(model, goal, is_cut=steps == STEPS_MAX),
        why=tuple(
            f"Broker {broker} has {_excess(level)} more {kind.words} than the mean of all "
            f"brokers; after the plan it has {_excess(model.level(broker, kind))} more."
            for broker, kind, level in before
        ),
        skipped=survey.skipped(),
    )


def has_step(survey: Survey, request: Request, goal: EvenLoad) -> bool:
    """Return True if `even_load` would move something."""
    if not survey.usable:
        return False
    return _next_step(LoadModel(survey, request), goal, goal.max_bytes) is not None


def _excess(level: float) -> str:
    return f"{round((level - 1) * 100)} %"


def overloaded(model: LoadModel, goal: EvenLoad) -> list[tuple[float, BrokerId, LoadKind]]:
    """Return the overloaded brokers as (level / allowed level, broker, kind of load), the most
    overloaded first."""
    found = [
        (level / allowed, broker, kind)
        for kind in LoadKind
        for allowed in (1 + goal.percent[kind] / 100,)
        for broker in model.scale
        if (level := model.level(broker, kind)) > allowed
    ]
    return sorted(found, key=lambda each: (-each[0], each[1], each[2]))


def _next_step(model: LoadModel, goal: EvenLoad, left: int | None) -> LoadShift | None:
    """Return the step that gains most for each byte copied, at the most overloaded broker at which
    any step helps. Return None if there is none, or no broker is overloaded."""
    for _, broker, kind in overloaded(model, goal):
        best: tuple[float, int, tuple[BrokerId, ...]] | None = None
        chosen = None
        for step in _steps(model, broker, kind, left):
            gain = model.gain(step.source, step.target, step.amounts)
            if gain <= GAIN_MIN or not model.bears(step.target, step.amounts):
                continue
            key = (-gain / (SMALL_BYTES + step.copied), step.p, step.row)
            if best is None or key < best:
                best, chosen = key, step
        if chosen is not None:
            return chosen
    return None


def _steps(
    model: LoadModel, source: BrokerId, kind: LoadKind, left: int | None
) -> Iterator[LoadShift]:
    """Yield the steps that take this kind of load off the broker `source`. `left`: the bytes that
    the plan may still copy, None for no limit."""
    survey = model.survey
    brought = {
        p: dict(shares(survey.partitions[p], model.rows[p]))[source]
        for p in model.held[source]
        if survey.free[p]
    }
    heavy = nsmallest(LOOK_AT_MOST, brought, key=lambda p: (-brought[p][kind], p))
    targets = nsmallest(TARGETS_MAX, model.scale, key=lambda b: (model.level(b, kind), b))
    for p in heavy:
        row, amounts = model.rows[p], brought[p]
        if amounts[kind] <= 0:
            return
        if kind is LoadKind.BYTES_OUT:
            for heir in row[1:]:
                if heir in model.scale:
                    after = (heir, *(b for b in row if b != heir))
                    yield LoadShift(p, after, source, heir, (0.0, 0.0, amounts[kind]), 0)
        size = survey.partitions[p].size_bytes
        if size is None or (left is not None and size > left):
            continue
        for target in targets:
            if target not in row and _has_room(model, target, size):
                after = tuple(target if b == source else b for b in row)
                if _keeps_racks(survey, p, after):
                    copied = 0 if target in survey.home[p] else size
                    yield LoadShift(p, after, source, target, amounts, copied)


def _has_room(model: LoadModel, broker: BrokerId, size: int) -> bool:
    return broker not in model.room or size <= model.room[broker]


def _keeps_racks(survey: Survey, p: int, after: tuple[BrokerId, ...]) -> bool:
    racks = survey.racks
    return racks is None or racks_of(after, racks) >= racks_of(survey.home[p], racks)


def _unmet(model: LoadModel, goal: EvenLoad, *, is_cut: bool) -> tuple[Relaxation, ...]:
    """Return one sentence that names the most overloaded broker of each kind of load that the plan
    leaves overloaded, or nothing if it leaves none. `is_cut`: the plan has STEPS_MAX steps."""
    worst: dict[LoadKind, str] = {}
    for _, broker, kind in overloaded(model, goal):
        excess = f"{_excess(model.level(broker, kind))} more {kind.words}"
        worst.setdefault(kind, f"broker {broker} ({excess}, {goal.percent[kind]} % are allowed)")
    if not worst:
        return ()
    advice = (
        f"The plan ends after {STEPS_MAX} changes: create another Rebalance when this one is done."
        if is_cut
        else (
            "No further move evens out the load within the rules for racks, disk reserves, "
            "capacities and the plan's limit of bytes. Spread the largest topics over more "
            "partitions, or add "
            "brokers."
        )
    )
    remaining = ", ".join(worst[kind] for kind in LoadKind if kind in worst)
    message = (
        f"After the plan these brokers still have more load than the mean: {remaining}. {advice}"
    )
    return (Relaxation(rule="LoadBalance", message=message),)
