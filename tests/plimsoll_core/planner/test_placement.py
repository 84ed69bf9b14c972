"""Where new replicas go: the worked table and the properties P1–P7 of the placement rule."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner.placement import (
    Assignment,
    check_assignment,
    led_by_active,
    place,
    start_of,
)

LAYOUTS = st.sampled_from(["RoundRobin", "Blocked"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int, str, int]:
    n = draw(st.integers(2, 12))
    partitions = draw(st.integers(1, 200))
    factor = draw(st.integers(1, min(n, 5)))
    return n, partitions, factor, draw(LAYOUTS), draw(st.integers(0, n - 1))


def rows_of(
    n: int, partitions: int, factor: int, layout: str = "RoundRobin", start: int = 0, first: int = 0
) -> Assignment:
    brokers = [(broker, None) for broker in range(n)]
    rows = place(brokers, partitions, factor, layout, start=start, first=first)
    assert not isinstance(rows, Refusal)
    return rows


def text_of(rows: Assignment) -> str:
    return " ".join(f"p{n}:{','.join(map(str, row))}" for n, row in enumerate(rows))


def test_worked_example_blocked() -> None:
    """n=5, P=15, RF=3: the table of the protocol, and of the seed's figure."""
    assert text_of(rows_of(5, 15, 3, "Blocked")) == (
        "p0:0,1,2 p1:0,2,3 p2:0,3,4 p3:1,2,3 p4:1,3,4 p5:1,4,0 p6:2,3,4 p7:2,4,0 p8:2,0,1"
        " p9:3,4,0 p10:3,0,1 p11:3,1,2 p12:4,0,1 p13:4,1,2 p14:4,2,3"
    )


@pytest.mark.parametrize("layout", ["RoundRobin", "Blocked"])
def test_rows_of_many_partitions_are_made_once(layout: str) -> None:
    """Making a row for each of 10,000 partitions held the operator's loop."""
    assert len({id(row) for row in rows_of(5, 1_000, 3, layout)}) == 5 * 4


def test_worked_example_round_robin() -> None:
    assert text_of(rows_of(5, 15, 3)) == (
        "p0:0,1,2 p1:1,2,3 p2:2,3,4 p3:3,4,0 p4:4,0,1 p5:0,2,3 p6:1,3,4 p7:2,4,0 p8:3,0,1"
        " p9:4,1,2 p10:0,3,4 p11:1,4,0 p12:2,0,1 p13:3,1,2 p14:4,2,3"
    )


def test_blocked_layout_on_three_brokers_matches_the_demo() -> None:
    rows = rows_of(3, 15, 3, "Blocked", start=start_of([(b, None) for b in range(3)], 15, {0: 9}))
    assert rows[:5] == ((0, 1, 2), (0, 2, 1), (0, 1, 2), (0, 2, 1), (0, 1, 2))
    assert [row[0] for row in rows] == [0] * 5 + [1] * 5 + [2] * 5


@given(cases())
def test_p1_replicas_are_distinct_and_complete(case: tuple) -> None:
    for row in rows_of(*case):
        assert len(row) == len(set(row)) == case[2]


@given(cases())
def test_p2_leader_counts_differ_by_at_most_one(case: tuple) -> None:
    counts = Counter(dict.fromkeys(range(case[0]), 0))
    counts.update(row[0] for row in rows_of(*case))
    assert max(counts.values()) - min(counts.values()) <= 1


@given(cases())
def test_p3_leaderships_of_dead_broker_spread_evenly(case: tuple) -> None:
    n, _, factor, *_ = case
    if factor < 2:
        return
    rows = rows_of(*case)
    for dead in range(n):
        heirs = Counter({broker: 0 for broker in range(n) if broker != dead})
        heirs.update(row[1] for row in rows if row[0] == dead)
        spread = max(heirs.values()) - min(heirs.values())
        assert spread <= (0 if heirs.total() % (n - 1) == 0 else 1)


@given(cases())
def test_p4_replica_counts_differ_by_at_most_factor(case: tuple) -> None:
    n, partitions, factor, *_ = case
    counts = Counter(dict.fromkeys(range(n), 0))
    counts.update(broker for row in rows_of(*case) for broker in row)
    spread = max(counts.values()) - min(counts.values())
    assert spread <= (0 if partitions % n == 0 else factor)


