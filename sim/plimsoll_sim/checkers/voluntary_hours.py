"""Checks that no voluntary work begins outside the hours that the LogCluster's spec states.

Called with each decision of a controller, at the moment at which it is made: a record may be
committed later. Only decisions of an operator that has seen the newest spec are checked. Which
hours it is follows from the spec by arithmetic (`desired.hours`), not from the product's cron
expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import UNSET

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.record_versions import OLDEST
from plimsoll_core.cluster.records import (
    BrokersLeaving,
    MembersChanged,
    MetadataVersionFinalized,
    PartitionsChanged,
    Record,
    RestartGranted,
    TopicRemoved,
)
from plimsoll_core.controller.decide import Decision
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import RunRebalance
from plimsoll_core.messages.requests import Request
from plimsoll_operator.controller import controller_term
from plimsoll_operator.process_clocks import wall_ms
from plimsoll_sim.desired.hours import StatedHours, stated_at
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.engine.process import PROCESS
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_sim.oracle.partition_ghost import Violation

DECIDE = "decide"
"""Name by which a controller calls the decisions of the core."""


class HourChecker:
    """Checks the decisions of one world. `accuse` is called with each violation."""

    def __init__(self, objects: AppliedObjects, accuse: Callable[[Violation], None]) -> None:
        self._objects = objects
        self._accuse = accuse
        self.operators: list[OperatorHost] = []
        # The number of decisions that were made while voluntary work had to wait.
        self.judged = 0

    def judge(
        self, image: ClusterImage, soft: VolatileState, request: Request, decision: Decision
    ) -> None:
        """Check one decision. `image`: the one on which it was based."""
        if not decision.records:
            return
        hours = self._hours()
        if hours is None or hours.free:
            return
        self.judged += 1
        for record in decision.records:
            why = _begun(image, soft, request, record, hours)
            if why is not None:
                self._accuse(Violation("VoluntaryHours", f"{why}, with {hours}: {record}"))
            image = apply(image, record)

    def _hours(self) -> StatedHours | None:
        """Return the hours now. Return None if the deciding operator has not seen the newest
        spec."""
        process = PROCESS.get(None)
        host = next((one for one in self.operators if one.process is process), None)
        seen = None if host is None else host.seen_generation
        cluster = self._objects.cluster
        if seen != cluster.metadata.generation:
            return None
        return stated_at(cluster, wall_ms())


def _begun(
    image: ClusterImage,
    soft: VolatileState,
    request: Request,
    record: Record,
    hours: StatedHours,
) -> str | None:
    """Return the voluntary work that the record begins although it must wait, or None."""
    stopped = hours.paused or hours.hibernated

    def serves(broker_id: BrokerId) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_id not in soft.leaving

    match record:
        case RestartGranted(broker_id=one) if one not in image.grants:
            return "a restart begins" if stopped or serves(one) else None
        case BrokersLeaving(broker_ids=ids):
            new = [b for b in ids if b not in image.leaving]
            return "a drain begins" if new and (stopped or any(map(serves, new))) else None
        case MembersChanged(broker_ids=ids) if image.members:
            if stopped:
                return "members change"
            gone = [b for b in image.members if b not in ids]
            return "a broker is removed" if any(map(serves, gone)) else None
        case MetadataVersionFinalized() if image.metadata_version != OLDEST:
            return "a metadata version is finalised" if hours.paused or hours.closed else None
        case TopicRemoved(now_ms=int()) if stopped:
            return "a topic's data is deleted"
        case PartitionsChanged() if any(_moves(image, record)):
            if stopped or _by_itself(request, serves):
                return "a move begins"
    return None


def _moves(image: ClusterImage, record: PartitionsChanged) -> Iterator[bool]:
    """Yield for each partition of the record if the record begins its move to other brokers."""
    if record.adding is UNSET or not record.adding:
        return
    for first, last in record.ranges:
        for index in range(first, last + 1):
            yield not image.partitions[PartitionKey(record.topic_id, index)].moving


def _by_itself(request: Request, serves: Callable[[BrokerId], bool]) -> bool:
    """Return True if the moves of the request wait for a window: the operator made its Rebalance
    and no person approved it, and it does not only drain dead brokers."""
    if not isinstance(request, RunRebalance) or not request.by_itself:
        return False
    _, drains, ids = request.object.name.partition("-drain-")
    emptied = [BrokerId(int(one)) for one in ids.split("-") if one.isdecimal()]
    return not drains or any(map(serves, emptied))


class Judge(Protocol):
    """Checks decisions of controllers."""

    def judge(
        self, image: ClusterImage, soft: VolatileState, request: Request, decision: Decision
    ) -> None:
        """Check one decision. `image`: the one on which it was based."""


@contextmanager
def judging(*judges: Judge) -> Iterator[None]:
    """Have the judges see every decision that controllers make within the context."""
    decide = vars(controller_term)[DECIDE]

    def judged(
        image: ClusterImage,
        soft: VolatileState,
        request: Request,
        now_ms: int,
        settings: Settings,
    ) -> Decision:
        decision: Decision = decide(image, soft, request, now_ms, settings)
        for one in judges:
            one.judge(image, soft, request, decision)
        return decision

    setattr(controller_term, DECIDE, judged)
    try:
        yield
    finally:
        setattr(controller_term, DECIDE, decide)
