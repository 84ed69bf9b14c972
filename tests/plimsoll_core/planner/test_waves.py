"""Waves never exceed their limits; what-if and margins; a plan's name."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_core.planner.clusters import (
    Drawn,
    applied,
    brokers,
    cluster,
    drawn,
    partition,
    planned,
    rows_after,
    topic_id,
)

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.planner.draft import lowest_isr_margin, what_if
from plimsoll_core.planner.outcome import Move, Plan, plan_hash
from plimsoll_core.planner.request import (
    AddBrokers,
    ChangeTopics,
    PlanPartition,
    PreferredLeaders,
    RemoveBrokers,
    Request,
    SetReplicationFactor,
)
from plimsoll_core.planner.waves import Limits, waves


@st.composite
def running(draw: st.DrawFn) -> tuple[Request, Plan, tuple[PlanPartition, ...]]:
    """A plan, and partitions as they are by now: some moved, some out of sync, some deleted."""
    shape: Drawn = draw(drawn(more=draw(st.integers(1, 4))))
    request = cluster(list(shape.topics), brokers(shape.n), AddBrokers(brokers=()))
    answer = planned(request)
    after = rows_after(request, answer)
    now = []
    for before, row in zip(request.partitions, after, strict=True):
        if draw(st.integers(0, 9)) == 0:
            continue
        replicas = row if draw(st.integers(0, 3)) == 0 else before.replicas
        now.append(
            PlanPartition(
                topic_id=before.topic_id,
                index=before.index,
                replicas=replicas,
                isr=tuple(b for b in replicas if draw(st.integers(0, 5))),
                min_isr=draw(st.integers(1, 3)),
                size_bytes=before.size_bytes,
            )
        )
    return request, answer, tuple(now)


def touched(move: Move) -> set[int]:
    return {move.before[0]} | (set(move.before) ^ set(move.after))


@given(running(), st.integers(1, 4), st.none() | st.integers(50, 500), st.integers(1, 4))
def test_waves_keep_to_their_limits_and_forget_nothing(
    case: tuple[Request, Plan, tuple[PlanPartition, ...]],
    most: int,
    max_bytes: int | None,
    reorders: int,
) -> None:
    """≤ W partitions per broker, only partitions with |ISR| ≥ m."""
    _, answer, partitions = case
    limits = Limits(concurrent_moves_per_broker=most, max_bytes=max_bytes, reorders=reorders)
    schedule = waves(answer, partitions, limits)
    now = {each.key: each for each in partitions}
    for wave in schedule.waves:
        assert wave
        moving = [move for move in wave if set(move.before) != set(move.after)]
        assert moving in ([], list(wave)), "reorders have waves of their own"
        busy = Counter(broker for move in moving for broker in touched(move))
        assert max(busy.values(), default=0) <= most
        assert max_bytes is None or sum(move.copied_bytes for move in wave) <= max_bytes
        assert moving or len(wave) <= reorders
        for move in moving:
            state = now[move.partition]
            assert len(state.isr) >= min(state.min_isr, len(state.replicas))
    scheduled = [move.partition for wave in schedule.waves for move in wave]
    waiting = [each.move.partition for each in schedule.waiting]
    assert len(set(scheduled + waiting)) == len(scheduled + waiting)
    for move in answer.moves:
        done = move.partition in now and now[move.partition].replicas == move.after
        assert (move.partition in scheduled + waiting) == (not done)


@given(running())
def test_waves_are_deterministic_and_in_the_plans_order(
    case: tuple[Request, Plan, tuple[PlanPartition, ...]],
) -> None:
    _, answer, partitions = case
    schedule = waves(answer, partitions, Limits())
    assert waves(answer, partitions[::-1], Limits()) == schedule
    place = {move.partition: n for n, move in enumerate((*answer.moves, *answer.reorders))}
    for wave in schedule.waves:
        order = [place[move.partition] for move in wave]
        assert order == sorted(order)


def test_waves_end_with_everything_in_place() -> None:
    rows = [(p % 3, (p + 1) % 3) for p in range(30)]
    request = cluster(rows, brokers(6), AddBrokers(brokers=(3, 4, 5)))
    answer = planned(request)
    partitions = {each.key: each for each in request.partitions}
    seen = 0
    while schedule := waves(answer, partitions.values(), Limits(concurrent_moves_per_broker=2)):
        if not schedule.waves:
            break
        for move in schedule.waves[0]:
            partitions[move.partition] = partition(move.after, move.partition.index)
        seen += 1
        assert seen < 100
    assert {key: each.replicas for key, each in partitions.items()} == {
        each.key: each.replicas for each in applied(request, answer).partitions
    }


def test_waves_report_the_reason_for_each_waiting_move() -> None:
    rows = [(0, 1), (0, 1), (0, 1)]
    request = cluster(rows, brokers(3), RemoveBrokers(brokers=(1,)), size_bytes=500)
    answer = planned(request)
    now = (partition((0, 1), 0, isr=(0,)), partition((0, 1), 1))
    schedule = waves(answer, now, Limits(max_bytes=400))
    assert schedule.waves == ()
    assert {each.move.partition.index: each.reason for each in schedule.waiting} == {
        0: "UnderMinISR",
        1: "TooLarge",
        2: "Gone",
    }


def test_move_without_copies_fits_into_any_bytes() -> None:
    goal = ChangeTopics(changes=(SetReplicationFactor(topic_id=topic_id(0), replication_factor=1),))
    request = cluster([(0, 1)], brokers(2), goal, size_bytes=1 << 40)
    schedule = waves(planned(request), request.partitions, Limits(max_bytes=1))
    assert len(schedule.waves) == 1


# --- what if -----------------------------------------------------------------------------------


def test_what_if_names_partitions_below_min_isr() -> None:
    """If broker b dies now, which partitions go below min ISR: counts and up to 3 examples."""
    partitions = [
        partition((0, 1, 2), 0),  # can spare one
        *[partition((0, 1, 2), index, isr=(0, 1)) for index in range(1, 6)],  # cannot
        partition((2,), 6, min_isr=2),  # m is never above the replicas: 1
    ]
    told = {each.broker: each for each in what_if(partitions[::-1], (2, 1, 0, 3))}
    assert list(told) == [0, 1, 2, 3]
    assert [each.under_min_isr for each in told.values()] == [5, 5, 1, 0]
    assert told[0].examples == tuple(PartitionKey(topic_id(0), index) for index in (1, 2, 3))
    assert told[2].examples == (PartitionKey(topic_id(0), 6),)
    assert told[3].examples == ()


def test_what_if_reports_only_the_requested_brokers() -> None:
    partitions = [partition((0, 1), 0)]
    (told,) = what_if(partitions, (1,))
    assert (told.broker, told.under_min_isr) == (1, 1)


def test_lowest_margin_is_at_start_or_end() -> None:
    partitions = [partition((0, 1, 2), 0), partition((0, 1, 2), 1, isr=(0, 1))]

    def move(index: int, after: tuple[int, ...]) -> Move:
        return Move(partition=PartitionKey(topic_id(0), index), before=(0, 1, 2), after=after)

    assert lowest_isr_margin([], partitions) is None
    assert lowest_isr_margin([move(0, (0, 1, 3))], partitions) == 1
    assert lowest_isr_margin([move(0, (0, 1, 3)), move(1, (0, 1, 3))], partitions) == 0
    assert lowest_isr_margin([move(0, (0, 3))], partitions) == 0
    assert lowest_isr_margin([move(0, (3,))], partitions) == 0


# --- the hash ----------------------------------------------------------------------------------


def test_hash_names_what_would_be_done() -> None:
    rows = [(0, 1)] * 4

    def named(**fields: object) -> str:
        return plan_hash(planned(cluster(rows, brokers(4), AddBrokers(brokers=(2, 3)), **fields)))

    assert named() == named(size_bytes=12345), "sizes grow while one reads"
    other = planned(cluster(rows, brokers(3), AddBrokers(brokers=(2,))))
    assert plan_hash(other) != named()
    leaders = planned(cluster(rows, brokers(4), PreferredLeaders()))
    assert len({named(), plan_hash(other), plan_hash(leaders)}) == 3


def test_hash_stays_the_same_from_version_to_version() -> None:
    """An administrator may have approved it before the operator was upgraded."""
    plan = Plan(
        moves=(Move(partition=PartitionKey(topic_id(0), 0), before=(0, 1), after=(0, 2)),),
        reorders=(Move(partition=PartitionKey(topic_id(0), 1), before=(0, 1), after=(1, 0)),),
        loads=(),
        lower_bound=1,
    )
    assert plan_hash(plan) == (
        "sha256:b361e53b84176c0538555fba33b5901a66a8d4dfa7196baff6202c57f5574707"
    )
