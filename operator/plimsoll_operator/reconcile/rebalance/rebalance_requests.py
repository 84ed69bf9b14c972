"""A Rebalance object as a planner request and controller requests. Pure.

Called by the Rebalance reconciler.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from plimsoll_core.cluster.model import PartitionKey, RebalanceObject
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.rebalances import (
    CONCURRENT_MOVES_PER_BROKER,
    BeginRebalance,
    MoveLimits,
    RunRebalance,
)
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.placement import RackPolicy
from plimsoll_core.planner.rebalance import Planned, PlanRequest
from plimsoll_operator.api.quantities import amount, bytes_per_second
from plimsoll_operator.api.rebalance import Rebalance


def object_of(found: Rebalance) -> RebalanceObject:
    """Return the object's reference in the metadata log."""
    meta = found.metadata
    return RebalanceObject(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def wish_of(
    found: Rebalance,
    rack_policy: RackPolicy,
    away: AbstractSet[BrokerId],
    sizes: Mapping[PartitionKey, int],
    disks: Mapping[BrokerId, DiskRoom],
) -> PlanRequest:
    """Return the planner request."""
    return PlanRequest(
        mode=found.spec.mode,
        brokers=_brokers(found),
        limits=limits_of(found),
        rack_policy=rack_policy,
        away=away,
        sizes=sizes,
        disks=disks,
    )


def begin_request(found: Rebalance, planned: Planned | None, wall_ms: int) -> BeginRebalance:
    """Return the request to begin the plan; without one, to record a Rebalance cancelled before it
    began."""
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
    )


def run_request(found: Rebalance, wall_ms: int) -> RunRebalance:
    """Return the request to continue, by the object's present spec."""
    return RunRebalance(
        object=object_of(found),
        limits=limits_of(found),
        bytes_per_second=_throttle(found),
        paused=bool(found.spec.paused),
        cancelled=bool(found.spec.cancelled),
        wall_ms=wall_ms,
    )


def limits_of(found: Rebalance) -> MoveLimits:
    """Return the limits, with defaults."""
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
