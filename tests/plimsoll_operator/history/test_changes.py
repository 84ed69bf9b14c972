"""Rows of the history: what each says of leader and ISR, why, and what asked for it."""

from __future__ import annotations

import msgspec
import pytest
from tests.plimsoll_operator.builders import (
    OBJECT,
    TOPIC_ID,
    an_image,
    isr_changed,
    replay,
    with_topic,
)

from plimsoll_core.cluster.model import (
    ClusterImage,
    MovedPartitions,
    Reassignment,
    ReassignmentObject,
)
from plimsoll_core.cluster.records import (
    BrokersLeaving,
    PartitionsChanged,
    PartitionsCreated,
    ReassignmentNoted,
    Record,
    RestartGranted,
    TopicCreated,
    TopicRemoved,
)
from plimsoll_core.controller.decide import Settings, VolatileState, decide
from plimsoll_core.controller.moves import partition_move
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import RunReassignment, TopicMove
from plimsoll_operator.history import changes as history_changes
from plimsoll_operator.history.changes import A_CLIENT, ChangeRow, changes

MS = 1_700_000_000_000
ROW = (0, 1, 2)


def a_cluster(partitions: int = 2) -> ClusterImage:
    return with_topic(an_image(), (ROW,) * partitions)


def told(old: ClusterImage, *records: Record) -> list[ChangeRow]:
    return list(changes(old, replay(old, *records), records, MS))


def reordered(index: int, cause: str) -> PartitionsChanged:
    return PartitionsChanged(
        cause=cause, topic_id=TOPIC_ID, ranges=((index, index),), replicas=brokers(2, 1, 0)
    )


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(b) for b in ids)


def test_lag_shrink_states_before_after_and_leader() -> None:
    old = a_cluster()
    (row,) = told(old, isr_changed(1, (0, 2)))
    assert (row.offset, row.ms, row.topic) == (old.next_offset, MS, "orders")
    assert (row.ranges, row.isr, row.leader) == (((1, 1),), (ROW, (0, 2)), None)
    assert (row.word, row.planned, row.asked) == ("lag", False, "the leader, broker 0")
    assert row.holds("orders", 1)
    assert not row.holds("orders", 0)
    assert not row.holds("other", 1)


def test_partitions_changed_alike_share_a_row() -> None:
    old = replay(a_cluster(3), isr_changed(2, (0, 1)))
    record = PartitionsChanged(
        cause="fenced after 6000 ms of silence",
        topic_id=TOPIC_ID,
        ranges=((0, 2),),
        leader_epoch_step=1,
        leader=BrokerId(1),
        isr=brokers(1),
    )
    first, second = told(old, record)
    assert (first.ranges, first.isr, first.leader) == (((0, 1),), (ROW, (1,)), (0, 1))
    assert (second.ranges, second.isr) == (((2, 2),), ((0, 1), (1,)))
    assert (first.epochs, first.word, first.asked) == (1, "fenced", "the controller")


def test_shrink_under_a_grant_names_the_restart() -> None:
    granted = RestartGranted(cause="restart", broker_id=BrokerId(2), revision="r2")
    old = replay(a_cluster(1), granted)
    (row,) = told(old, isr_changed(0, (0, 1), cause="shutdown"))
    assert (row.word, row.planned) == ("roll", True)
    assert row.asked == "the granted restart of broker 2 into revision r2"


def test_shrink_of_removed_broker_names_the_removal() -> None:
    old = replay(a_cluster(1), BrokersLeaving(cause="declared", broker_ids=brokers(2)))
    (row,) = told(old, isr_changed(0, (0, 1), cause="shutdown"))
    assert (row.word, row.planned, row.asked) == ("reassign", True, "the removal of broker 2")


