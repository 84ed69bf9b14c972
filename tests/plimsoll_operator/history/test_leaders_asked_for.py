"""Who asked for another leader: at the end of a move, by a client, or nobody."""

from __future__ import annotations

import pytest
from tests.plimsoll_core import rebalances
from tests.plimsoll_core.conftest import World

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.messages.elections import ElectLeaders, PartitionName
from plimsoll_core.messages.moves import RunReassignment, TopicMove
from plimsoll_core.messages.requests import Answer, CreateTopics, NewTopic, Request, Tick
from plimsoll_operator.history.changes import A_CLIENT, CONTROLLER, ChangeRow, changes


class Told(World):
    """Brokers 0 to 3; one partition of `orders` on 0, 1 and 2, led by 0."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[ChangeRow] = []
        self.take_over()
        self.start(0, 1, 2, 3)
        topic = NewTopic(name="orders", assignment=((0, 1, 2),))
        self.ask(CreateTopics(topics=(topic,)))

    def ask(self, request: Request, *, crash_after: int | None = None) -> Answer:
        before, known = self.image, len(self.log)
        answer = super().ask(request, crash_after=crash_after)
        self.rows += changes(before, self.image, self.log[known:], self.now_ms)
        return answer

    def move(self, *replicas: int) -> str:
        """Carry on a Reassignment; the phase that it is in."""
        holder = ReassignmentObject(namespace="kafka", name="off-0", uid="u1")
        move = TopicMove(topic="orders", partitions=(0,), replicas=replicas)
        return str(self.ask(RunReassignment(object=holder, moves=(move,))).phase)

    def asked(self) -> list[tuple[tuple[int | None, int | None], str]]:
        """Each change of leader since the partition was made, and who asked for it."""
        later = (row for row in self.rows if row.kind != "created")
        return [(row.leader, row.asked) for row in later if row.leader]


@pytest.fixture
def told() -> Told:
    return Told()


def displaced(told: Told) -> None:
    """Broker 0 is back in sync for long, and does not lead."""
    told.kill(0)
    told.start(0)
    told.propose([0, 1, 2])
    told.rows.clear()
    told.now_ms += told.settings.flap_wait_ms_max
    for broker in range(4):
        told.beat(broker)


def test_leader_after_reassignment_is_attributed_to_it(told: Told) -> None:
    assert told.move(3, 0, 1) == "Running"
    told.propose([0, 1, 2, 3])
    assert told.move(3, 0, 1) == "Completed"
    assert told.asked() == [((0, 3), "Reassignment kafka/off-0")]
    (led,) = (row for row in told.rows if row.leader == (0, 3))
    assert (led.word, led.cause) == (
        "preferred",
        "leadership goes back to the preferred replica, at the end of its move by Reassignment"
        " kafka/off-0",
    )


def test_proposal_ending_a_move_names_the_reassignment(told: Told) -> None:
    told.move(3, 1, 2)
    told.propose([0, 1, 2, 3], cause="IsrExpand")
    assert told.asked() == [((0, 3), "Reassignment kafka/off-0")]
    (ended,) = (row for row in told.rows if row.leader == (0, 3))
    assert (ended.cause, ended.replicas) == ("IsrExpand", ((3, 1, 2, 0), (3, 1, 2)))


def test_proposal_that_moves_nothing_names_the_leader(told: Told) -> None:
    told.propose([0, 1], cause="IsrShrinkLag")
    told.propose([0, 1, 2], cause="IsrExpand")
    assert [row.asked for row in told.rows[-2:]] == ["the leader, broker 0"] * 2


def test_leader_changed_by_rebalance_is_attributed_to_it(told: Told) -> None:
    topic = NewTopic(name="even", assignment=((0, 1, 2),) * 3)
    told.ask(CreateTopics(topics=(topic,)))
    rebalances.begin(told, "PreferredLeaders")
    rebalances.look(told)
    assert {asked for _, asked in told.asked()} == {"Rebalance kafka/fill"}


def test_preferred_leader_requested_by_client_names_client(told: Told) -> None:
    displaced(told)
    name = PartitionName(topic="orders", index=0)
    told.ask(ElectLeaders(kind="Preferred", partitions=(name,)))
    assert [asked for _, asked in told.asked()] == [A_CLIENT]


def test_returning_preferred_leader_is_attributed_to_controller(told: Told) -> None:
    displaced(told)
    told.soft.leaders_due_ms = told.now_ms
    told.ask(Tick())
    assert [row.asked for row in told.rows if row.word == "preferred"] == [CONTROLLER]
