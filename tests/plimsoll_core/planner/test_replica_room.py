"""Plans bring no broker above the replicas that it has memory and descriptors for."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from tests.plimsoll_core.planner.clusters import brokers, partition, topic

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner.plan import plan
from plimsoll_core.planner.request import FullRebalance, Goal, RemoveBrokers, Request


def asked(goal: Goal, most: Mapping[int, int]) -> Request:
    """Twelve partitions on brokers 0 and 1, two replicas each; brokers 2 and 3 have none."""
    members = [replace(one, replicas_max=most.get(one.id)) for one in brokers(4)]
    rows = [partition((0, 1), index) for index in range(12)]
    return Request(brokers=tuple(members), topics=(topic(),), partitions=tuple(rows), goal=goal)


@pytest.mark.parametrize("goal", [FullRebalance(), RemoveBrokers(brokers=(0,))])
def test_plan_above_memory_of_a_broker_is_refused(goal: Goal) -> None:
    found = plan(asked(goal, {2: 3, 3: 100}))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.ReplicaCapacity
    assert "after it, broker 2 would have" in found.message
    assert "for at most 3. Add brokers" in found.message
    assert not isinstance(plan(asked(goal, {2: 8, 3: 8})), Refusal)
    assert not isinstance(plan(asked(goal, {})), Refusal), "no broker has told its number"


def test_broker_above_its_number_may_give_replicas_away() -> None:
    assert not isinstance(plan(asked(FullRebalance(), {0: 2, 1: 2})), Refusal)
