"""The planner's only switch: one request, one plan or one refusal.

Called for moves of replicas or leaderships; changes nothing itself. The protocol's rules for adding
brokers, removing brokers and the full rebalance state its promises: fewest moved replicas for loads
that differ by at most one, racks kept. The plan reports each rule that cannot be kept.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import assert_never

from msgspec.structs import replace

from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner import add_remove_brokers, full_rebalance, topic_changes
from plimsoll_core.planner.disk_room import bounded, no_room, overfilled, without_figures
from plimsoll_core.planner.draft import PlanDraft, conclude
from plimsoll_core.planner.even_load import even_load, has_step
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.replica_room import too_many_replicas
from plimsoll_core.planner.request import (
    AddBrokers,
    ChangeTopics,
    EvenLoad,
    FullRebalance,
    PreferredLeaders,
    RemoveBrokers,
    Request,
)
from plimsoll_core.planner.survey import Survey, survey
from plimsoll_core.planner.traffic_capacity import too_much_traffic


def plan(request: Request) -> Plan | Refusal:
    """Return the plan for a request, or a Refusal. It is made by counts of replicas, and then
    fitted to the free room on disks.

    A broker with a full disk gets no replica if the goal can do without it. With the goals
    AddBrokers, FullRebalance and EvenLoad the plan leaves out the moves that do not fit; with
    another goal it is refused. A plan that brings a broker above the replicas that it has memory
    for, or above its declared traffic, is refused; the goal EvenLoad makes no step above traffic.
    """
    rooms = request.rooms
    found = by_counts(request)
    for _ in rooms:
        if isinstance(found, Refusal) or not (over := overfilled(found, rooms)):
            break
        if isinstance(request.goal, AddBrokers | FullRebalance | EvenLoad):
            found = bounded(found, rooms)
            break
        request = _without(request, over.keys())
        again = by_counts(request)
        found = no_room(over, rooms) if isinstance(again, Refusal) else again
    if isinstance(found, Refusal):
        return found
    if over := overfilled(found, rooms):
        return no_room(over, rooms)
    refusal = too_many_replicas(found, request.most_replicas)
    if refusal := refusal or too_much_traffic(found, request.capacities):
        return refusal
    return replace(found, unknown_disks=without_figures(found, rooms))


def _without(request: Request, full: AbstractSet[BrokerId]) -> Request:
    """Return the request with these brokers marked unusable."""
    brokers = (replace(b, usable=False) if b.id in full else b for b in request.brokers)
    return replace(request, brokers=tuple(brokers))


def by_counts(request: Request) -> Plan | Refusal:
    """Return the plan for a request by counts of replicas alone, without regard to disks. Only the
    goal EvenLoad uses the disks' figures, as capacities."""
    surveyed = survey(request)
    if isinstance(surveyed, Refusal):
        return surveyed
    draft = _draft(surveyed, request)
    return draft if isinstance(draft, Refusal) else conclude(surveyed, draft)


def load_is_uneven(request: Request) -> bool:
    """Return True if the plan of a request with the goal EvenLoad would move something. Only the
    first step of the plan is looked for."""
    goal = request.goal
    assert isinstance(goal, EvenLoad), goal
    surveyed = survey(request)
    return not isinstance(surveyed, Refusal) and has_step(surveyed, request, goal)


def _draft(surveyed: Survey, request: Request) -> PlanDraft | Refusal:
    goal = request.goal
    match goal:
        case AddBrokers():
            return add_remove_brokers.add(surveyed, goal)
        case RemoveBrokers():
            return add_remove_brokers.remove(surveyed, goal)
        case FullRebalance():
            return full_rebalance.rebalance(surveyed)
        case PreferredLeaders():
            return add_remove_brokers.prefer(surveyed)
        case EvenLoad():
            return even_load(surveyed, request, goal)
        case ChangeTopics():
            return topic_changes.change(surveyed, goal)
        case _:
            assert_never(goal)
