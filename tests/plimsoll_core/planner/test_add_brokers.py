"""Adding brokers: the fewest moves that make loads even, racks kept ("add brokers" rule)."""

import random
from collections import Counter

import pytest
from hypothesis import given
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
    targets,
    with_racks,
)

from plimsoll_core.errors import Reason
from plimsoll_core.planner.outcome import plan_hash
from plimsoll_core.planner.request import AddBrokers, Request

GROWN = st.integers(0, 4).flatmap(lambda more: drawn(more=more))
GROWN_ONE_FACTOR = st.integers(0, 4).flatmap(lambda more: drawn(more=more, one_factor=True))
GROWN_WITH_RACKS = GROWN.flatmap(with_racks)


def adding(shape: Drawn, **more: object) -> Request:
    members = brokers(shape.n, shape.racks)
    return cluster(list(shape.topics), members, AddBrokers(brokers=()), **more)


@given(GROWN)
def test_moved_replicas_are_the_lower_bound_without_racks(shape: Drawn) -> None:
    """Minimum moves = Σ max(0, c(b)−t(b)); t(b) ∈ {⌊R/n⌋, ⌈R/n⌉}, the ⌈⌉ slots to the fullest."""
    request = adding(shape)
    answer = planned(request)
    counts = held(shape.rows)
    t = targets(counts, range(shape.n), counts.total())
    fewest = sum(max(0, counts[broker] - t[broker]) for broker in range(shape.n))
    after = rows_after(request, answer)
    assert new_copies(shape.rows, after) == answer.moved_replicas == answer.lower_bound == fewest
    assert gap(held(after), range(shape.n)) <= 1
    for broker in range(shape.n):
        if counts[broker] >= t[broker]:
            assert held(after)[broker] == t[broker], "the fullest have the ⌈⌉ slots"


@given(GROWN_ONE_FACTOR)
def test_replicas_and_leaders_differ_by_at_most_one(shape: Drawn) -> None:
    """max−min replicas ≤ 1, leaders ≤ 1."""
    request = adding(shape)
    answer = planned(request)
    after = rows_after(request, answer)
    assert gap(held(after), range(shape.n)) <= 1
    assert gap(led(after), range(shape.n)) <= 1
    assert answer.relaxations == ()


@given(GROWN_WITH_RACKS)
def test_partitions_keep_rack_diversity_and_their_factors(shape: Drawn) -> None:
    """RF unchanged; no partition loses rack diversity."""
    request = adding(shape)
    after = rows_after(request, planned(request))
    for old, new in zip(shape.rows, after, strict=True):
        assert len(set(new)) == len(new) == len(old)
        assert diversity(new, shape.rack_of) >= diversity(old, shape.rack_of)


@given(GROWN_WITH_RACKS)
def test_loads_that_racks_leave_uneven_are_reported(shape: Drawn) -> None:
    """Relax balance before relaxing racks: and say so, exactly when it happens."""
    request = adding(shape)
    answer = planned(request)
    after = rows_after(request, answer)
    relaxed = {each.rule for each in answer.relaxations}
    assert ("ReplicaBalance" in relaxed) == (gap(held(after), range(shape.n)) > 1)
    assert ("LeaderBalance" in relaxed) == (gap(led(after), range(shape.n)) > 1)
    assert "Racks" not in relaxed


@given(drawn(brokers_max=6), st.integers(1, 4))
def test_even_old_brokers_exchange_no_replicas(shape: Drawn, more: int) -> None:
    """No old→old move if the old brokers were within 1 of each other."""
    request = adding(shape)
    even = rows_after(request, planned(request))
    grown = cluster(
        even,
        brokers(shape.n + more),
        AddBrokers(brokers=tuple(range(shape.n, shape.n + more))),
    )
    for move in planned(grown).moves:
        assert min(move.adding) >= shape.n


