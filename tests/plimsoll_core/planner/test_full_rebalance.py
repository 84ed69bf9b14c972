"""The full rebalance: the formula over all partitions, permuted to reuse replicas."""

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.planner.clusters import (
    Drawn,
    applied,
    brokers,
    cluster,
    diversity,
    drawn,
    gap,
    held,
    led,
    new_copies,
    planned,
    refused,
    rows_after,
    rows_on,
    with_racks,
)

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner import full_rebalance as full_rebalance
from plimsoll_core.planner.matching import permute
from plimsoll_core.planner.placement import place, start_of
from plimsoll_core.planner.request import AddBrokers, FullRebalance, Request

GROWN = st.integers(0, 3).flatmap(lambda more: drawn(more=more))
GROWN_ONE_FACTOR = st.integers(0, 3).flatmap(lambda more: drawn(more=more, one_factor=True))


def full(shape: Drawn, **more: object) -> Request:
    members = brokers(shape.n, shape.racks)
    return cluster(list(shape.topics), members, FullRebalance(), **more)


def formula(
    topics: list[int], n: int, factor: int, racks: str = "", strategy: str = "RoundRobin"
) -> list[list[tuple[int, ...]]]:
    """Topics of so many partitions, as they are when they are made."""
    located = [(b, racks[b] if racks else None) for b in range(n)]
    placed = []
    preferred: Counter[int] = Counter()
    for size in topics:
        start = start_of(located, size, preferred)
        rows = place(located, size, factor, strategy, start=start)
        assert not isinstance(rows, Refusal)
        preferred.update(row[0] for row in rows)
        placed.append(list(rows))
    return placed


@given(GROWN_ONE_FACTOR)
def test_replicas_and_leaders_differ_by_at_most_one(shape: Drawn) -> None:
    request = full(shape)
    answer = planned(request)
    after = rows_after(request, answer)
    assert gap(held(after), range(shape.n)) <= 1
    assert gap(led(after), range(shape.n)) <= 1
    assert answer.relaxations == ()
    assert answer.moved_replicas >= answer.lower_bound


@given(GROWN.flatmap(with_racks))
def test_partitions_are_in_as_many_racks_as_possible(shape: Drawn) -> None:
    """Hard rule: distinct racks per partition = min(RF, racks); and RF unchanged."""
    request = full(shape)
    answer = planned(request)
    racks = len(set(shape.racks))
    for old, new in zip(shape.rows, rows_after(request, answer), strict=True):
        assert len(set(new)) == len(new) == len(old)
        if racks > 1:
            assert diversity(new, shape.rack_of) == min(len(new), racks)


@given(GROWN.flatmap(with_racks), st.lists(st.sampled_from(["RoundRobin", "Blocked", "Explicit"])))
def test_second_one_finds_nothing_to_do(shape: Drawn, strategies: list[str]) -> None:
    request = full(shape, strategies=strategies[: len(shape.topics)])
    assert planned(applied(request, planned(request))).nothing_to_do


@pytest.mark.parametrize("strategy", ["RoundRobin", "Blocked"])
@pytest.mark.parametrize("racks", ["", "abcabc"])
def test_full_rebalance_keeps_topics_as_created(strategy: str, racks: str) -> None:
    """But for what evens out brokers, which the formula with racks does not do by itself."""
    topics = formula([6, 12, 30], 6, 3, racks, strategy)
    request = cluster(topics, brokers(6, racks), FullRebalance(), strategies=[strategy] * 3)
    answer = planned(request)
    assert answer.moved_replicas == answer.lower_bound
    assert bool(racks) != answer.nothing_to_do


def test_partitions_of_a_topic_may_change_places() -> None:
    """Permute to reuse existing replicas: which partition has which row is no matter."""
    (rows,) = formula([12], 6, 3)
    request = cluster([rows[::-1]], brokers(6), FullRebalance())
    assert planned(request).nothing_to_do


def test_topic_is_turned_rather_than_moved() -> None:
    """Rotating B by a per-topic start is free, so the start that keeps most is taken."""
    (rows,) = formula([4], 4, 2)
    turned = [[tuple((broker + 3) % 4 for broker in row) for row in rows]]
    assert planned(cluster(turned, brokers(4), FullRebalance())).nothing_to_do


