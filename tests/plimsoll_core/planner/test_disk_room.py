"""Plans keep a tenth of every disk free, and say what they leave out for it."""

import pytest
from msgspec.structs import replace
from tests.plimsoll_core.planner.clusters import Row, brokers, partition, topic

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.plan import by_counts, plan
from plimsoll_core.planner.request import (
    AddBrokers,
    FullRebalance,
    Goal,
    RemoveBrokers,
    Request,
)

ROWS: tuple[Row, ...] = ((0, 1), (1, 2), (2, 0)) * 4
MIB = 2**20


def asked(goal: Goal, free_mib: dict[int, int | None], count: int = 4) -> Request:
    """Partitions of 10 MiB on disks of 100 MiB; None: no figure is known."""
    members = [
        replace(b, disk=DiskRoom(free_bytes=free * MIB, all_bytes=100 * MIB))
        if (free := free_mib.get(b.id, 100)) is not None
        else b
        for b in brokers(count)
    ]
    rows = [partition(row, index, size_bytes=10 * MIB) for index, row in enumerate(ROWS)]
    return Request(brokers=tuple(members), topics=(topic(),), partitions=tuple(rows), goal=goal)


def added(found: Plan | Refusal, broker: int) -> int:
    assert isinstance(found, Plan), found
    return sum(move.size_bytes or 0 for move in found.moves if broker in move.adding) // MIB


def test_plan_with_room_is_the_plan_by_counts() -> None:
    request = asked(AddBrokers(brokers=(3,)), {})
    found = plan(request)
    assert found == by_counts(request)
    assert added(found, 3) == 60


@pytest.mark.parametrize("goal", [AddBrokers(brokers=(3,)), FullRebalance()])
def test_fill_of_small_disk_is_bounded_and_reported(goal: Goal) -> None:
    found = plan(asked(goal, {3: 45}))
    assert isinstance(found, Plan)
    assert added(found, 3) == 30, "beside a reserve of 10 MiB"
    assert found.relaxations[0].rule == "DiskSpace"
    assert "broker 3 45 MiB of 100 MiB are free" in found.relaxations[0].message
    load = next(load for load in found.loads if load.broker == 3)
    assert (load.replicas.after, load.size_bytes.after) == (3, 30 * MIB)
    assert sum(load.replicas.after for load in found.loads) == 2 * len(ROWS)
    assert sum(load.leaders.after for load in found.loads) == len(ROWS)


def test_fill_of_a_full_disk_is_refused() -> None:
    found = plan(asked(AddBrokers(brokers=(3,)), {3: 5}))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.DiskFull
    assert found.message.startswith(
        "The move would copy 60 MiB to broker 3, whose disk has no room"
    )


def test_drain_gives_to_those_that_have_room() -> None:
    request = asked(RemoveBrokers(brokers=(2,)), {3: 12})
    assert added(by_counts(request), 3) > 2
    found = plan(request)
    assert added(found, 3) == 0
    assert not [b for move in found.moves for b in move.after if b == 2]  # type: ignore[union-attr]


def test_drain_that_no_disk_takes_is_refused() -> None:
    found = plan(asked(RemoveBrokers(brokers=(2,)), {0: 15, 1: 15, 3: 15}))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.DiskFull


def test_disk_without_figures_is_planned_by_counts() -> None:
    found = plan(asked(AddBrokers(brokers=(3,)), {3: None}))
    assert isinstance(found, Plan)
    assert added(found, 3) == 60
    assert found.unknown_disks == (3,)
