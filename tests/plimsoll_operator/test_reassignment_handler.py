"""A Reassignment is carried out once, shows how far it is, and goes back when its object goes."""

from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.moving import KEY, LOOK, MIB, Moves, an_object
from tests.plimsoll_operator.resynced import offered_by_resync

from plimsoll_core.messages.moves import LimitMovement
from plimsoll_core.messages.requests import CreateTopics, DeleteTopics, NewTopic
from plimsoll_operator.api.conditions import merge, timestamp
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import REASSIGNMENTS
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.reassignment import reconcile as reassignment
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.record_events import occurrences
from plimsoll_operator.status.status_writer import Target


def conditions(status: ReassignmentStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


async def test_running_one_shows_how_far_it_is():
    scene = Moves()
    status = await scene.look()
    assert status.phase == "Running"
    assert status.start_time
    assert scene.p(0).adding == (3, 4)
    assert (status.partitions.total, status.partitions.pending) == (2, 2)
    assert scene.work == [LOOK]
    assert conditions(status) == {
        "Complete": ("False", "Moving"),
        "Ready": ("False", "Moving"),
        "Reconciling": ("True", "Moving"),
        "Failed": ("False", "NotFailed"),
        "Blocked": ("False", "NotBlocked"),
    }
    await scene.tell(0, 100 * MIB)
    await scene.tell(1, 100 * MIB, 50 * MIB)
    await scene.tell(3, 40 * MIB)
    await scene.tell(4, 10 * MIB)
    status = await scene.look()
    assert (status.partitions.pending, status.partitions.copying) == (1, 1)
    assert (status.bytes.total, status.bytes.copied) == ("300Mi", "50Mi")
    assert status.bytes.left == "250Mi"
    assert status.lowest_isr_margin == 1
    first = status.active[0]
    assert (first.topic, first.partition, first.from_) == ("orders", 0, (0, 1, 2))
    assert (first.adding, first.removing) == ((3, 4), (1, 2))
    assert (first.copied, first.total) == ("50Mi", "200Mi")


async def test_reassignment_of_deleted_topic_fails_undone():
    scene = Moves()
    await scene.look()
    await scene.deciding.request(DeleteTopics(names=("orders",)))
    status = await scene.look()
    assert status.phase == "Failed"
    shown = conditions(status)
    assert shown["Complete"] == shown["Ready"] == ("False", "TopicGone")
    assert shown["Failed"] == ("True", "TopicGone")
    assert (status.partitions.total, status.partitions.done) == (0, 0)
    assert "(orders)" in status.conditions[0].message
    again = await scene.look()
    assert again.phase == "Failed", "for ever"


async def test_reassignment_status_keeps_completed_partitions_in_its_totals():
    scene = Moves()
    await scene.look()
    await scene.tell(0, 100 * MIB)
    await scene.tell(1, 0, 100 * MIB)
    await scene.look()
    scene.in_sync(0, 3, 4, 0)
    status = await scene.look()
    assert (status.partitions.done, status.partitions.pending) == (1, 1)
    assert (status.bytes.total, status.bytes.copied) == ("400Mi", "200Mi")


async def test_completed_is_final_and_for_ever():
    scene = Moves()
    await scene.look()
    scene.in_sync(0, 3, 4, 0)
    scene.in_sync(1, 3, 4, 0)
    scene.work.clear()
    status = await scene.look()
    assert (status.phase, status.partitions.done, status.partitions.total) == ("Completed", 2, 2)
    assert status.completion_time
    assert conditions(status)["Complete"] == ("True", "Done")
    assert conditions(status)["Ready"] == ("True", "Done")
    assert scene.work == []
    later = Moves(image=scene.deciding.image)
    assert (await later.look()).phase == "Completed"
    assert later.deciding.records == [], "the operator has restarted; nothing begins again"


async def test_ended_reassignment_is_not_restarted_in_namesake():
    """A LogCluster that is made anew has an empty log, and its owner's objects are still there."""
    scene = Moves()
    await scene.look()
    scene.in_sync(0, 3, 4, 0)
    scene.in_sync(1, 3, 4, 0)
    status = await scene.look()
    assert status.phase == "Completed"
    anew = Moves()
    shown = msgspec.to_builtins(
        msgspec.structs.replace(status, conditions=merge((), status.conditions, 1, 0))
    )
    anew.put({**an_object(), "status": shown})
    await anew.run(reassignment.reconcile, KEY)
    assert not anew.deciding.records
    assert not anew.term.shown.statuses, "what it shows stays"


async def test_restart_of_the_operator_goes_on():
    scene = Moves()
    await scene.look()
    later = Moves(image=scene.deciding.image)
    status = await later.look()
    assert (status.phase, status.partitions.total) == ("Running", 2)
    assert later.deciding.records == []


async def test_users_objects_stay_as_they_are():
    scene = Moves()
    before = scene.kube.find(REASSIGNMENTS, *KEY)
    await scene.look()
    assert scene.kube.find(REASSIGNMENTS, *KEY) == before
    assert all(verb == "get" for verb, _, _ in scene.kube.calls)


async def test_topic_that_comes_later_is_waited_for():
    """Order-free apply."""
    scene = Moves(moves=[{"topic": "later", "replicationFactor": 2}])
    with pytest.raises(Retry, match="topic later, which does not exist"):
        await scene.look()
    status = scene.term.shown.statuses[Target(REASSIGNMENTS, *KEY)][1]
    assert status.phase == "Pending"
    assert conditions(status)["Ready"] == ("False", "UnknownTopicOrPartition")
    topic = NewTopic(name="later", partitions=1, replication_factor=1)
    await scene.deciding.request(CreateTopics(topics=(topic,)))
    assert (await scene.look()).phase == "Running"


async def test_reassignment_of_declared_replication_factor_fails():
    image = with_topic(an_image((0, 1, 2, 3, 4)), ((0, 1, 2),))
    scene = Moves(image=image, moves=[{"topic": "orders", "replicationFactor": 4}])
    status = await scene.look()
    assert status.phase == "Failed"
    assert conditions(status)["Failed"] == ("True", "PolicyViolation")
    assert "Topic kafka/orders" in status.conditions[0].message


async def test_paused_and_limited_on_the_way():
    scene = Moves(throttle={"bytesPerSecond": "5Mi"})
    await scene.look()
    row = scene.deciding.image.reassignments["r1"]
    assert row.bytes_per_second == 5 * MIB
    scene.change(paused=True)
    status = await scene.look()
    assert (status.phase, conditions(status)["Ready"]) == ("Paused", ("False", "Paused"))
    assert scene.deciding.image.reassignments["r1"].paused
    scene.change(throttle={"bytesPerSecond": "100m"})
    assert (await scene.look()).phase == "Running"
    assert scene.deciding.image.reassignments["r1"].bytes_per_second == 1


async def test_paused_from_the_start_moves_nothing():
    scene = Moves(paused=True)
    status = await scene.look()
    assert (status.phase, conditions(status)["Ready"]) == ("Paused", ("False", "Paused"))
    assert not scene.p().moving


async def test_target_that_dies_is_named():
    scene = Moves()
    await scene.look()
    await scene.kill(4)
    status = await scene.look()
    assert status.phase == "Blocked"
    assert conditions(status)["Blocked"] == ("True", "TargetDown")
    assert "Broker 4 is down" in next(c for c in status.conditions if c.type == "Blocked").message
    assert scene.work[-1] == LOOK


@pytest.mark.parametrize(
    ("spec", "replans"),
    [
        ({}, False),
        ({"onTargetLost": "Replan"}, True),
        ({"moves": [{"topic": "orders", "awayFrom": [2]}]}, True),
        ({"moves": [{"topic": "orders", "awayFrom": [2]}], "onTargetLost": "Block"}, False),
        ({"moves": [{"topic": "orders", "replicationFactor": 4}]}, True),
    ],
)
async def test_absent_target_is_replaced_when_requested(spec: dict[str, Any], replans: bool):
    scene = Moves(**spec)
    await scene.look()
    lost = scene.p().adding[0]
    await scene.kill(lost)
    await scene.look()
    scene.deciding.now_ms += scene.deciding.settings.target_lost_ms
    status = await scene.look()
    assert (lost not in scene.p().target) == replans
    assert (status.phase == "Running") == replans


async def test_cancelled_is_rolled_back():
    scene = Moves()
    await scene.look()
    scene.change(cancelled=True)
    status = await scene.look()
    assert (status.phase, conditions(status)["Failed"]) == ("Cancelled", ("True", "Cancelled"))
    assert status.partitions is not None
    assert (status.partitions.done, status.partitions.rolled_back) == (0, status.partitions.total)
    assert not scene.p(0).moving
    assert {*scene.p(0).replicas} == {0, 1, 2}
    scene.change(cancelled=False)
    assert (await scene.look()).phase == "Cancelled"


async def test_move_off_empty_broker_is_complete():
    scene = Moves(moves=[{"topic": "orders", "awayFrom": [4]}])
    status = await scene.look()
    assert status.phase == "Completed"
    assert conditions(status)["Complete"] == ("True", "NothingToMove")
    assert conditions(status)["Failed"] == ("False", "NotFailed")
    assert "nothing to move:" in status.conditions[0].message


async def test_reassignment_of_unknown_topic_stays_pending_and_blocked():
    scene = Moves(moves=[{"topic": "nosuch", "awayFrom": [1]}])
    with pytest.raises(Retry):
        await scene.look()
    _, status = scene.term.shown.statuses[Target(REASSIGNMENTS, "kafka", "move")]
    assert status.phase == "Pending"
    assert conditions(status)["Blocked"] == ("True", "UnknownTopicOrPartition")


async def test_cancelled_reassignment_waits_for_original_replica():
    scene = Moves()
    await scene.look()
    scene.in_sync(0, 0, 3)
    scene.change(cancelled=True)
    status = await scene.look()
    assert (status.phase, status.active[0].partition) == ("Blocked", 0)
    assert "broker 3" in status.conditions[0].message
    assert not scene.p(1).moving
    scene.in_sync(0, 0, 1, 3)
    assert (await scene.look()).phase == "Cancelled"


class TestDeletion:
    async def gone(self, scene: Moves) -> None:
        """The watch says so."""
        scene.objects.reassignments.drop(KEY)
        await scene.run(reassignment.reconcile, KEY)

    async def test_proven_deletion_rolls_back_and_forgets(self):
        scene = Moves()
        await scene.look()
        scene.kube.drop(REASSIGNMENTS, *KEY)
        await self.gone(scene)
        assert not scene.p().moving
        assert not scene.deciding.image.reassignments
        assert Target(REASSIGNMENTS, *KEY) not in scene.term.shown.statuses

    async def test_object_missing_from_watch_is_not_deleted(self):
        scene = Moves()
        await scene.look()
        await self.gone(scene)
        assert scene.p().moving

    async def test_api_server_that_does_not_answer_proves_nothing(self):
        scene = Moves()
        await scene.look()
        scene.kube.drop(REASSIGNMENTS, *KEY)
        scene.kube.fail.append(Unavailable(0, "no answer"))
        with pytest.raises(Retry):
            await self.gone(scene)
        assert scene.p().moving

    async def test_deletion_that_is_held_up_rolls_back_too(self):
        scene = Moves()
        await scene.look()
        body = an_object()
        body["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        scene.put(body)
        await scene.run(reassignment.reconcile, KEY)
        assert not scene.p().moving

    async def test_another_object_of_the_name_is_another_one(self):
        scene = Moves()
        await scene.look()
        scene.put(an_object(uid="r2", moves=[{"topic": "orders", "awayFrom": [2]}]))
        status = await scene.look()
        assert status.phase == "Running"
        assert set(scene.deciding.image.reassignments) == {"r2"}
        assert 2 in scene.p().removing

    async def test_rebalance_deleted_without_controller_is_removed(self):
        scene = Moves()
        await scene.look()
        later = Moves(image=scene.deciding.image)
        later.objects.reassignments.drop(KEY)
        later.kube.drop(REASSIGNMENTS, *KEY)
        assert reassignment.abandoned(later.term) == [KEY]
        await later.run(reassignment.reconcile, KEY)
        assert not later.deciding.image.reassignments

    async def test_deleted_reassignment_retries_rollback_until_possible(self):
        scene = Moves()
        await scene.look()
        scene.in_sync(0, 0, 3)
        scene.kube.drop(REASSIGNMENTS, *KEY)
        with pytest.raises(Retry, match="broker 3"):
            await self.gone(scene)
        scene.in_sync(0, 0, 1, 3)
        await self.gone(scene)
        assert not scene.deciding.image.reassignments


async def test_clusters_limit_is_told_once():
    scene = Moves()
    scene.declare(movement={"bytesPerSecond": "7Mi"})
    for _ in range(2):
        await cluster._limit_movement(scene.term, scene.term.cluster)
    asked = [one for one in scene.deciding.asked if isinstance(one, LimitMovement)]
    assert asked == [LimitMovement(bytes_per_second=7 * MIB)]
    scene.declare()
    await cluster._limit_movement(scene.term, scene.term.cluster)
    assert scene.deciding.image.movement_bytes_per_second == 50 * MIB


async def test_events_tell_of_the_beginning_and_the_end():
    scene = Moves()
    before = scene.deciding.image
    await scene.look()
    told = list(occurrences(before, scene.deciding.image, scene.deciding.records))
    assert [(o.reason, o.message) for o in told] == [
        ("ReassignmentRunning", "Reassignment move started: it moves replicas of 2 partitions.")
    ]


async def test_resync_drops_reassignment_whose_deletion_the_watch_missed():
    scene = Moves()
    scene.kube.drop(REASSIGNMENTS, *KEY)
    assert await offered_by_resync(scene) == [(("kafka", "main"), LOOK)]
    assert scene.objects.reassignments.get(KEY) is None


async def test_missing_topic_is_awaited_by_api_servers_clock():
    """The operator's host is two minutes ahead: what was applied together failed for good."""
    scene = Moves(moves=[{"topic": "later", "replicationFactor": 2}])
    body, made_ms = scene.kube.find(REASSIGNMENTS, *KEY), 1_800_000_000_000
    body["metadata"]["creationTimestamp"] = timestamp(made_ms)
    scene.put(body)
    scene.term.now_ms = lambda: made_ms + 120_000
    scene.kube.said_ms = made_ms + 2_000
    with pytest.raises(Retry, match="lasts for a minute"):
        await scene.look()
    scene.kube.said_ms = made_ms + 61_000
    status = await scene.look()
    assert status.phase == "Failed"
    assert conditions(status)["Failed"] == ("True", "UnknownTopicOrPartition")