def test_move_names_reassignment_begun_in_same_commit() -> None:
    move = PartitionsChanged(
        cause="reassignment",
        topic_id=TOPIC_ID,
        ranges=((0, 0),),
        replicas=brokers(3, 0, 1, 2),
        adding=brokers(3),
        removing=brokers(2),
    )
    row = Reassignment(
        object=ReassignmentObject(namespace="kafka", name="off-2", uid="u9"),
        phase="Running",
        partitions=(MovedPartitions(topic_id=TOPIC_ID, ranges=((0, 0),)),),
        total=1,
    )
    noted = ReassignmentNoted(cause="reassignment", reassignment=row)
    (told_of,) = told(a_cluster(1), move, noted)
    assert told_of.asked == "Reassignment kafka/off-2"
    assert told_of.replicas == (ROW, (3, 0, 1, 2))
    by_client = msgspec.structs.replace(move, cause=partition_move.BY_CLIENT)
    (alone,) = told(a_cluster(1), by_client)
    assert alone.asked == A_CLIENT


def test_reordering_reassignment_is_named_within_one_commit() -> None:
    old = with_topic(an_image(), (ROW, ROW), holder=None)
    holder = ReassignmentObject(namespace="kafka", name="afresh", uid="u9")
    asked = RunReassignment(
        object=holder, moves=(TopicMove(topic="orders", partitions=(0,), replicas=(1, 2, 0)),)
    )
    decision = decide(old, VolatileState(), asked, 0, Settings())
    other, row, led = told(old, reordered(1, partition_move.BY_CLIENT), *decision.records)
    assert (other.asked, other.ranges) == (A_CLIENT, ((1, 1),))
    assert (row.asked, row.replicas) == ("Reassignment kafka/afresh", (ROW, (1, 2, 0)))
    assert (led.leader, led.word) == ((0, 1), "preferred"), "its new first replica leads at once"
    assert led.asked == "Reassignment kafka/afresh"


def test_isr_in_another_order_is_no_change() -> None:
    assert not told(a_cluster(1), isr_changed(0, (2, 1, 0), cause="IsrExpand"))
    moved = isr_changed(0, (2, 1, 0), cause="IsrExpand", leader=BrokerId(1), leader_epoch_step=1)
    (row,) = told(a_cluster(1), moved)
    assert (row.leader, row.isr) == ((0, 1), None)


def test_later_record_of_commit_builds_on_earlier() -> None:
    first, second = told(a_cluster(1), isr_changed(0, (0, 1)), isr_changed(0, (0, 1, 2)))
    assert first.isr == (ROW, (0, 1))
    assert second.isr == ((0, 1), ROW)


def test_creation_and_removal_are_told_with_their_declarer() -> None:
    created = TopicCreated(
        cause="created",
        topic_id=TOPIC_ID,
        name="orders",
        replication_factor=3,
        min_isr=2,
        object=OBJECT,
    )
    rows = brokers(*ROW), brokers(*ROW)
    partitions = PartitionsCreated(
        cause="created", topic_id=TOPIC_ID, first=0, replicas=rows, isr=rows
    )
    (made,) = told(an_image(), created, partitions)
    assert (made.kind, made.ranges, made.leader) == ("created", ((0, 1),), (None, 0))
    assert made.asked == "Topic kafka/orders"
    (gone,) = told(a_cluster(), TopicRemoved(cause="deleted by a client", topic_id=TOPIC_ID))
    assert (gone.kind, gone.topic, gone.cause) == ("removed", "orders", "deleted by a client")
    assert gone.holds("orders", 7)


def test_creation_makes_a_state_for_each_different_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of 10,000 partitions held the operator's loop for 39 ms of processor time."""
    rows = (brokers(0, 1, 2), brokers(1, 2, 0)) * 500
    partitions = PartitionsCreated(
        cause="created", topic_id=TOPIC_ID, first=0, replicas=rows, isr=rows
    )
    created = TopicCreated(
        cause="created", topic_id=TOPIC_ID, name="orders", replication_factor=3, min_isr=2
    )
    made, real = [], history_changes._State
    monkeypatch.setattr(history_changes, "_State", lambda *row: made.append(row) or real(*row))
    found = told(an_image(), created, partitions)
    assert [one.leader for one in found] == [(None, 0), (None, 1)]
    assert len(made) == 2


def test_change_of_the_elr_alone_is_no_row() -> None:
    record = PartitionsChanged(
        cause="x", topic_id=TOPIC_ID, ranges=((0, 0),), elr=brokers(2), min_isr=2
    )
    assert told(a_cluster(1), record) == []