@given(st.integers(2, 12), st.integers(1, 200), st.integers(1, 5))
def test_p5_placement_equals_formula_where_legal(n: int, count: int, rf: int) -> None:
    for p, row in enumerate(rows_of(n, count, min(rf, n))):
        i, k = p % n, p // n
        for j, broker in enumerate(row):
            if j > 0 and j + k < n:
                assert broker == (i + j + k) % n


@given(cases())
def test_p6_order_of_brokers_does_not_matter(case: tuple) -> None:
    n, partitions, factor, layout, start = case
    brokers = [(broker, None) for broker in range(n)]
    rows = place(brokers[::-1], partitions, factor, layout, start=start)
    assert rows == rows_of(*case)


@given(cases(), st.integers(1, 50))
def test_p7_grown_topic_equals_larger_new_topic(case: tuple, more: int) -> None:
    n, partitions, factor, _, start = case
    whole = rows_of(n, partitions + more, factor, "RoundRobin", start)
    grown = rows_of(n, more, factor, "RoundRobin", start, first=partitions)
    assert whole == rows_of(n, partitions, factor, "RoundRobin", start) + grown


@given(cases(), st.integers(1, 50))
def test_blocked_growth_keeps_leader_counts_even(case: tuple, more: int) -> None:
    n, partitions, factor, _, start = case
    rows = rows_of(n, partitions, factor, "Blocked", start)
    rows += rows_of(n, more, factor, "Blocked", start, first=partitions)
    counts = Counter(dict.fromkeys(range(n), 0))
    counts.update(row[0] for row in rows)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_placement_on_one_broker_requires_factor_one() -> None:
    assert rows_of(1, 3, 1, "Blocked") == ((0,), (0,), (0,))
    refusal = place([(0, None)], 1, 2, "RoundRobin")
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.NotEnoughBrokers
    assert "needs 2 brokers" in refusal.message


def test_unknown_strategy_is_refused() -> None:
    refusal = place([(0, None)], 1, 1, "Random")
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.PlacementInvalid


def test_topic_begins_where_brokers_come_first_least_often() -> None:
    brokers = [(broker, None) for broker in range(5)]
    assert start_of(brokers, 1, {0: 3, 1: 2, 2: 1, 3: 2, 4: 2}) == 2
    assert start_of(brokers, 2, {0: 0, 1: 5, 2: 1, 3: 2, 4: 0}) == 4  # from the last to the first
    assert start_of(brokers, 7, {0: 1, 1: 1}) == 2
    assert start_of(brokers, 10, {0: 9}) == 0  # even by itself
    assert start_of([], 1, {}) == 0


@given(
    st.integers(1, 9),
    st.lists(st.tuples(LAYOUTS, st.integers(1, 20)), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(2, 3)),
)
def test_leaders_of_all_topics_differ_by_one(
    n: int, topics: list[tuple[str, int]], racks: int | None
) -> None:
    located = [(b, None if racks is None else f"rack-{b % racks}") for b in range(n)]
    preferred = Counter(dict.fromkeys(range(n), 0))
    for layout, partitions in topics:
        start = start_of(located, partitions, preferred)
        rows = place(located, partitions, min(n, 3), layout, start=start)
        assert not isinstance(rows, Refusal)
        preferred.update(row[0] for row in rows)
    assert max(preferred.values()) - min(preferred.values()) <= 1


@given(cases(), st.data())
def test_placement_rows_are_led_by_active_broker(case: tuple, data: st.DataObject) -> None:
    """Only active brokers may be the first replica."""
    active = data.draw(st.sets(st.integers(0, case[0] - 1), min_size=1))
    for row in led_by_active(rows_of(*case), active):
        assert row[0] in active
        assert len(set(row)) == len(row) == case[2]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (((0, 1), ()), "names no broker"),
        (((0, 1), (2, 2)), "twice"),
        (((0, 1), (2, 7)), "not registered: 7"),
        (((0, 1), (2,)), "must be equal"),
        (((0, 1), (3, 4)), "no broker that is running"),
    ],
)
def test_explicit_assignment_is_refused_with_what_is_wrong(rows: Assignment, problem: str) -> None:
    refusal = check_assignment(rows, {0, 1, 2, 3, 4}, {0, 1, 2})
    assert refusal is not None
    assert refusal.reason is Reason.InvalidReplicaAssignment
    assert "partition 1" in refusal.message
    assert problem in refusal.message


def test_usable_explicit_assignment_is_accepted() -> None:
    assert check_assignment(((0, 3), (3, 0)), {0, 3}, {0}) is None
