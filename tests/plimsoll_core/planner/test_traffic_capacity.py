"""Plans weigh traffic against what pools declare, and bring no broker above it."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_core.planner.clusters import brokers, partition, topic

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner.plan import load_is_uneven, plan
from plimsoll_core.planner.request import (
    EvenLoad,
    FullRebalance,
    Goal,
    PlanBroker,
    PlanPartition,
    RemoveBrokers,
    Request,
)
from plimsoll_core.planner.traffic_capacity import TrafficCapacity

Stated = Mapping[int, tuple[int | None, int | None]]


def a_capacity(bytes_in: int | None, bytes_out: int | None) -> TrafficCapacity:
    return TrafficCapacity(bytes_in=bytes_in, bytes_out=bytes_out)


def members(count: int, stated: Stated) -> list[PlanBroker]:
    return [
        replace(one, traffic=None if one.id not in stated else a_capacity(*stated[one.id]))
        for one in brokers(count)
    ]


def asked(partitions: list[PlanPartition], of: list[PlanBroker], goal: Goal) -> Request:
    return Request(brokers=tuple(of), topics=(topic(),), partitions=tuple(partitions), goal=goal)


def written(count: int, broker: int, rate: float = 10.0) -> list[PlanPartition]:
    return [
        partition((broker,), n, bytes_in=rate, bytes_out=0.0, size_bytes=0) for n in range(count)
    ]


def bytes_in(request: Request) -> dict[int, int]:
    found = plan(request)
    assert not isinstance(found, Refusal)
    return {load.broker: load.bytes_in.after for load in found.loads}


def test_broker_with_larger_capacity_gets_more_traffic() -> None:
    busy = written(12, 0)
    goal = EvenLoad(percent=(1000, 5, 1000))
    equal = asked(busy, brokers(2), goal)
    assert bytes_in(equal) == {0: 60, 1: 60}
    declared = members(2, {0: (200, None), 1: (400, None)})
    assert bytes_in(asked(busy, declared, goal)) == {0: 40, 1: 80}
    # Unless all declare theirs, capacities do not weigh.
    assert bytes_in(asked(busy, members(2, {1: (400, None)}), goal)) == {0: 60, 1: 60}


def test_even_load_stops_at_a_capacity() -> None:
    busy = written(12, 0)
    small = members(2, {1: (30, None)})
    request = asked(busy, small, EvenLoad(percent=(1000, 5, 1000)))
    assert bytes_in(request) == {0: 90, 1: 30}
    assert load_is_uneven(request)
    full = members(2, {1: (5, None)})
    request = asked(busy, full, EvenLoad(percent=(1000, 5, 1000)))
    assert bytes_in(request) == {0: 120, 1: 0}
    assert not load_is_uneven(request)


def test_leadership_does_not_go_above_a_capacity() -> None:
    led = [partition((0, 1), n, bytes_in=0.0, bytes_out=10.0) for n in range(6)]
    request = asked(led, members(2, {1: (None, 10)}), EvenLoad(percent=(1000, 1000, 5)))
    found = plan(request)
    assert not isinstance(found, Refusal)
    assert {load.broker: load.bytes_out.after for load in found.loads} == {0: 50, 1: 10}


@pytest.mark.parametrize("goal", [FullRebalance(), RemoveBrokers(brokers=(0,))])
def test_plan_above_a_capacity_is_refused(goal: Goal) -> None:
    busy = [partition((0,), n, bytes_in=2.0**20, bytes_out=0.0) for n in range(40)]
    small = members(2, {1: (12 * 2**20, None)})
    found = plan(asked(busy, small, goal))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.TrafficCapacity
    assert found.message.startswith("The move is refused: after it, broker 1 would write ")
    assert "than the capacity that its pool declares, 12 MiB a second." in found.message
    large = members(2, {1: (400 * 2**20, None)})
    assert not isinstance(plan(asked(busy, large, goal)), Refusal)


def test_broker_above_its_capacity_may_give_away() -> None:
    busy = written(12, 0)
    found = plan(asked(busy, members(2, {0: (10, None)}), FullRebalance()))
    assert not isinstance(found, Refusal)
    assert {load.broker: load.bytes_in.after for load in found.loads} == {0: 60, 1: 60}


@settings(deadline=None)
@given(
    rates=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    limits=st.lists(st.none() | st.integers(1, 200), min_size=3, max_size=3),
    seed=st.integers(0, 5),
)
def test_no_plan_raises_load_above_capacity(
    rates: list[int], limits: list[int | None], seed: int
) -> None:
    busy = [
        partition(((n * (seed + 1)) % 3, (n * (seed + 1) + 1) % 3), n, bytes_in=float(rate))
        for n, rate in enumerate(rates)
    ]
    stated = {b: (most, most) for b, most in enumerate(limits)}
    found = plan(asked(busy, members(3, stated), EvenLoad(percent=(5, 5, 5))))
    if isinstance(found, Refusal):
        raise AssertionError(found.message)
    for load in found.loads:
        most = limits[load.broker]
        for level in (load.bytes_in, load.bytes_out):
            assert most is None or level.after <= max(most, level.before)
