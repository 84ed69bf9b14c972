"""The planner's only switch: one request, one plan or one refusal.

Called for moves of replicas or leaderships; changes nothing itself.  What it promises is
in the protocol's rules for adding brokers, removing brokers and the full rebalance: fewest moved
replicas for loads that differ by at most one, racks kept; what cannot be kept is reported.
"""

from __future__ import annotations

from typing import assert_never

from plimsoll_core.errors import Refusal
from plimsoll_core.planner import add_remove_brokers, full_rebalance, topic_changes
from plimsoll_core.planner.draft import PlanDraft, conclude
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.request import (
    AddBrokers,
    ChangeTopics,
    FullRebalance,
    Goal,
    PreferredLeaders,
    RemoveBrokers,
    Request,
)
from plimsoll_core.planner.survey import Survey, survey


def plan(request: Request) -> Plan | Refusal:
    surveyed = survey(request)
    if isinstance(surveyed, Refusal):
        return surveyed
    draft = _draft(surveyed, request.goal)
    return draft if isinstance(draft, Refusal) else conclude(surveyed, draft)


def _draft(surveyed: Survey, goal: Goal) -> PlanDraft | Refusal:
    match goal:
        case AddBrokers():
            return add_remove_brokers.add(surveyed, goal)
        case RemoveBrokers():
            return add_remove_brokers.remove(surveyed, goal)
        case FullRebalance():
            return full_rebalance.rebalance(surveyed)
        case PreferredLeaders():
            return add_remove_brokers.prefer(surveyed)
        case ChangeTopics():
            return topic_changes.change(surveyed, goal)
        case _:
            assert_never(goal)
