"""A Reassignment object: begun once and as a whole, and forgotten when its object is gone."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import MovedPartitions, Reassignment, ReassignmentObject
from plimsoll_core.cluster.records import PartitionsChanged, ReassignmentNoted
from plimsoll_core.controller.moves.reassignment_object import ROWS_MAX
from plimsoll_core.messages.moves import (
    AlterReassignments,
    PartitionTarget,
    ReassignmentObjectGone,
    ReassignmentState,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import (
    BrokerProvenDead,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    Refused,
    Tick,
)

OBJECT = ReassignmentObject(namespace="kafka", name="off-1", uid="u1")
OTHER = ReassignmentObject(namespace="kafka", name="other", uid="u2")


def client_topic(world: Any, name: str = "orders", rows: Any = ((0, 1, 2),)) -> None:
    configs = {"min.insync.replicas": "2"}
    world.ask(CreateTopics(topics=(NewTopic(name=name, assignment=rows, configs=configs),)))


@pytest.fixture
def five(new_world: Callable[..., Any]) -> Any:
    """Brokers 0 to 4; `orders` has three partitions on 0, 1, 2, and belongs to a client."""
    world = new_world(5)
    client_topic(world, rows=((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    return world


def run(world: Any, *moves: TopicMove, **fields: Any) -> Any:
    return world.ask(RunReassignment(**{"object": OBJECT, "moves": moves, **fields}))


def to(*replicas: int, partitions: tuple[int, ...] | None = (0,), **fields: Any) -> TopicMove:
    return TopicMove(topic="orders", partitions=partitions, replicas=replicas, **fields)


def row(world: Any, uid: str = "u1") -> Any:
    return world.image.reassignments[uid]


def dies(world: Any, broker: int) -> None:
    epoch = world.image.brokers[broker].broker_epoch
    world.ask(BrokerProvenDead(broker_id=broker, broker_epoch=epoch, evidence="e"))
    world.ask(Tick())


class TestBegin:
    def test_reassignment_starts_all_partitions_and_names_them(self, five: Any) -> None:
        state = run(five, to(3, 4, 0, partitions=(0, 1)), wall_ms=77, bytes_per_second=5)
        assert state == ReassignmentState(phase="Running")
        assert [five.p(n).adding for n in range(3)] == [(3, 4), (3, 4), ()]
        topic_id = five.image.topic_ids["orders"]
        assert row(five).partitions == (MovedPartitions(topic_id=topic_id, ranges=((0, 1),)),)
        assert (row(five).total, row(five).started_ms, row(five).bytes_per_second) == (2, 77, 5)

    def test_asked_again_nothing_is_added(self, five: Any) -> None:
        run(five, to(3, 4, 0))
        end = len(five.log)
        assert run(five, to(3, 4, 0)).phase == "Running"
        assert len(five.log) == end

    def test_reassignment_that_copies_nothing_completes_at_once(self, five: Any) -> None:
        assert run(five, to(2, 1, 0), wall_ms=9).phase == "Completed"
        assert five.p().replicas == (2, 1, 0)
        assert (row(five).partitions, row(five).total, row(five).ended_ms) == ((), 1, 9)

    def test_completed_when_the_last_partition_is(self, five: Any) -> None:
        moves = (to(0, 1, 3, partitions=(0, 1)),)
        run(five, *moves)
        five.propose([0, 1, 2, 3])
        assert run(five, *moves).phase == "Running"
        five.propose([0, 1, 2, 3], 1)
        assert run(five, *moves, wall_ms=9).phase == "Completed"

    def test_never_begun_twice(self, five: Any) -> None:
        """One-shot: whatever happens to the partitions later is not this object's."""
        run(five, to(2, 1, 0))
        run(five, to(0, 1, 2), object=OTHER)
        assert run(five, to(2, 1, 0)).phase == "Completed"
        assert five.p().replicas == (0, 1, 2)

    def test_off_moves_what_is_there_and_nothing_else(self, five: Any) -> None:
        client_topic(five, "far", rows=((0, 2, 3), (1, 2, 3)))
        state = run(five, TopicMove(topic="far", away_from=(1,)))
        assert state.phase == "Running"
        assert five.p(0, "far").replicas == (0, 2, 3)
        assert set(five.p(1, "far").target) in ({0, 2, 3}, {2, 3, 4})
        assert five.p(1, "far").removing == (1,)
        assert row(five).total == 1

    def test_move_off_empty_brokers_completes_at_once(self, five: Any) -> None:
        for number, away in enumerate(((3,), (3, 4))):
            other = ReassignmentObject(namespace="kafka", name=f"off-{number}", uid=f"o{number}")
            move = TopicMove(topic="orders", away_from=away)
            assert run(five, move, object=other, wall_ms=9).phase == "Completed"
            assert (row(five, other.uid).total, row(five, other.uid).ended_ms) == (0, 9)
        held = TopicMove(topic="orders", partitions=(0,), away_from=(1,))
        client_topic(five, "far", rows=((2, 3, 4),))
        run(five, TopicMove(topic="far", away_from=(1,)), held)
        assert row(five).total == 1, "what is there is moved all the same"

    def test_another_factor_for_a_topic_without_an_object(self, five: Any) -> None:
        state = run(five, TopicMove(topic="orders", replication_factor=4))
        assert state.phase == "Running"
        assert [len(five.p(n).target) for n in range(3)] == [4, 4, 4]
        assert five.image.topics[five.image.topic_ids["orders"]].replication_factor == 4

    def test_reassignment_starts_whole_or_not_at_all(self, five: Any) -> None:
        end = len(five.log)
        answer = run(five, to(0, 1, 3), to(0, 1, 9, partitions=(1,)))
        assert isinstance(answer, Refused)
        assert "do not exist: 9" in answer.message
        assert len(five.log) == end

    def test_reassignment_waits_for_missing_topic(self, five: Any) -> None:
        answer = run(five, TopicMove(topic="later", partitions=(0,), replicas=(1, 2, 3)))
        assert answer.reason == "UnknownTopicOrPartition"
        assert not five.image.reassignments
        client_topic(five, "later")
        again = run(five, TopicMove(topic="later", partitions=(0,), replicas=(1, 2, 3)))
        assert again.phase == "Running"

    def test_reassignment_waits_for_missing_partition(self, five: Any) -> None:
        """A topic may still grow: waiting can mend it, so it has not failed."""
        answer = run(five, to(0, 1, 3, partitions=(2, 3)))
        assert answer.reason == "UnknownTopicOrPartition"
        assert "names partition 3 of topic orders" in answer.message
        assert not five.image.reassignments

    @pytest.mark.parametrize(
        ("move", "reason", "text"),
        [
            (
                TopicMove(topic="no", replicas=(1, 2, 3)),
                "UnknownTopicOrPartition",
                "topic no, which does not exist",
            ),
            (
                to(0, 1, 3, partitions=(99,)),
                "UnknownTopicOrPartition",
                "names partition 99 of topic orders, which has only 3",
            ),
            (to(7, 8, 9), "InvalidReplicaAssignment", "brokers do not exist: 7, 8 and 9"),
        ],
    )
    def test_reassignment_to_unknown_target_fails_after_a_minute(
        self, five: Any, move: TopicMove, reason: str, text: str
    ) -> None:
        early = run(five, move, waited_ms=59_999)
        assert isinstance(early, Refused)
        assert early.message.endswith(" If this lasts for a minute, the Reassignment fails.")
        late = run(five, move, waited_ms=60_000)
        assert (late.phase, late.reason) == ("Failed", reason)
        assert text in late.message

    def test_reassignment_to_unknown_broker_fails_during_another_move(self, five: Any) -> None:
        """Else it is found only when the other move is over."""
        assert run(five, to(0, 1, 3)).phase == "Running"
        late = run(five, to(7, 8, 9), object=OTHER, waited_ms=60_000)
        assert (late.phase, late.reason) == ("Failed", "InvalidReplicaAssignment")

    @pytest.mark.parametrize("otherwise", [{}, {"paused": True}], ids=["begun", "paused"])
    def test_reassignment_with_repeated_partition_fails_during_another_move(
        self, five: Any, otherwise: Any
    ) -> None:
        """No end of the other move makes it right."""
        assert run(five, to(0, 1, 3)).phase == "Running"
        twice = (to(0, 1, 4, partitions=(0,)), to(0, 1, 3, partitions=(1, 0)))
        state = run(five, *twice, object=OTHER, **otherwise)
        assert (state.phase, state.reason) == ("Failed", "InvalidRequest")
        assert state.message == "Two entries of spec.moves name partition orders-0. Name it once."

    def test_move_off_brokers_repeats_partition_with_two_replicas(self, five: Any) -> None:
        client_topic(five, "far", rows=((0, 2, 3), (1, 2, 3)))
        apart = (TopicMove(topic="far", away_from=(0,)), TopicMove(topic="far", away_from=(1,)))
        assert run(five, *apart).phase == "Running"
        both = tuple(TopicMove(topic="orders", away_from=(broker,)) for broker in (0, 1))
        state = run(five, *both, object=OTHER)
        assert (state.phase, state.message) == (
            "Failed",
            "Two entries of spec.moves name partition orders-0. Name it once.",
        )

    def test_factor_without_the_brokers_is_waited_for(self, five: Any) -> None:
        """Brokers may be added: it has not failed, and nothing has begun."""
        answer = run(five, TopicMove(topic="orders", replication_factor=6))
        assert answer.reason == "NotEnoughBrokers"
        assert not five.image.reassignments
        assert not any(five.p(n).moving for n in range(3))

    def test_rows_are_bounded(self, five: Any) -> None:
        """Rows live in every image and snapshot: a thousand of them, then old ones must go."""
        for number in range(ROWS_MAX):
            holder = ReassignmentObject(namespace="kafka", name=f"r{number}", uid=f"r{number}")
            ended = Reassignment(object=holder, phase="Completed")
            five.commit(ReassignmentNoted(cause="test", reassignment=ended))
        answer = run(five, to(0, 1, 3))
        assert answer.reason == "TooManyWaiting"
        assert "Delete old Reassignment objects" in answer.message
        assert not five.p().moving
        five.ask(ReassignmentObjectGone(object=holder))
        assert run(five, to(0, 1, 3)).phase == "Running"

    @pytest.mark.parametrize(
        ("moves", "words"),
        [
            ((), "no partition"),
            ((TopicMove(topic="orders", partitions=(), away_from=(3,)),), "no partition"),
            ((TopicMove(topic="orders", away_from=()),), "no partition"),
            ((to(1, 1),), "names a broker twice"),
            ((to(0, 1, 3), to(0, 1, 4)), "Two entries of spec.moves name partition orders-0"),
            (
                (to(0, 1, partitions=None), to(0, 3, partitions=None)),
                "all partitions of topic orders",
            ),
            ((to(0, 1, partitions=None), to(0, 1, 4)), "all partitions of topic orders"),
            ((to(0, 1, 4), to(0, 1, partitions=None)), "all partitions of topic orders"),
            ((TopicMove(topic="orders"),), "exactly one of"),
            ((to(1, 2, away_from=(3,)),), "exactly one of"),
            ((TopicMove(topic="orders", replication_factor=0),), "at least 1"),
        ],
    )
    def test_invalid_reassignment_fails_at_once_for_good(
        self, five: Any, moves: Any, words: str
    ) -> None:
        state = run(five, *moves)
        assert (state.phase, state.reason) == ("Failed", "InvalidRequest")
        assert words in state.message
        assert run(five, *moves) == state, "and it says so for ever"

    def test_reassignment_of_declared_replication_factor_fails(
        self, new_world: Callable[..., Any]
    ) -> None:
        world = new_world(5)
        world.declare(partitions=2)
        state = run(world, TopicMove(topic="orders", replication_factor=4))
        assert (state.phase, state.reason) == ("Failed", "PolicyViolation")
        assert "Topic shop/orders" in state.message
        assert not world.p().moving

    def test_refusal_comes_before_the_first_slice(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=1)
        world.declare(partitions=2)
        client_topic(world, "mine", rows=((0, 1, 2), (0, 1, 2)))
        moves = (
            TopicMove(topic="mine", away_from=(1,)),
            TopicMove(topic="orders", replication_factor=4),
        )
        assert run(world, *moves).phase == "Failed"
        assert not any(p.moving for p in world.image.partitions.values())

    def test_partition_moves_for_one_object_at_a_time(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        answer = run(five, to(0, 1, 4), object=OTHER)
        assert (answer.reason, answer.code) == ("ReassignmentInProgress", 60)
        assert "kafka/off-1" in answer.message
        five.propose([0, 1, 2, 3])
        run(five, to(0, 1, 3))
        assert run(five, to(0, 1, 4), object=OTHER).phase == "Running"

    def test_clients_leave_an_objects_partitions_alone(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        for replicas in (None, (0, 1, 4)):
            target = PartitionTarget(topic="orders", index=0, replicas=replicas)
            (answer,) = five.ask(AlterReassignments(targets=(target,))).partitions
            assert answer.reason == "PolicyViolation"
            assert "Reassignment kafka/off-1" in answer.message

    def test_crash_during_start_ends_in_the_same_place(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=2)
        client_topic(world, rows=((0, 1, 2),) * 7)
        request = RunReassignment(object=OBJECT, moves=(TopicMove(topic="orders", away_from=(1,)),))
        world.ask(request, crash_after=1)
        assert not world.image.reassignments
        assert 0 < sum(world.p(n).moving for n in range(7)) < 7
        assert world.ask(request).phase == "Running"
        assert all(world.p(n).moving for n in range(7))
        assert row(world).total == 7


class TestPauseAndLimit:
    def test_paused_before_it_began(self, five: Any) -> None:
        assert run(five, to(0, 1, 3), paused=True).phase is None
        assert not five.p().moving
        assert run(five, to(0, 1, 3)).phase == "Running"

    def test_paused_and_slowed_on_the_way(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        assert run(five, to(0, 1, 3), paused=True, bytes_per_second=9).phase == "Running"
        assert (row(five).paused, row(five).bytes_per_second) == (True, 9)
        run(five, to(0, 1, 3))
        assert (row(five).paused, row(five).bytes_per_second) == (False, None)
        assert five.p().moving


class TestCancel:
    def test_cancelled_partitions_are_as_before(self, five: Any) -> None:
        moves = (to(3, 4, 0, partitions=(0, 1)),)
        run(five, *moves)
        assert run(five, *moves, cancelled=True, wall_ms=3).phase == "Cancelled"
        assert {frozenset(five.p(n).replicas) for n in (0, 1)} == {frozenset((0, 1, 2))}
        assert not five.p().moving
        assert (row(five).ended_ms, row(five).rolled_back) == (3, 2)
        assert run(five, *moves).phase == "Cancelled", "uncancelling begins nothing"

    def test_cancelled_before_it_began(self, five: Any) -> None:
        assert run(five, to(0, 1, 3), cancelled=True).phase == "Cancelled"
        assert not five.p().moving

    def test_cancelled_reassignment_keeps_completed_moves(self, five: Any) -> None:
        moves = (to(0, 1, 3, partitions=(0, 1)),)
        run(five, *moves)
        five.propose([0, 1, 2, 3])
        run(five, *moves, cancelled=True)
        assert five.p(0).replicas == (0, 1, 3)
        assert set(five.p(1).replicas) == {0, 1, 2}

    def test_guard_delays_one_partition_and_not_others(self, five: Any) -> None:
        moves = (to(3, 4, 0, partitions=(0, 1)),)
        run(five, *moves)
        five.propose([0, 3])
        dies(five, 3)
        assert five.p(0).elr == (3,)
        state = run(five, *moves, cancelled=True)
        assert (state.phase, state.reason) == ("Running", "InvalidReplicaAssignment")
        assert "orders-0" in state.message
        assert (five.p(0).moving, five.p(1).moving) == (True, False)
        five.propose([0, 1])
        assert run(five, *moves, cancelled=True).phase == "Cancelled"
        assert five.p(0).isr == (0, 1)

    def test_factor_goes_back_too(self, five: Any) -> None:
        moves = (TopicMove(topic="orders", replication_factor=5),)
        run(five, *moves)
        run(five, *moves, cancelled=True)
        assert five.image.topics[five.image.topic_ids["orders"]].replication_factor == 3

    def test_slices(self, new_world: Callable[..., Any]) -> None:
        world = new_world(5, slice_partitions_max=2)
        client_topic(world, rows=((0, 1, 2),) * 7)
        moves = (TopicMove(topic="orders", away_from=(1,)),)
        run(world, *moves)
        first = world.decide(RunReassignment(object=OBJECT, moves=moves, cancelled=True))
        changed = [r for r in first.records if isinstance(r, PartitionsChanged)]
        assert [r.ranges for r in changed] == [((0, 1),)]
        assert run(world, *moves, cancelled=True).phase == "Cancelled"
        assert not any(world.p(n).moving for n in range(7))


class TestGone:
    def test_deletion_rolls_back_and_forgets(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        assert five.ask(ReassignmentObjectGone(object=OBJECT)).phase is None
        assert not five.p().moving
        assert not five.image.reassignments
        assert five.ask(ReassignmentObjectGone(object=OBJECT)).phase is None

    def test_deleted_reassignment_stays_until_its_rollback(self, five: Any) -> None:
        run(five, to(3, 4, 0))
        five.propose([0, 3])
        dies(five, 3)
        state = five.ask(ReassignmentObjectGone(object=OBJECT))
        assert (state.phase, state.reason) == ("Running", "InvalidReplicaAssignment")
        assert five.image.reassignments
        five.propose([0, 1])
        assert five.ask(ReassignmentObjectGone(object=OBJECT)).phase is None
        assert not five.image.reassignments

    def test_ended_one_is_just_forgotten(self, five: Any) -> None:
        run(five, to(2, 1, 0))
        five.ask(ReassignmentObjectGone(object=OBJECT))
        assert not five.image.reassignments
        assert five.p().replicas == (2, 1, 0)

    def test_topic_may_go_on_the_way(self, five: Any) -> None:
        run(five, to(0, 1, 3))
        run(five, to(0, 1, 3, partitions=(1,)), object=OTHER)
        five.ask(DeleteTopics(names=("orders",)))
        assert run(five, to(0, 1, 3)).phase == "Failed"
        assert run(five, to(0, 1, 3), object=OTHER, cancelled=True).phase == "Cancelled"

    def test_reassignment_of_deleted_topic_fails_and_names_it(self, five: Any) -> None:
        """Absence is no success: somebody waits for the end."""
        run(five, to(0, 1, 3, partitions=(0, 1)))
        five.ask(DeleteTopics(names=("orders",)))
        state = run(five, to(0, 1, 3, partitions=(0, 1)))
        assert (state.phase, state.reason) == ("Failed", "TopicGone")
        assert "2 of 2 partitions" in state.message
        assert "(orders)" in state.message
        assert row(five).total == 0

    def test_reassignment_of_topic_made_again_elsewhere_fails(self, five: Any) -> None:
        run(five, to(4, 1, 3))
        five.ask(DeleteTopics(names=("orders",)))
        client_topic(five, rows=((0, 1, 3),))
        state = run(five, to(4, 1, 3))
        assert (state.phase, state.reason) == ("Failed", "TopicGone")
        assert "(orders)" in state.message

    def test_reassignment_with_deleted_part_fails_at_its_end(self, five: Any) -> None:
        client_topic(five, "bills")
        bills = TopicMove(topic="bills", partitions=(0,), replicas=(0, 1, 3))
        run(five, to(0, 1, 3), bills)
        five.ask(DeleteTopics(names=("bills",)))
        assert run(five, to(0, 1, 3), bills).phase == "Running"
        five.propose([0, 1, 2, 3])
        state = run(five, to(0, 1, 3), bills)
        assert (state.phase, state.reason) == ("Failed", "TopicGone")
        assert "1 of 2 partitions" in state.message
        assert "(bills)" in state.message
        assert row(five).total == 1


def test_rows_survive_a_snapshot(five: Any) -> None:
    run(five, to(0, 1, 3), bytes_per_second=9)
    assert decode_image(encode_image(five.image)) == five.image
    noted = [r for r in five.log if isinstance(r, ReassignmentNoted)]
    assert [r.reassignment for r in noted] == [row(five)]
