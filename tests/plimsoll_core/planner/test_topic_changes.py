"""One topic's replication factor, off some brokers, exact replicas: nothing else moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_core.planner.clusters import (
    Drawn,
    brokers,
    cluster,
    diversity,
    drawn,
    gap,
    held,
    led,
    partition,
    planned,
    refused,
    rows_after,
    topic,
    topic_id,
    with_racks,
)

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner.plan import plan
from plimsoll_core.planner.request import (
    ChangeTopics,
    MoveOff,
    Request,
    SetReplicas,
    SetReplicationFactor,
    TopicChange,
)

ANY = st.integers(0, 3).flatmap(lambda more: drawn(more=more)).flatmap(with_racks)


def changing(shape: Drawn, *changes: TopicChange) -> Request:
    members = brokers(shape.n, shape.racks)
    return cluster(list(shape.topics), members, ChangeTopics(changes=changes))


def factor(wanted: int, number: int = 0, **more: object) -> SetReplicationFactor:
    return SetReplicationFactor(topic_id=topic_id(number), replication_factor=wanted, **more)


def off(*leaving: int, number: int = 0, **more: object) -> MoveOff:
    return MoveOff(topic_id=topic_id(number), brokers=leaving, **more)


def exactly(row: tuple[int, ...], *indexes: int, number: int = 0) -> SetReplicas:
    return SetReplicas(topic_id=topic_id(number), partitions=indexes, replicas=row)


# --- replication factor ------------------------------------------------------------------------


@given(ANY, st.integers(1, 6))
def test_factor_change_moves_least_and_keeps_racks(shape: Drawn, wanted: int) -> None:
    """RF up adds and drops nothing, RF down drops and adds nothing; leaders stay."""
    request = changing(shape, factor(wanted))
    answer = plan(request)
    if wanted > shape.n:
        assert isinstance(answer, Refusal)
        assert answer.reason is Reason.NotEnoughBrokers
        return
    assert not isinstance(answer, Refusal)
    racks = len(set(shape.racks)) if len(set(shape.racks)) > 1 else 0
    first = len(shape.topics[0])
    after = rows_after(request, answer)
    assert after[first:] == shape.rows[first:], "other topics are not touched"
    for old, new in zip(shape.rows[:first], after[:first], strict=True):
        assert len(set(new)) == len(new) == wanted
        assert set(old) <= set(new) or set(new) <= set(old)
        if wanted >= len(old):
            assert new[: len(old)] == old
        if racks and wanted > len(old):
            had, added = diversity(old, shape.rack_of), wanted - len(old)
            assert diversity(new, shape.rack_of) == min(racks, had + added)
        if racks and wanted < len(old):
            assert diversity(new, shape.rack_of) == min(wanted, diversity(old, shape.rack_of))
    assert answer.moved_replicas == answer.lower_bound


@given(st.integers(2, 8), st.integers(1, 30), st.integers(1, 3))
def test_added_replicas_even_out_brokers(n: int, partitions: int, rounds: int) -> None:
    rows = [(p % n,) for p in range(partitions)]
    request = cluster(rows, brokers(n), ChangeTopics(changes=(factor(min(n, 1 + rounds)),)))
    assert gap(held(rows_after(request, planned(request))), range(n)) <= 1


def test_added_replicas_go_to_underused_brokers() -> None:
    rows = [[(0,), (0,)], [(1, 2), (1, 2), (1, 3), (1, 3)]]
    request = cluster(rows, brokers(4), ChangeTopics(changes=(factor(2),)))
    after = rows_after(request, planned(request))
    assert sorted(row[1] for row in after[:2]) == [2, 3]


def test_out_of_sync_replicas_are_dropped_first() -> None:
    members = tuple(brokers(4))
    goal = ChangeTopics(changes=(factor(2),))
    for isr, kept in (((0, 1, 2), 0), ((0, 2), 0), ((1, 2), 1)):
        request = Request(
            brokers=members,
            topics=(topic(),),
            partitions=(partition((0, 1, 2), isr=isr),),
            goal=goal,
        )
        (row,) = rows_after(request, planned(request))
        assert row[0] == kept
        assert set(row) <= set(isr)


def test_unusable_broker_is_not_preferred_as_leader() -> None:
    request = Request(
        brokers=tuple(brokers(3, unusable=(1,))),
        topics=(topic(),),
        partitions=(partition((0, 1, 2), isr=(1, 2)),),
        goal=ChangeTopics(changes=(factor(2),)),
    )
    assert rows_after(request, planned(request)) == [(2, 1)]


def test_replicas_on_unusable_brokers_are_dropped_first() -> None:
    request = cluster([(0, 1, 2)], brokers(3, unusable=(1,)), ChangeTopics(changes=(factor(2),)))
    assert rows_after(request, planned(request)) == [(0, 2)]


def test_dropped_replicas_leave_the_fullest_brokers() -> None:
    rows = [[(0, 1, 2)], [(2, 1), (2, 0), (2, 1)]]
    request = cluster(rows, brokers(3), ChangeTopics(changes=(factor(2),)))
    assert rows_after(request, planned(request))[0] == (0, 1)


def test_factor_changes_for_the_named_partitions_only() -> None:
    rows = [(0,), (1,), (2,)]
    request = cluster(rows, brokers(3), ChangeTopics(changes=(factor(2, partitions=(1,)),)))
    assert [len(row) for row in rows_after(request, planned(request))] == [1, 2, 1]


@pytest.mark.parametrize(
    ("wanted", "reason", "words"),
    [
        (0, Reason.InvalidReplicationFactor, "at least 1, not 0"),
        (4, Reason.NotEnoughBrokers, "needs 4 brokers, but only 3"),
    ],
)
def test_impossible_factors_are_refused(wanted: int, reason: Reason, words: str) -> None:
    request = cluster([(0, 1)], brokers(3), ChangeTopics(changes=(factor(wanted),)))
    refusal = refused(request)
    assert refusal.reason is reason
    assert words in refusal.message


# --- off some brokers --------------------------------------------------------------------------


@given(ANY, st.data())
def test_off_moves_what_is_there_and_nothing_else(shape: Drawn, data: st.DataObject) -> None:
    largest = max(len(row) for row in shape.topics[0])
    leaving = data.draw(st.sets(st.integers(0, shape.n - 1), max_size=shape.n - largest))
    request = changing(shape, off(*sorted(leaving)))
    answer = planned(request)
    first = len(shape.topics[0])
    after = rows_after(request, answer)
    assert after[first:] == shape.rows[first:]
    for old, new in zip(shape.rows[:first], after[:first], strict=True):
        assert leaving.isdisjoint(new)
        assert len(set(new)) == len(new) == len(old)
        assert set(old) - leaving <= set(new)
    assert answer.moved_replicas == answer.lower_bound
    if len(set(shape.racks)) > 1:
        left = len({rack for b, rack in enumerate(shape.racks) if b not in leaving})
        for old, new in zip(shape.rows[:first], after[:first], strict=True):
            assert diversity(new, shape.rack_of) >= min(diversity(old, shape.rack_of), left)


def test_move_off_places_replicas_on_emptiest_brokers() -> None:
    rows = [[(0, 1)] * 4, [(2, 3)] * 3]
    request = cluster(rows, brokers(5), ChangeTopics(changes=(off(1),)))
    after = rows_after(request, planned(request))
    counts = held(after)
    assert (counts[0], counts[1]) == (4, 0)
    assert sorted(counts[broker] for broker in (2, 3, 4)) == [3, 3, 4]


def test_leaving_leader_is_replaced_by_a_replica() -> None:
    request = cluster([(0, 1, 2), (0, 2, 1)], brokers(4), ChangeTopics(changes=(off(0),)))
    after = rows_after(request, planned(request))
    assert led(after) == {1: 1, 2: 1}


def test_off_is_refused_when_too_few_are_left() -> None:
    request = cluster([(0, 1)], brokers(2), ChangeTopics(changes=(off(1),)))
    refusal = refused(request)
    assert refusal.reason is Reason.NotEnoughBrokers
    assert "t0-0 has 2 replicas, but without broker 1 only 1 broker can" in refusal.message


# --- exact replicas ----------------------------------------------------------------------------


def test_chosen_replicas_are_taken_as_they_are() -> None:
    rows = [(0, 1), (0, 1)]
    goal = ChangeTopics(changes=(exactly((3, 0, 2), 0),))
    answer = planned(cluster(rows, brokers(4, unusable=(3,)), goal, size_bytes=5))
    (move,) = answer.moves
    assert (move.before, move.after) == ((0, 1), (3, 0, 2))
    assert (move.adding, move.removing) == ((3, 2), (1,))
    assert (answer.moved_replicas, answer.copied_bytes, answer.lower_bound) == (2, 10, 2)


def test_explicit_topic_is_moved_by_exact_replicas_only() -> None:
    rows, members = [(0, 1)], brokers(3)
    for change in (factor(3), off(1)):
        request = cluster(rows, members, ChangeTopics(changes=(change,)), strategies=["Explicit"])
        answer = planned(request)
        assert answer.nothing_to_do
        assert "change spec.placement.assignment" in answer.skipped[0].message
    goal = ChangeTopics(changes=(exactly((2, 0), 0),))
    request = cluster(rows, members, goal, strategies=["Explicit"])
    assert rows_after(request, planned(request)) == [(2, 0)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((), "name no broker"),
        ((1, 1), "name a broker twice"),
        ((0, 9), "name broker 9, not registered in this cluster"),
        ((0, 2), "would be in one rack"),
    ],
)
def test_replicas_that_cannot_be_are_refused(row: tuple[int, ...], words: str) -> None:
    request = cluster(
        [(0, 1)],
        brokers(3, "aba"),
        ChangeTopics(changes=(exactly(row, 0),)),
        rack_policy="Required",
    )
    refusal = refused(request)
    assert refusal.reason is Reason.InvalidReplicaAssignment
    assert "t0-0" in refusal.message
    assert words in refusal.message


def test_replicas_in_two_racks_are_as_required() -> None:
    goal = ChangeTopics(changes=(exactly((1, 2), 0),))
    request = cluster([(0, 1)], brokers(3, "aba"), goal, rack_policy="Required")
    assert rows_after(request, planned(request)) == [(1, 2)]


def test_chosen_replicas_that_lose_racks_are_reported() -> None:
    """Preferred is not required; and with one rack there is nothing to require."""
    goal = ChangeTopics(changes=(exactly((0, 2), 0),))
    answer = planned(cluster([(0, 1)], brokers(3, "aba"), goal))
    assert [move.after for move in answer.moves] == [(0, 2)]
    assert [each.rule for each in answer.relaxations] == ["Racks"]
    assert "1 partition would be in fewer racks than now (t0-0)" in answer.relaxations[0].message
    members = brokers(3, "aba", unusable=(1,))
    request = cluster([(0, 1)], members, goal, rack_policy="Required")
    assert rows_after(request, planned(request)) == [(0, 2)]


# --- several changes at once -------------------------------------------------------------------


def test_changes_are_evened_out_together() -> None:
    rows = [[(0,)] * 3, [(1, 0)] * 3]
    goal = ChangeTopics(changes=(factor(2, 0), off(0, number=1)))
    request = cluster(rows, brokers(4), goal)
    counts = held(rows_after(request, planned(request)))
    assert (counts[0], counts[1]) == (3, 3)
    assert counts[2] == counts[3] == 3


def test_partition_that_is_named_twice_is_refused() -> None:
    goal = ChangeTopics(changes=(factor(2), exactly((1,), 0)))
    refusal = refused(cluster([(0,)], brokers(2), goal))
    assert refusal.reason is Reason.InvalidRequest
    assert "t0-0 is named twice" in refusal.message


def test_unknown_topics_and_partitions_are_refused() -> None:
    goal = ChangeTopics(changes=(factor(2, number=5),))
    assert refused(cluster([(0,)], brokers(2), goal)).reason is Reason.UnknownTopicId
    goal = ChangeTopics(changes=(factor(2, partitions=(4,)),))
    refusal = refused(cluster([(0,)], brokers(2), goal))
    assert refusal.reason is Reason.UnknownTopicOrPartition
    assert "names partition 4 of topic" in refusal.message
