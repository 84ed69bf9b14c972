"""Leadership without data movement: only the order of replicas changes."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.planner.clusters import (
    Drawn,
    applied,
    brokers,
    cluster,
    drawn,
    gap,
    held,
    led,
    planned,
    rows_after,
)

from plimsoll_core.planner.request import PreferredLeaders


@given(drawn())
def test_preferred_leaders_plan_moves_no_data(shape: Drawn) -> None:
    request = cluster(list(shape.topics), brokers(shape.n), PreferredLeaders())
    answer = planned(request)
    assert answer.moves == ()
    assert (answer.moved_replicas, answer.copied_bytes, answer.lower_bound) == (0, 0, 0)
    assert answer.lowest_isr_margin is None
    for old, new in zip(shape.rows, rows_after(request, answer), strict=True):
        assert sorted(old) == sorted(new)
    for move in answer.reorders:
        followers = [broker for broker in move.before if broker != move.after[0]]
        assert list(move.after[1:]) == followers, "who does not lead keeps the order of succession"


@settings(max_examples=200)
@given(drawn(brokers_max=4, partitions_max=2))
def test_chosen_leaders_are_as_even_as_possible(shape: Drawn) -> None:
    """Capacities ⌊P/n⌋/⌈P/n⌉ where they can be met, and nothing more even exists elsewhere."""
    request = cluster(list(shape.topics), brokers(shape.n), PreferredLeaders())
    answer = planned(request)
    after = rows_after(request, answer)

    def uneven(leaders: tuple[int, ...]) -> int:
        return sum(leaders.count(broker) ** 2 for broker in range(shape.n))

    best = min(uneven(choice) for choice in product(*shape.rows))
    assert uneven(tuple(row[0] for row in after)) == best
    relaxed = [each.rule for each in answer.relaxations]
    assert relaxed == (["LeaderBalance"] if gap(led(after), range(shape.n)) > 1 else [])


@given(drawn())
def test_done_is_done(shape: Drawn) -> None:
    request = cluster(list(shape.topics), brokers(shape.n), PreferredLeaders())
    assert planned(applied(request, planned(request))).nothing_to_do


@given(st.integers(2, 8), st.integers(1, 30), st.integers(1, 3))
def test_even_replicas_can_be_led_evenly(n: int, partitions: int, factor: int) -> None:
    """All led by their lowest broker before, on rows that are even."""
    factor = min(factor, n)
    rows = [tuple(sorted((p + j) % n for j in range(factor))) for p in range(n * partitions)]
    request = cluster(rows, brokers(n), PreferredLeaders())
    answer = planned(request)
    assert set(led(rows_after(request, answer)).values()) == {partitions}
    assert answer.relaxations == ()


def test_leaders_are_shifted_along_a_chain() -> None:
    """Broker 0 leads too much and shares nothing with 2; 1 shares with both."""
    rows = [(0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (2, 1)]
    rows = [*rows[:5], (1, 2)]
    request = cluster(rows, brokers(3), PreferredLeaders())
    assert dict(led(rows_after(request, planned(request)))) == {0: 2, 1: 2, 2: 2}


def test_preferred_leadership_waits_for_absent_broker() -> None:
    """Preferred leaders return by themselves after a restart: their place is kept."""
    rows = [(2, 0), (2, 1), (0, 1), (0, 1)]
    request = cluster(rows, brokers(3, unusable=(2,)), PreferredLeaders())
    after = rows_after(request, planned(request))
    assert dict(led(after)) == {2: 2, 0: 1, 1: 1}


def test_explicit_topics_keep_their_order_and_still_count() -> None:
    request = cluster(
        [[(0, 1), (0, 1)], [(0, 1), (0, 1)]],
        brokers(2),
        PreferredLeaders(),
        strategies=["Explicit", "RoundRobin"],
    )
    after = rows_after(request, planned(request))
    assert after == [(0, 1), (0, 1), (1, 0), (1, 0)]
    assert set(held(after).values()) == {4}


def test_each_topics_leaders_are_spread_too() -> None:
    """Of equal choices, the one whose topic has more leaders here and fewer there."""
    topics = [[(0, 1)] * 4, [(0, 1)] * 4]
    request = cluster(topics, brokers(2), PreferredLeaders())
    after = rows_after(request, planned(request))
    assert led(after[:4]) == led(after[4:]) == {0: 2, 1: 2}
