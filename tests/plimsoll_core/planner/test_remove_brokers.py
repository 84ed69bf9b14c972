"""Removing brokers: every replica there moves, and as little else as can be ("remove brokers")."""

import msgspec
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
    squares,
    with_racks,
)
from tests.plimsoll_core.planner.optimum import optimum

from plimsoll_core.errors import Reason
from plimsoll_core.planner.request import AddBrokers, RemoveBrokers, Request


@st.composite
def removals(draw: st.DrawFn, *, racks: bool = False, one_factor: bool = False) -> tuple:
    """A cluster, perhaps evened out before, and brokers that can be spared."""
    shape = draw(drawn(one_factor=one_factor, partitions_max=15, more=draw(st.integers(0, 3))))
    if racks:
        shape = draw(with_racks(shape))
    most = shape.n - max(len(row) for row in shape.rows)
    gone = draw(st.sets(st.integers(0, shape.n - 1), max_size=most))
    members = brokers(shape.n, shape.racks)
    request = cluster(list(shape.topics), members, RemoveBrokers(brokers=tuple(sorted(gone))))
    if draw(st.booleans()):
        even = cluster(list(shape.topics), members, AddBrokers(brokers=()))
        request = applied(even, planned(even), request.goal)
    return shape, request, gone


def rows_of(request: Request) -> list[tuple[int, ...]]:
    return [each.replicas for each in request.partitions]


@given(removals(racks=True))
def test_removed_brokers_keep_no_replica(case: tuple[Drawn, Request, set[int]]) -> None:
    """t(removed)=0, so every replica there moves."""
    _, request, gone = case
    answer = planned(request)
    for old, new in zip(rows_of(request), rows_after(request, answer), strict=True):
        assert gone.isdisjoint(new)
        assert len(set(new)) == len(new) == len(old)
    for load in answer.loads:
        if load.broker in gone:
            assert (load.replicas.after, load.leaders.after, load.size_bytes.after) == (0, 0, 0)


@pytest.mark.slow
@settings(max_examples=200)
@given(removals())
def test_plan_copies_as_little_as_even_survivors_allow(
    case: tuple[Drawn, Request, set[int]],
) -> None:
    """Same chooser with augmenting search: no other even outcome copies less."""
    shape, request, gone = case
    before, after = rows_of(request), rows_after(request, planned(request))
    survivors = [broker for broker in range(shape.n) if broker not in gone]
    assert gap(held(after), survivors) <= 1
    assert (squares(held(after), survivors), new_copies(before, after)) == optimum(
        before, survivors
    )


@pytest.mark.slow
@settings(max_examples=200)
@given(removals(), st.data())
def test_remove_brokers_makes_minimal_copies(
    case: tuple[Drawn, Request, set[int]], data: st.DataObject
) -> None:
    """Replicas of Explicit topics stay, and so do those on a broker that is not running; the rest
    is as even as can be around them, for the fewest copies."""
    shape, request, gone = case
    explicit = data.draw(st.sets(st.sampled_from(request.topics)))
    most = shape.n - len(gone) - max(len(row) for row in shape.rows)
    down = data.draw(st.sets(st.integers(0, shape.n - 1), max_size=most)) - gone
    request = msgspec.structs.replace(
        request,
        brokers=tuple(brokers(shape.n, unusable=down)),
        topics=tuple(
            msgspec.structs.replace(each, strategy="Explicit") if each in explicit else each
            for each in request.topics
        ),
    )
    before, after = rows_of(request), rows_after(request, planned(request))
    survivors = [broker for broker in range(shape.n) if broker not in gone | down]
    stated = {each.id for each in explicit}
    pinned = {p for p, each in enumerate(request.partitions) if each.topic_id in stated}
    usable_rows = [tuple(broker for broker in row if broker not in down) for row in before]
    assert (squares(held(after), survivors), new_copies(before, after)) == optimum(
        usable_rows, survivors, pinned
    )


@given(removals())
def test_removed_replicas_alone_move_when_survivors_fit(
    case: tuple[Drawn, Request, set[int]],
) -> None:
    """Exactly those, plus nothing if survivors were within 1 of target: the lower bound, unless a
    chain was needed."""
    _, request, gone = case
    answer = planned(request)
    urgent = sum(len(gone.intersection(row)) for row in rows_of(request))
    assert answer.moved_replicas >= answer.lower_bound >= urgent


@given(removals(one_factor=True))
def test_survivors_differ_by_at_most_one(case: tuple[Drawn, Request, set[int]]) -> None:
    shape, request, gone = case
    after = rows_after(request, planned(request))
    survivors = [broker for broker in range(shape.n) if broker not in gone]
    assert gap(held(after), survivors) <= 1
    assert gap(led(after), survivors) <= 1


