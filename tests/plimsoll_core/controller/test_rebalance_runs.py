"""Whatever the placement and the mode: a plan is carried out as it was made, within its limits; and
a cancel half-way leaves every partition where it was, or where the plan wanted it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.rebalances import OBJECT, moving, planned, topic

from plimsoll_core.messages.moves import BeginRebalance, MoveLimits, RunRebalance
from plimsoll_core.planner.rebalance import Planned

BROKERS = 5


@st.composite
def placements(draw: st.DrawFn) -> list[tuple[int, ...]]:
    factor = draw(st.integers(1, 3))
    row = st.permutations(range(BROKERS)).map(lambda found: tuple(found[:factor]))
    return draw(st.lists(row, min_size=1, max_size=9))


WISHES = st.one_of(
    st.tuples(st.just("Full"), st.just(())),
    st.tuples(st.just("PreferredLeaders"), st.just(())),
    st.tuples(
        st.sampled_from(("AddBrokers", "RemoveBrokers")),
        st.sets(st.integers(0, BROKERS - 1), min_size=1, max_size=2).map(sorted).map(tuple),
    ),
)


def busy(world: Any) -> int:
    """At how many moves the busiest broker takes part."""
    counts = dict.fromkeys(range(BROKERS), 0)
    for p in moving(world):
        for broker in (*p.adding, *p.removing):
            counts[broker] += 1
    return max(counts.values())


@pytest.mark.slow
@given(rows=placements(), wish=WISHES, most=st.integers(1, 3), data=st.data())
@settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_plan_is_carried_out_as_it_was_made(
    new_world: Callable[..., Any], rows: Any, wish: Any, most: int, data: st.DataObject
) -> None:
    mode, brokers = wish
    world = new_world(BROKERS)
    topic(world, tuple(rows), min_isr=1)
    found = planned(world, mode, *brokers)
    assert isinstance(found, Planned), "three replicas fit on three survivors"
    wanted = {move.key: move.after for move in found.moves}
    before = {key: p.replicas for key, p in world.image.partitions.items()}
    begin = BeginRebalance(
        object=OBJECT, mode=mode, brokers=brokers, plan_hash=found.hash, moves=found.moves
    )
    world.ask(begin)
    look = RunRebalance(object=OBJECT, limits=MoveLimits(concurrent_moves_per_broker=most))
    cancel_after = data.draw(st.none() | st.integers(0, 6), label="cancelled after")
    for number in range(10 * len(rows) + 10):
        cancelled = cancel_after is not None and number >= cancel_after
        state = world.ask(RunRebalance(object=OBJECT, limits=look.limits, cancelled=cancelled))
        assert busy(world) <= most
        if state.phase != "Running":
            break
        under_way = moving(world)
        some = data.draw(st.sets(st.sampled_from(under_way), min_size=1), label="in sync")
        for p in sorted(some, key=lambda p: p.key):
            world.ask(world.proposal(list(p.replicas), p.index))
    after = {key: p.replicas for key, p in world.image.partitions.items()}
    assert not moving(world)
    row = world.image.rebalances[OBJECT.uid]
    if state.phase == "Completed":
        assert after == {**before, **wanted}
        assert (row.moved, row.dropped, row.replicas_moved) == (row.total, 0, row.replicas)
    else:
        assert state.phase == "Cancelled"
        for key, replicas in after.items():
            assert replicas in (before[key], wanted.get(key)) or set(replicas) == set(before[key])
        done = sum(after[key] == target for key, target in wanted.items())
        assert row.moved <= done
