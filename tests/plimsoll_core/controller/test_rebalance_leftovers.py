"""A Rebalance that empties brokers, when its plan is through: what is on them still."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from tests.plimsoll_core.rebalances import begin, copied, finish, look, moving, topic

from plimsoll_core.cluster.model import ReassignmentObject, RebalanceMove
from plimsoll_core.messages.moves import (
    AlterReassignments,
    PartitionTarget,
    RunReassignment,
    TopicMove,
)


@pytest.fixture
def five(new_world: Callable[..., Any]) -> Any:
    """Brokers 0 to 4; `orders` has six partitions on 0, 1, 2."""
    world = new_world(5)
    topic(world, ((0, 1, 2), (1, 2, 0), (2, 0, 1)) * 2)
    return world


def a_reorder(world: Any) -> RebalanceMove:
    """A plan's only row, that copies nothing."""
    p = world.p()
    after = p.replicas[::-1]
    return RebalanceMove(number=0, topic_id=p.topic_id, index=0, before=p.replicas, after=after)


@pytest.fixture
def through(five: Any) -> Any:
    """Everything in the plan is off broker 1; it was not looked at since."""
    begin(five, "RemoveBrokers", 1)
    while look(five, paused=True).phase == "Running" and 1 in five.image.hosted:
        look(five)
        copied(five)
    return five


def move(world: Any, *replicas: int) -> None:
    target = PartitionTarget(topic="late", index=0, replicas=replicas)
    (answer,) = world.ask(AlterReassignments(targets=(target,))).partitions
    assert answer.code == 0, answer


def arrives(world: Any) -> None:
    p = world.p(0, "late")
    world.ask(world.proposal(list(p.replicas), 0, name="late"))
    assert not world.p(0, "late").moving


def test_remove_brokers_waits_for_reassignment_onto_its_broker(
    through: Any,
) -> None:
    topic(through, ((0, 2, 3),), "late")
    move(through, 0, 1, 2)
    state = look(through)
    assert (state.phase, state.reason) == ("Running", "ReassignmentInProgress")
    assert (
        state.message
        == "Another request moves partition late-0; the Rebalance waits until that move has ended."
    )
    arrives(through)
    look(through)
    assert look(through).reason == ""
    assert 1 in through.p(0, "late").removing
    arrives(through)
    assert look(through).phase == "Completed"
    assert 1 not in through.image.hosted


def test_arrived_partition_belongs_to_reassignment_until_its_end(five: Any) -> None:
    """Taken before, the Rebalance's move was rolled back with the Reassignment's."""
    holder = ReassignmentObject(namespace="kafka", name="mine", uid="r1")
    rows = [(index, (0, 1, 2 + n)) for n, index in enumerate((0, 1), 1)]
    moves = tuple(TopicMove(topic="orders", partitions=(i,), replicas=new) for i, new in rows)
    mine = RunReassignment(object=holder, moves=moves)
    assert five.ask(mine).phase == "Running"
    five.propose([0, 1, 2, 3], 0)
    assert five.p(0).replicas == (0, 1, 3)
    begin(five, "RemoveBrokers", 1)
    look(five)
    assert not five.p(0).moving
    while others := [p for p in moving(five) if p.index > 1]:
        copied(five, *others)
        state = look(five)
    assert "orders-0 when all moves of Reassignment kafka/mine have ended" in state.message
    five.ask(structs.replace(mine, cancelled=True))
    assert five.p(0).replicas == (0, 1, 3)
    assert finish(five).phase == "Completed"
    assert 1 not in five.image.hosted


def test_remove_brokers_moves_partition_of_cancelled_reassignment(through: Any) -> None:
    topic(through, ((0, 1, 2),), "late")
    move(through, 0, 2, 3)
    assert look(through).reason == "ReassignmentInProgress", "broker 1 is not empty yet"
    target = PartitionTarget(topic="late", index=0, replicas=None)
    through.ask(AlterReassignments(targets=(target,)))
    look(through)
    assert look(through).reason == ""
    assert 1 in through.p(0, "late").removing
    arrives(through)
    assert look(through).phase == "Completed"
    assert 1 not in through.image.hosted


def test_remove_brokers_names_partition_on_two_brokers_once(five: Any) -> None:
    begin(five, "RemoveBrokers", 3, 4, moves=(a_reorder(five),))
    topic(five, ((0, 3, 4),), "late")
    move(five, 1, 3, 4)
    look(five)
    state = look(five)
    assert (
        state.message
        == "Another request moves partition late-0; the Rebalance waits until that move has ended."
    )


def test_rows_that_an_object_states_stay(five: Any) -> None:
    five.declare("stated", strategy="Explicit", assignment=((0, 1, 2),))
    begin(five, "RemoveBrokers", 1)
    assert finish(five).phase == "Completed"
    assert set(five.image.hosted[1]) == {five.p(0, "stated").key}


def test_too_few_brokers_to_take_it(through: Any) -> None:
    topic(through, ((0, 1, 2, 3, 4),), "late")
    state = look(through)
    assert (state.phase, state.reason) == ("Running", "NotEnoughBrokers")
    assert "without broker 1 only 4 brokers" in state.message
    assert not through.p(0, "late").moving