def test_topic_that_sits_on_few_brokers_is_spread() -> None:
    """Even brokers are not enough: all of a topic on two of four is what one runs this for."""
    topics = [[(0, 1), (1, 0)] * 4, [(2, 3), (3, 2)] * 4]
    members = brokers(4)
    assert planned(cluster(topics, members, AddBrokers(brokers=()))).nothing_to_do
    request = cluster(topics, members, FullRebalance())
    after = rows_after(request, planned(request))
    for rows in (after[:8], after[8:]):
        assert set(held(rows).values()) == {4}
        assert set(led(rows).values()) == {2}


def test_plan_keeps_its_promises_over_many_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rounds are bounded: where they end too early, loads are even and racks kept all the same."""
    monkeypatch.setattr(full_rebalance, "ROUNDS_MAX", 1)
    topics = [[(0, 1), (1, 0)] * 4, [(2, 3), (3, 2)] * 4]
    request = cluster(topics, brokers(4, "abab"), FullRebalance())
    after = rows_after(request, planned(request))
    assert gap(held(after), range(4)) <= 1
    assert gap(led(after), range(4)) <= 1
    assert all(diversity(row, dict(enumerate("abab"))) == 2 for row in after)
    for rows in (after[:8], after[8:]):
        assert set(held(rows).values()) == {4}, "one round is not none"


def test_full_rebalance_after_growth_copies_little() -> None:
    """5 brokers of 3; the formula on 5 shares most replicas with what is there."""
    topics = formula([15, 30, 15], 3, 3)
    request = cluster(topics, brokers(5), FullRebalance())
    answer = planned(request)
    assert answer.lower_bound <= answer.moved_replicas <= 1.2 * answer.lower_bound


def test_heirs_of_a_dead_broker_are_evened_out() -> None:
    """The second replica of partitions led by d: spread over the others, as by the formula."""
    rows = [(leader, (leader + 1) % 4) for leader in range(4) for _ in range(3)]
    request = cluster(rows, brokers(4), FullRebalance())
    after = rows_after(request, planned(request))
    for dead in range(4):
        heirs = sorted(row[1] for row in after if row[0] == dead)
        assert heirs == [other for other in range(4) if other != dead]


def test_explicit_topics_stay_where_they_are() -> None:
    topics = [[(0,)] * 4, [(0,)] * 4]
    request = cluster(topics, brokers(2), FullRebalance(), strategies=["Explicit", "RoundRobin"])
    answer = planned(request)
    assert rows_after(request, answer) == [(0,)] * 4 + [(1,)] * 4
    assert [each.topic for each in answer.skipped] == ["t0"]


def test_refused_while_a_broker_with_replicas_is_away() -> None:
    """A broker that restarts would lose all it holds."""
    request = cluster([(0, 1), (1, 2)], brokers(4, unusable=(1,)), FullRebalance())
    refusal = refused(request)
    assert refusal.reason is Reason.InvalidRequest
    assert "would copy 2 replicas off broker 1, which is not running" in refusal.message
    assert "or remove these brokers first" in refusal.message


# --- the assignment itself ---------------------------------------------------------------------


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    n = draw(st.integers(2, 5))
    factor = draw(st.integers(1, n))
    row = st.sampled_from(rows_on(n, factor))
    size = draw(st.integers(1, 5))
    lists = st.lists(row, min_size=size, max_size=size)
    return draw(lists), draw(lists)


@settings(max_examples=300)
@given(exchanges())
def test_chosen_permutation_reuses_the_most_replicas(
    case: tuple[list[tuple[int, ...]], list[tuple[int, ...]]],
) -> None:
    """Maximise overlap by assignment matching."""
    current, rows = case
    given_out = permute(current, rows)
    assert sorted(given_out) == sorted(rows)
    fewest = min(new_copies(current, order) for order in permutations(rows))
    assert new_copies(current, given_out) == fewest


@given(st.lists(st.sampled_from(rows_on(4, 3)), min_size=1))
def test_unchanged_assignments_keep_their_order(rows: list[tuple[int, ...]]) -> None:
    assert permute(rows, rows[::-1]) == rows
