"""The result of a pass is carried out whole, in one place, whatever ended the pass."""

from __future__ import annotations

import pytest
from tests.plimsoll_operator.builders import an_image
from tests.plimsoll_operator.terms import Scene

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.kube.resources import LOG_CLUSTERS, REASSIGNMENTS
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Target

CLUSTER = Target(LOG_CLUSTERS, "kafka", "main")
MOVE = Target(REASSIGNMENTS, "kafka", "move")
CAUSE = Cause(reason="RackUnknown", message="Broker 1 has no rack.")
EVENT = Occurrence(key="rack", reason="RackUnknown", message="Broker 1 has no rack.")
ROW = BlockedAction(
    action="Drain",
    broker=2,
    reason="RebalancePaused",
    until="it goes on",
    since="2026-11-22T00:00:00Z",
)


def a_scene() -> tuple[Scene, list[Occurrence]]:
    scene, told = Scene(an_image()), []
    scene.effects.tell = told.append
    return scene, told


def test_pass_that_fails_keeps_what_it_found() -> None:
    scene, told = a_scene()
    with PassResult() as result:
        result.tell(EVENT)
        result.stall(StallSource.RACKS, CAUSE)
        result.add(Work(Task.ROLLS, scene.term.key))
        raise Retry("later")
    with pytest.raises(Retry, match="later"):
        scene.effects.carry_out(result)
    assert told == [EVENT]
    assert scene.term.shown.stall_causes == {StallSource.RACKS: CAUSE}
    assert scene.work == [Work(Task.ROLLS, scene.term.key)]


def test_last_word_on_a_stall_counts() -> None:
    scene, _ = a_scene()
    result = PassResult()
    result.stall(StallSource.RACKS, CAUSE)
    result.unstall(StallSource.RACKS)
    scene.effects.carry_out(result)
    assert scene.term.shown.stall_causes == {}
    assert scene.marked == []


def test_event_of_a_stall_is_written_once() -> None:
    scene, told = a_scene()
    for _ in range(2):
        result = PassResult()
        result.stall(StallSource.RACKS, CAUSE, EVENT)
        scene.effects.carry_out(result)
    assert told == [EVENT]
    ended = PassResult()
    ended.unstall(StallSource.RACKS)
    scene.effects.carry_out(ended)
    scene.effects.carry_out(result)
    assert told == [EVENT, EVENT]


def test_wait_writes_one_event_and_marks_the_cluster() -> None:
    scene, told = a_scene()
    for _ in range(2):
        result = PassResult()
        result.block("Members", [ROW])
        scene.effects.carry_out(result)
    assert [one.reason for one in told] == ["DrainBlocked"]
    assert scene.marked == [CLUSTER]


def test_blocked_object_waits_until_its_deletion() -> None:
    scene, _ = a_scene()
    waits = condition("Blocked", True, "TargetDown", "Broker 4 is down.")
    result = PassResult()
    result.show(MOVE, 3, ReassignmentStatus(phase="Blocked", conditions=(waits,)))
    scene.effects.carry_out(result)
    (rows,) = scene.term.shown.blocked.values()
    assert [(row.object, row.reason) for row in rows] == [("kafka/move", "TargetDown")]
    assert scene.term.shown.statuses[MOVE][0] == 3
    gone = PassResult()
    gone.show_no_more(MOVE)
    scene.effects.carry_out(gone)
    assert scene.term.shown.blocked == {}
    assert scene.term.shown.statuses == {}


def test_cluster_is_marked_once_for_a_pass() -> None:
    scene, _ = a_scene()
    result = PassResult()
    for _ in range(3):
        result.mark_cluster()
    result.mark(MOVE)
    scene.effects.carry_out(result)
    assert scene.marked == [MOVE, CLUSTER]