@given(removals(racks=True))
def test_racks_are_lost_only_when_unavoidable(
    case: tuple[Drawn, Request, set[int]],
) -> None:
    shape, request, gone = case
    if len(set(shape.racks)) < 2:
        return
    left = len({shape.racks[broker] for broker in range(shape.n) if broker not in gone})
    answer = planned(request)
    lost = 0
    for old, new in zip(rows_of(request), rows_after(request, answer), strict=True):
        had, has = diversity(old, shape.rack_of), diversity(new, shape.rack_of)
        assert has >= min(had, left)
        if gone.intersection(old):
            assert has >= min(len(new), left) or has >= had
        lost += has < had
    relaxed = [each.message for each in answer.relaxations if each.rule == "Racks"]
    assert len(relaxed) == (lost > 0)
    noun = "partition" if lost == 1 else "partitions"
    assert all(f"{lost} {noun} would be in fewer racks" in message for message in relaxed)


def test_factor_close_to_survivors_needs_a_chain() -> None:
    """Augmenting search (needed when RF is close to n)."""
    # 4 × {0, 1} leaves 0: all of it must go to 2 or 3, so one of {2, 3} goes to 1 to make room.
    rows = [*[(0, 1)] * 4, *[(2, 3)] * 4]
    request = cluster(rows, brokers(4), RemoveBrokers(brokers=(0,)))
    answer = planned(request)
    assert sorted(held(rows_after(request, answer)).values()) == [5, 5, 6]
    assert (answer.moved_replicas, answer.lower_bound) == (5, 4)


def test_needless_copy_is_not_made() -> None:
    """The fewest copies, though 3→4 went to the partition that 1→4 was to go to for nothing."""
    topics = [[(0, 3, 2, 4), (4, 0, 2, 3)], [(2, 0, 3), (3, 2, 1), (3, 2, 1)]]
    request = cluster(topics, brokers(5), RemoveBrokers(brokers=(0,)))
    answer = planned(request)
    assert sorted(held(rows_after(request, answer)).values()) == [4, 4, 4, 5]
    assert answer.moved_replicas == answer.lower_bound == 4


def test_removal_below_replication_factor_is_refused() -> None:
    """Reject if RF of any partition > survivors."""
    request = cluster([(0, 1, 2), (0, 1, 2)], brokers(3), RemoveBrokers(brokers=(1,)))
    refusal = refused(request)
    assert refusal.reason is Reason.NotEnoughBrokers
    assert "Only 2 brokers would be left" in refusal.message
    assert "t0 (3)" in refusal.message
    assert "Add brokers first" in refusal.message


def test_topics_that_block_the_removal_are_counted() -> None:
    request = cluster([[(0, 1)]] * 5, brokers(2), RemoveBrokers(brokers=(1,)))
    assert "t0 (2), t1 (2), t2 (2) and 2 more" in refused(request).message


@pytest.mark.parametrize("unusable", [(), (1,)])
def test_dead_broker_can_be_removed(unusable: tuple[int, ...]) -> None:
    rows = [(0, 1), (1, 2), (2, 0)]
    members = brokers(4, unusable=unusable)
    request = cluster(rows, members, RemoveBrokers(brokers=(1,)))
    assert 1 not in held(rows_after(request, planned(request)))
    gone = [broker for broker in members if broker.id != 1]
    request = cluster(rows, gone, RemoveBrokers(brokers=(1,)))
    assert 1 not in held(rows_after(request, planned(request)))


def test_broker_without_replicas_is_removed_by_doing_nothing() -> None:
    request = cluster([(0, 1), (1, 0)], brokers(3), RemoveBrokers(brokers=(2,)))
    assert planned(request).nothing_to_do


def test_other_absent_broker_is_left_alone() -> None:
    """It is not what was asked for; and it cannot help."""
    rows = [(0, 1), (1, 2), (2, 0)]
    request = cluster(rows, brokers(4, unusable=(2,)), RemoveBrokers(brokers=(0,)))
    after = rows_after(request, planned(request))
    assert held(after)[2] == 2
    assert held(after)[0] == 0


def test_remove_brokers_plan_orders_removals_before_balancing_moves() -> None:
    rows = [*[(1,)] * 6, (0,)]
    request = cluster(rows, brokers(3), RemoveBrokers(brokers=(0,)))
    moves = planned(request).moves
    assert moves[0].before == (0,)
    assert len(moves) == 3


def test_follower_becomes_preferred_leader_after_broker_removal() -> None:
    request = cluster([(0, 1)], brokers(3), RemoveBrokers(brokers=(0,)))
    assert rows_after(request, planned(request)) == [(1, 2)]


def test_explicit_topics_that_are_left_behind_are_told() -> None:
    request = cluster(
        [[(0, 1), (1, 0)], [(0, 1)]],
        brokers(3),
        RemoveBrokers(brokers=(0,)),
        strategies=["Explicit", "RoundRobin"],
    )
    answer = planned(request)
    assert [move.before for move in answer.moves] == [(0, 1)]
    assert [each.topic for each in answer.skipped] == ["t0"]
    assert "2 replicas stay on brokers to be emptied" in answer.skipped[0].message
    assert next(load for load in answer.loads if load.broker == 0).replicas.after == 2
