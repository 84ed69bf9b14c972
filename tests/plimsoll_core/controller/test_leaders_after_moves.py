"""A move that has ended is led by its preferred replica, without a wait for the next scan."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.messages.moves import RunReassignment, TopicMove
from plimsoll_core.messages.requests import CreateTopics, NewTopic


@pytest.fixture
def four(new_world: Callable[..., Any]) -> Any:
    """Brokers 0 to 3; both partitions of `orders` on 0, 1, 2, led by 0."""
    world = new_world(4)
    rows = ((0, 1, 2), (0, 1, 2))
    world.ask(CreateTopics(topics=(NewTopic(name="orders", assignment=rows),)))
    return world


def run(world: Any, *replicas: int) -> Any:
    holder = ReassignmentObject(namespace="kafka", name="move", uid="u1")
    move = TopicMove(topic="orders", partitions=(0,), replicas=replicas)
    return world.ask(RunReassignment(object=holder, moves=(move,)))


def test_reassignment_in_other_order_changes_leader_at_once(four: Any) -> None:
    assert run(four, 2, 1, 0).phase == "Completed"
    assert [four.p(n).leader for n in range(2)] == [2, 0]


def test_reassignment_that_keeps_leader_elects_first_when_completed(
    four: Any,
) -> None:
    assert run(four, 3, 0, 1).phase == "Running"
    four.propose([0, 1, 2, 3])
    assert four.p().leader == 0
    assert run(four, 3, 0, 1).phase == "Completed"
    assert four.p().leader == 3


def test_first_replica_outside_isr_is_elected_later(four: Any) -> None:
    run(four, 3, 0, 1)
    four.propose([0, 1, 2, 3])
    four.propose([0, 1])
    assert run(four, 3, 0, 1).phase == "Completed"
    assert four.p().leader == 0
