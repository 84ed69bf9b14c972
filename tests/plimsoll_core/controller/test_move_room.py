"""Neither a client's move nor one of a Topic object fills a disk or a broker's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.errors import Code
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_core.messages.moves import (
    AlterReassignments,
    CopySize,
    PartitionTarget,
    ReportCopies,
    TargetAnswer,
)

GIB = 2**30
FULL = BrokerFigures(disk_free_bytes=5 * GIB, disk_bytes=40 * GIB)
"""The figures of a broker with room for one GiB beside its reserve."""


@pytest.fixture
def four(new_world: Callable[..., Any]) -> Any:
    """Four brokers and `orders`, three partitions of 600 MiB with replicas on brokers 0 to 2."""
    world = new_world(3)
    world.declare(partitions=3)
    world.start(3)
    for index in range(3):
        p = world.p(index)
        size = CopySize(topic_id=p.topic_id, index=index, size=600 * 2**20)
        epoch = world.image.brokers[p.leader].broker_epoch
        report = ReportCopies(broker_id=p.leader, broker_epoch=epoch, copies=(), sizes=(size,))
        world.ask(report)
    return world


def move(world: Any, **targets: tuple[int, ...] | None) -> list[TargetAnswer]:
    wanted = tuple(
        PartitionTarget(topic="orders", index=int(index[1:]), replicas=replicas)
        for index, replicas in targets.items()
    )
    found: list[TargetAnswer] = list(world.ask(AlterReassignments(targets=wanted)).partitions)
    return found


def test_client_is_refused_move_to_full_disk(four: Any) -> None:
    four.beat(3, figures=BrokerFigures(disk_free_bytes=4 * GIB, disk_bytes=40 * GIB))
    (answer,) = move(four, p0=(0, 1, 3))
    assert (answer.code, answer.reason) == (Code.INVALID_REPLICA_ASSIGNMENT, "DiskFull")
    assert "copy 600 MiB to broker 3" in answer.message
    assert "repeat the request when there is room" in answer.message
    assert not four.p().moving


def test_moves_of_one_request_share_disk_room(four: Any) -> None:
    four.beat(3, figures=FULL)
    answers = move(four, p0=(0, 1, 3), p1=(0, 1, 3))
    assert [one.reason for one in answers] == ["", "DiskFull"]
    assert [four.p(index).moving for index in range(2)] == [True, False]


def test_running_copies_of_earlier_request_count(four: Any) -> None:
    four.beat(3, figures=FULL)
    assert not move(four, p0=(0, 1, 3))[0].code
    assert move(four, p1=(0, 1, 3))[0].reason == "DiskFull"


def test_client_is_refused_move_beyond_memory(four: Any) -> None:
    four.beat(3, figures=BrokerFigures(partitions_max=1))
    answers = move(four, p0=(0, 1, 3), p1=(0, 1, 3))
    assert [one.reason for one in answers] == ["", "ReplicaCapacity"]
    assert answers[1].code == Code.INVALID_REPLICA_ASSIGNMENT
    assert "broker 3 would have 2 replicas" in answers[1].message


def test_reorder_and_cancel_need_no_room(four: Any) -> None:
    for broker in range(4):
        four.beat(broker, figures=FULL)
    assert not move(four, p0=(0, 1, 3))[0].code
    for broker in range(4):
        four.beat(
            broker,
            figures=BrokerFigures(partitions_max=1, disk_free_bytes=0, disk_bytes=40 * GIB),
        )
    replicas = four.p(1).replicas
    answers = move(four, p0=None, p1=tuple(reversed(replicas)))
    assert [one.code for one in answers] == [0, 0]


def test_explicit_rows_without_room_are_refused(four: Any) -> None:
    four.beat(3, figures=BrokerFigures(disk_free_bytes=4 * GIB, disk_bytes=40 * GIB))
    rows = ((0, 1, 3), *(four.p(index).replicas for index in (1, 2)))
    answer = four.declare(partitions=3, strategy="Explicit", assignment=rows)
    assert answer.reason == "DiskFull"
    assert not four.p().moving
