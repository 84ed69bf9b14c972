"""Rack rules: brokers that may register without a rack, and placements that are refused.

Called for registrations and for every placement of new partitions. Preferred: placement uses racks
if all brokers concerned have one. Required: a broker without a rack may not register, and while
there are two racks no partition with two replicas stays in one. Ignored: placement does not use
racks. Existing replicas are never moved for racks. Source: the protocol's rule for rack-aware
placement."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from plimsoll_core.cluster.model import Broker
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import RegisterBroker
from plimsoll_core.phrasing import replicas_text
from plimsoll_core.planner.placement import Assignment, Located, racks_missing


def located(turn: DecisionContext, ids: AbstractSet[BrokerId]) -> list[Located]:
    """Return the brokers, by ascending id, with their racks. The rack is None if the policy ignores
    racks or the broker has none."""
    if turn.settings.rack_policy == "Ignored":
        return [(broker_id, None) for broker_id in sorted(ids)]
    return [(broker_id, turn.image.brokers[broker_id].rack) for broker_id in sorted(ids)]


def broker_has_a_rack(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    """Refuse a registration without a rack if racks are required."""
    if turn.settings.rack_policy != "Required" or request.rack is not None:
        return None
    return Refusal(
        reason=Reason.InvalidRegistration,
        message=(
            f"Broker {request.broker_id} cannot register, because it has no rack, and racks are "
            "required in this cluster. Label its node with a rack, or set spec.racks.policy to "
            "Preferred."
        ),
    )


def brokers_have_racks(turn: DecisionContext, usable: Iterable[Broker]) -> Refusal | None:
    """Refuse if racks are required and a broker that is usable for a placement has none. Such a
    broker registered before racks were required."""
    if turn.settings.rack_policy != "Required":
        return None
    without = sorted(broker.id for broker in usable if broker.rack is None)
    return racks_missing(without) if without else None


def check_spread(turn: DecisionContext, rows: Assignment) -> Refusal | None:
    """Refuse a placement with all replicas of a partition in one rack, if racks are required and
    the usable brokers have at least two."""
    if turn.settings.rack_policy != "Required":
        return None
    brokers, takes = turn.image.brokers, turn.image.takes_replicas
    usable = (b for b in brokers.values() if not b.shutting_down and takes(b.id))
    if len(_racks(usable)) < 2:
        return None
    for row in rows:
        racks = _racks(turn.image.brokers[broker_id] for broker_id in row)
        if len(row) > 1 and len(racks) < 2:
            where = f"rack {next(iter(racks))!r} only" if racks else "no rack"
            return Refusal(
                reason=Reason.InvalidReplicationFactor,
                message=(
                    f"Replicas on brokers {replicas_text(row)} would be in {where}, but spec.racks "
                    "requires two racks. Choose brokers of two racks; start brokers of another "
                    "rack if they are down."
                ),
            )
    return None


def _racks(brokers: Iterable[Broker]) -> set[str]:
    return {broker.rack for broker in brokers if broker.rack is not None}