@pytest.mark.slow
@given(GROWN_WITH_RACKS, st.randoms(use_true_random=False))
def test_plan_is_independent_of_input_order(shape: Drawn, shuffle: random.Random) -> None:
    request = adding(shape)

    def shuffled(values: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(shuffle.sample(values, len(values)))

    other = Request(
        brokers=shuffled(request.brokers),
        topics=shuffled(request.topics),
        partitions=shuffled(request.partitions),
        goal=request.goal,
    )
    assert planned(request) == planned(other)
    assert plan_hash(planned(request)) == plan_hash(planned(other))


@given(GROWN_WITH_RACKS)
def test_plan_that_is_done_leaves_nothing_to_do(shape: Drawn) -> None:
    request = adding(shape)
    assert planned(applied(request, planned(request))).nothing_to_do


@given(GROWN_WITH_RACKS, st.data())
def test_explicit_topics_stay_and_are_reported(shape: Drawn, data: st.DataObject) -> None:
    strategies = data.draw(
        st.lists(
            st.sampled_from(["RoundRobin", "Explicit"]),
            min_size=len(shape.topics),
            max_size=len(shape.topics),
        )
    )
    request = adding(shape, strategies=strategies)
    answer = planned(request)
    stated = {t.id for t in request.topics if t.strategy == "Explicit"}
    assert {each.topic_id for each in answer.skipped} == stated
    assert not stated & {move.partition.topic_id for move in (*answer.moves, *answer.reorders)}


@given(GROWN, st.data())
def test_unusable_brokers_neither_get_nor_give(shape: Drawn, data: st.DataObject) -> None:
    down = data.draw(st.sets(st.integers(0, shape.n - 1)))
    members = brokers(shape.n, unusable=down)
    request = cluster(list(shape.topics), members, AddBrokers(brokers=()))
    answer = planned(request)
    for move in (*answer.moves, *answer.reorders):
        assert not down & set(move.adding)
        assert not down & set(move.removing)
    for load in answer.loads:
        if load.broker in down:
            assert load.replicas.before == load.replicas.after
            assert load.leaders.before == load.leaders.after


def test_ceil_slots_go_to_the_currently_fullest() -> None:
    """R = 7 over 3 brokers: targets 3, 2, 2; broker 1 holds most and keeps 3."""
    rows = [(1,), (1,), (1,), (1,), (0,), (0,), (0,)]
    request = cluster(rows, brokers(3), AddBrokers(brokers=(2,)))
    answer = planned(request)
    assert dict(held(rows_after(request, answer))) == {0: 2, 1: 3, 2: 2}
    assert answer.moved_replicas == answer.lower_bound == 2


def test_followers_move_rather_than_leaders() -> None:
    """Choose a partition on over and not on under, preferring non-leaders."""
    rows = [(0, 1), (1, 0), (0, 1), (1, 0)]
    answer = planned(cluster(rows, brokers(4), AddBrokers(brokers=(2, 3))))
    assert answer.moved_replicas == 4
    for move in answer.moves:
        assert set(move.removing).isdisjoint(move.before[:1])


def test_copies_spread_over_pairs_of_brokers() -> None:
    """Minimise pair concurrency (leader, new follower)."""
    rows = [(leader, 3) for leader in (0, 1, 2) for _ in range(4)]
    request = cluster(rows, brokers(5), AddBrokers(brokers=(4,)))
    moves = planned(request).moves
    sources = Counter(move.before[0] for move in moves if 4 in move.adding and 3 in move.removing)
    assert sum(sources.values()) == 4
    assert max(sources.values()) - min(sources[leader] for leader in (0, 1, 2)) <= 1


def test_chain_uses_third_broker_where_racks_block() -> None:
    """Rack rules can block a direct move: then search an augmenting chain over→x→under."""
    # Rack a: 0, 2, 4; rack b: 1, 3.  Broker 0 is over and 3 under, but what 0 holds is in rack b
    # already.  Broker 2 can take it, and give 3 what is in rack a only.
    rows = [*[(0, 1)] * 4, *[(2, 4)] * 2]
    request = cluster(rows, brokers(5, "ababa"), AddBrokers(brokers=(3,)))
    answer = planned(request)
    after = rows_after(request, answer)
    assert dict(held(after)) == {0: 3, 1: 3, 2: 2, 3: 2, 4: 2}
    assert all(diversity(row, dict(enumerate("ababa"))) == 2 for row in after[:4])
    assert sorted(diversity(row, dict(enumerate("ababa"))) for row in after[4:]) == [1, 2]
    assert (answer.moved_replicas, answer.lower_bound) == (3, 2)
    assert answer.relaxations == ()


def test_balance_is_given_up_before_racks() -> None:
    """Two racks, one broker in the second: it holds one replica of everything, whatever comes."""
    rows = [(0, 1)] * 4
    request = cluster(rows, brokers(4, "abaa"), AddBrokers(brokers=(2, 3)))
    answer = planned(request)
    after = rows_after(request, answer)
    assert held(after)[1] == 4
    assert gap(held(after), (0, 2, 3)) <= 1
    assert [each.rule for each in answer.relaxations] == ["ReplicaBalance"]
    assert "broker 1 would have 4" in answer.relaxations[0].message
    assert "racks" in answer.relaxations[0].message


def test_racks_are_ignored_unless_all_have_one() -> None:
    """All usable brokers have a rack, else ignore racks (or reject if required)."""
    rows = [(0, 1)] * 4
    members = [*brokers(3, "aba"), *[b for b in brokers(4) if b.id == 3]]
    preferred = cluster(rows, members, AddBrokers(brokers=(2, 3)))
    assert gap(held(rows_after(preferred, planned(preferred))), range(4)) <= 1
    required = cluster(rows, members, AddBrokers(brokers=(2, 3)), rack_policy="Required")
    refusal = refused(required)
    assert refusal.reason is Reason.InvalidRequest
    assert "broker 3" in refusal.message


def test_racks_that_are_to_be_ignored_are() -> None:
    rows = [(0, 1)] * 4
    request = cluster(rows, brokers(4, "abaa"), AddBrokers(brokers=(2, 3)), rack_policy="Ignored")
    assert gap(held(rows_after(request, planned(request))), range(4)) <= 1


def test_broker_that_cannot_take_replicas_is_named() -> None:
    rows = [(0, 1)]
    for members in (brokers(2), brokers(3, unusable=(2,))):
        refusal = refused(cluster(rows, members, AddBrokers(brokers=(2,))))
        assert refusal.reason is Reason.BrokerIdNotRegistered
        assert "broker 2 now" in refusal.message


def test_add_brokers_counts_replicas_of_explicit_topics() -> None:
    """Broker 0 is full of what may not move, so what may goes elsewhere."""
    pinned, free = [(0,)] * 5, [(1,), (1,), (1,), (1,)]
    request = cluster(
        [pinned, free], brokers(3), AddBrokers(brokers=(2,)), strategies=["Explicit", "RoundRobin"]
    )
    assert dict(held(rows_after(request, planned(request)))) == {0: 5, 1: 2, 2: 2}


def test_sizes_that_nobody_knows_are_counted() -> None:
    rows = [(0, 1), (1, 0)]
    answer = planned(cluster(rows, brokers(3), AddBrokers(brokers=(2,)), size_bytes=None))
    assert ([move.size_bytes for move in answer.moves], answer.copied_bytes) == ([None], 0)
    assert all(load.size_bytes.after == 0 for load in answer.loads)


def test_preferred_leaders_that_change_are_counted() -> None:
    request = cluster([(0, 1)] * 4, brokers(2), AddBrokers(brokers=()))
    answer = planned(request)
    assert (answer.moved_leaders, answer.moved_replicas) == (2, 0)


def test_loads_are_told_before_and_after() -> None:
    rows = [(0, 1), (1, 0)]
    answer = planned(cluster(rows, brokers(3), AddBrokers(brokers=(2,)), size_bytes=7))
    for load in answer.loads:
        assert load.size_bytes.before == 7 * load.replicas.before
        assert load.size_bytes.after == 7 * load.replicas.after
    assert [load.replicas.before for load in answer.loads] == [2, 2, 0]
    assert sorted(load.replicas.after for load in answer.loads) == [1, 1, 2]
    assert answer.copied_bytes == 7 * answer.moved_replicas == 7
