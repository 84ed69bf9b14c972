"""The goal EvenLoad balances bytes on disk and traffic, by capacity, and copies little."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_core.planner.clusters import Row, brokers, partition, planned, topic

from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.placement import racks_of
from plimsoll_core.planner.request import EvenLoad, PlanBroker, PlanPartition, Request

MIB = 2**20


def asked(
    partitions: list[PlanPartition], members: list[PlanBroker], goal: EvenLoad | None = None
) -> Request:
    return Request(
        brokers=tuple(members),
        topics=(topic(),),
        partitions=tuple(partitions),
        goal=goal or EvenLoad(),
    )


def sizes_after(plan: Plan) -> dict[int, int]:
    return {load.broker: load.size_bytes.after for load in plan.loads}


def disks(members: list[PlanBroker], sizes: dict[int, int]) -> list[PlanBroker]:
    return [
        replace(b, disk=DiskRoom(free_bytes=sizes[b.id] * MIB, all_bytes=sizes[b.id] * MIB))
        for b in members
    ]


def test_even_cluster_is_left_alone() -> None:
    rows: list[Row] = [(0, 1), (1, 2), (2, 0)]
    found = planned(asked([partition(row, n) for n, row in enumerate(rows)], brokers(3)))
    assert found.nothing_to_do
    assert found.relaxations == ()


def test_full_broker_gives_its_largest_partitions_away() -> None:
    # Each broker has as many replicas, and broker 0 nearly all of the bytes.
    large = [partition((0,), n, size_bytes=100 * MIB) for n in range(4)]
    small = [partition((b,), 4 + 4 * b + n, size_bytes=MIB) for b in (1, 2) for n in range(4)]
    found = planned(asked([*large, *small], brokers(3), EvenLoad(percent=(50, 50, 50))))
    assert sizes_after(found) == {0: 200 * MIB, 1: 104 * MIB, 2: 104 * MIB}
    assert found.moved_replicas == 2
    assert found.copied_bytes == 200 * MIB


def test_traffic_is_balanced_by_leaders_without_copies() -> None:
    rows: list[Row] = [(0, 1), (0, 1), (0, 1), (0, 1)]
    busy = [partition(row, n, bytes_in=100.0, bytes_out=500.0) for n, row in enumerate(rows)]
    found = planned(asked(busy, brokers(2)))
    assert not found.moves
    assert len(found.reorders) == 2
    assert {load.broker: load.bytes_out.after for load in found.loads} == {0: 1200, 1: 1200}
    assert {load.broker: load.bytes_in.after for load in found.loads} == {0: 400, 1: 400}


def test_larger_disk_gets_more_bytes() -> None:
    members = disks(brokers(2), {0: 1000, 1: 3000})
    logs = [partition((n % 2,), n, size_bytes=20 * MIB) for n in range(20)]
    found = planned(asked(logs, members))
    assert sizes_after(found) == {0: 100 * MIB, 1: 300 * MIB}


def test_plan_copies_at_most_its_limit_of_bytes() -> None:
    logs = [partition((0,), n, size_bytes=10 * MIB) for n in range(20)]
    found = planned(asked(logs, brokers(2), EvenLoad(max_bytes=35 * MIB)))
    assert found.copied_bytes == 30 * MIB
    assert [each.rule for each in found.relaxations] == ["LoadBalance"]
    assert "broker 0 (70 % more bytes on disk, 10 % are allowed)" in found.relaxations[0].message


def test_partition_of_unknown_size_is_not_copied() -> None:
    logs = [partition((0,), n, size_bytes=None, bytes_in=10.0) for n in range(6)]
    assert not planned(asked(logs, brokers(2))).moves


def test_unusable_broker_neither_gives_nor_gets() -> None:
    logs = [partition((b, 2), n, size_bytes=10 * MIB) for n, b in enumerate([0] * 6 + [1] * 2)]
    found = planned(asked(logs, brokers(3, unusable=[2])))
    assert {load.replicas.after for load in found.loads if load.broker == 2} == {8}
    assert sizes_after(found)[0] == sizes_after(found)[1] == 40 * MIB


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6), st.booleans())
def test_random_cluster_becomes_more_even_and_keeps_racks(
    seed: int, count: int, racked: bool
) -> None:
    rng = random.Random(seed)
    racks = [f"r{b % 3}" for b in range(count)] if racked else []
    members = brokers(count, racks)
    logs = [
        partition(
            tuple(rng.sample(range(count), rng.randint(1, min(3, count)))),
            n,
            size_bytes=rng.choice([0, 1, 10, 100]) * MIB,
            bytes_in=float(rng.choice([0, 1, 1000])),
            bytes_out=float(rng.choice([0, 5, 3000])),
        )
        for n in range(rng.randint(1, 40))
    ]
    request = asked(logs, members)
    found = planned(request)
    before = {p.key: p.replicas for p in logs}
    located = {b.id: b.rack for b in members if b.rack is not None}
    for move in (*found.moves, *found.reorders):
        assert move.before == before[move.partition]
        assert len(set(move.after)) == len(move.before)
        assert racks_of(move.after, located) >= racks_of(move.before, located)
    assert planned(request) == found
    total = sum(len(p.replicas) * (p.size_bytes or 0) for p in logs)
    assert sum(sizes_after(found).values()) == total
    assert unevenness(found, "before") >= unevenness(found, "after")
    # What a plan reached is enough for the next one, which starts from it.
    rows = before | {m.partition: m.after for m in (*found.moves, *found.reorders)}
    again = asked([replace(p, replicas=rows[p.key]) for p in logs], members)
    assert planned(again).nothing_to_do


def unevenness(plan: Plan, when: str) -> float:
    """The sum of squared deviations from the mean over the three loads, restated."""
    squares = 0.0
    for name in ("size_bytes", "bytes_in", "bytes_out"):
        amounts = [getattr(getattr(load, name), when) for load in plan.loads]
        mean = sum(amounts) / len(amounts)
        squares += sum((each / mean - 1) ** 2 for each in amounts) if mean else 0
    return round(squares, 6)
