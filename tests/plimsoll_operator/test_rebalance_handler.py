"""A Rebalance is planned and shown, begun when it is approved, carried out once, and goes back."""

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, finalised, isr_changed, replay, with_topic
from tests.plimsoll_operator.rebalancing import KEY, LOOK, Rebalancings, an_object
from tests.plimsoll_operator.resynced import offered_by_resync

from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.controller.kernel.volatile_state import PartitionTraffic
from plimsoll_operator.api.labels import MANAGED_BY, OPERATOR
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import CONFIG_MAPS, REBALANCES
from plimsoll_operator.reconcile.rebalance import reconcile as rebalance
from plimsoll_operator.reconcile.rebalance.reconcile import rebalances_of
from plimsoll_operator.reconcile.reconcile_term import Task
from plimsoll_operator.reconcile.registry import all_work, draft_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.status_writer import Target

MIB = 2**20


def conditions(status: RebalanceStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


def says(status: RebalanceStatus, type_: str) -> str:
    return next(c.message for c in status.conditions if c.type == type_)


async def test_plan_is_shown_and_waits():
    scene = Rebalancings()
    await scene.tell(100 * MIB)
    status = await scene.look()
    plan = status.plan
    assert status.phase == "AwaitingApproval"
    assert plan.hash.startswith("sha256:")
    assert (plan.moves.replicas, plan.moves.bytes) == (6, "600Mi")
    assert plan.moves.estimated_seconds == 6, "300 MiB for each at 50 MiB a second"
    assert plan.moves.waves >= 1
    loads = {load.id: (load.replicas.before, load.replicas.after) for load in plan.per_broker}
    assert loads == {0: (5, 3), 1: (5, 3), 2: (5, 3), 3: (0, 3), 4: (0, 3)}
    assert plan.per_broker[3].size.after == "300Mi"
    assert plan.lowest_isr_margin == 1
    assert [risk.under_min_isr for risk in plan.if_broker_dies_now] == [0] * 5
    assert not scene.moving()
    assert not scene.deciding.image.rebalances
    found = conditions(status)
    assert found["Planned"] == ("True", "MinimalMoves")
    assert found["Ready"] == ("False", "AwaitingApproval")
    assert found["Reconciling"] == ("False", "AwaitingApproval")
    assert plan.hash in says(status, "Ready")
    assert scene.work == [LOOK]


async def test_load_plan_says_why_and_balances_bytes():
    image = with_topic(finalised(an_image(), NEWEST), ((0,), (0,), (0,), (1,), (2,)), holder=None)
    scene = Rebalancings(image, mode="Load", brokers=None, goals={"diskPercent": 40})
    await scene.tell(100 * MIB)
    status = await scene.look()
    assert status.phase == "AwaitingApproval"
    assert (status.plan.moves.replicas, status.plan.moves.bytes) == (1, "100Mi")
    assert [load.size.after for load in status.plan.per_broker] == ["200Mi", "200Mi", "100Mi"]
    assert conditions(status)["Planned"] == ("True", "UnevenLoad")
    assert says(status, "Planned") == (
        "1 replica (100 MiB) and 1 preferred leader move. Broker 0 has 80 % more bytes on disk than"
        " the mean of all brokers; after the plan it has 20 % more. The disk usage of broker 1 is "
        "unknown, so disks count as"
        " equal."
    )


async def test_plan_above_declared_traffic_is_refused():
    scene = Rebalancings()
    for p in scene.partitions():
        busy = PartitionTraffic(0, (p.leader, 0), 0, 0, rates=(10.0 * MIB, 0.0))
        scene.deciding.soft.traffic[p.key] = busy
    pool = {"name": "all", "firstId": 0, "brokers": 5}
    scene.declare(pools=[{**pool, "capacity": {"bytesInPerSecond": "20Mi"}}])
    with pytest.raises(Retry, match="broker 3 would write 30 MiB a second, more than"):
        await scene.look()
    assert conditions(scene.status)["Planned"] == ("False", "TrafficCapacity")
    scene.declare(pools=[{**pool, "capacity": {"bytesInPerSecond": "30Mi"}}])
    assert (await scene.look()).phase == "AwaitingApproval"
    scene.declare(pools=[{**pool, "capacity": {"bytesInPerSecond": "20Mi"}}])
    with pytest.raises(Retry, match="pool declares, 20 MiB a second"):
        await scene.look()


async def test_load_plan_waits_for_newer_metadata_version():
    scene = Rebalancings(mode="Load", brokers=None)
    with pytest.raises(Retry, match="Upgrade all brokers first"):
        await scene.look()
    assert conditions(scene.status)["Planned"] == ("False", "MetadataTooOld")


async def test_rebalance_plan_names_partitions_at_risk():
    scene = Rebalancings()
    await scene.kill(0)
    status = await scene.look()
    risks = {risk.broker: risk for risk in status.plan.if_broker_dies_now}
    assert (risks[1].under_min_isr, risks[3].under_min_isr) == (5, 0)
    assert risks[1].examples == ("orders-0", "orders-1", "orders-2")


async def test_whole_plan_is_in_owned_config_map():
    scene = Rebalancings()
    status = await scene.look()
    assert status.plan.details_config_map == "fill-plan"
    body = scene.kube.find(CONFIG_MAPS, "kafka", "fill-plan")
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Rebalance", "b1")
    assert body["data"]["hash"] == status.plan.hash
    own = body["metadata"]["labels"]
    assert own == {MANAGED_BY: OPERATOR}, "what the admission policies let the operator write"
    lines = body["data"]["plan.csv"].splitlines()
    assert lines[0] == "topic,partition,before,after,bytes,wave"
    assert len(lines) - 1 >= 3
    assert all(line.startswith("orders,") for line in lines[1:])


async def test_rebalance_does_not_overwrite_foreign_config_map():
    scene = Rebalancings()
    mine = {"metadata": {"name": "fill-plan", "namespace": "kafka"}, "data": {"a": "b"}}
    scene.kube.put(CONFIG_MAPS, mine)
    status = await scene.look()
    assert status.plan.details_config_map is None
    assert scene.kube.find(CONFIG_MAPS, "kafka", "fill-plan")["data"] == {"a": "b"}


async def test_approved_plan_is_carried_out():
    scene = Rebalancings()
    name = (await scene.look()).plan.hash
    scene.change(approvedPlan=name)
    scene.work.clear()
    status = await scene.look()
    assert status.phase == "Running"
    assert scene.row.plan_hash == name
    assert scene.moving()
    assert scene.work == [LOOK]
    assert status.plan.hash == name
    assert conditions(status)["Reconciling"] == ("True", "Moving")
    for _ in range(20):
        scene.copied()
        status = await scene.look()
        if status.phase == "Completed":
            break
    assert (status.progress.replicas_moved, status.progress.partitions_left) == (6, 0)
    assert conditions(status)["Complete"] == conditions(status)["Ready"] == ("True", "Done")
    assert status.start_time
    assert status.completion_time
    held = [len(scene.deciding.image.hosted[b]) for b in range(5)]
    assert held == [3] * 5


async def test_hash_that_was_never_shown_is_called_unknown():
    scene = Rebalancings()
    await scene.look()
    scene.change(approvedPlan="sha256:another")
    status = await scene.look()
    assert status.phase == "AwaitingApproval"
    assert conditions(status)["Ready"] == ("False", "UnknownPlan")
    assert "spec.approvedPlan is sha256:another, which matches no recent plan" in says(
        status, "Ready"
    )
    assert status.plan.hash in says(status, "Ready")
    assert not scene.deciding.image.rebalances


async def test_approval_of_outdated_plan_asks_again():
    """Between the plan and its approval another object moved a partition."""
    scene = Rebalancings()
    name = (await scene.look()).plan.hash
    index = rebalance.rebalances_of(scene.term).rebalancing.sketches["b1"].planned.moves[0].index
    before = scene.partitions()[index]
    row = (before.replicas[0], before.replicas[1], 3)
    scene.deciding.image = replay(
        scene.deciding.image, isr_changed(index, row, leader=row[0], replicas=row)
    )
    scene.change(generation=1, approvedPlan=name)
    status = await scene.look()
    assert status.phase == "AwaitingApproval"
    assert conditions(status)["Ready"] == ("False", "PlanChanged")
    assert status.plan.hash != name
    assert not scene.deciding.image.rebalances


async def test_plan_of_previous_operator_is_known():
    status = await Rebalancings().look()
    before = msgspec.structs.replace(status.plan, hash="sha256:before")
    later = Rebalancings()
    body = an_object(approvedPlan=before.hash)
    later.put({**body, "status": {"plan": msgspec.to_builtins(before)}})
    status = await later.look()
    assert conditions(status)["Ready"] == ("False", "PlanChanged")
    assert not later.deciding.image.rebalances


async def test_automatic_starts_at_once():
    scene = Rebalancings(approval="Automatic")
    assert (await scene.look()).phase == "Running"
    assert scene.moving()


async def test_completed_is_final_and_for_ever():
    scene = Rebalancings(approval="Automatic")
    for _ in range(20):
        await scene.look()
        scene.copied()
    assert scene.status.phase == "Completed"
    later = Rebalancings(image=scene.deciding.image, approval="Automatic")
    assert (await later.look()).phase == "Completed"
    assert later.deciding.records == [], "the operator has restarted; nothing begins again"
    assert later.work == []


async def test_ended_rebalance_is_not_restarted_in_namesake():
    ended = [{"type": "Complete", "status": "True", "reason": "Done", "message": ""}]
    scene = Rebalancings(approval="Automatic")
    scene.put({**an_object(approval="Automatic"), "status": {"conditions": ended}})
    await scene.run(rebalance.reconcile, KEY)
    assert not scene.deciding.records
    assert not scene.term.shown.statuses, "what it shows stays"


async def test_rebalance_without_moves_reports_it_and_has_ended():
    scene = Rebalancings(mode="Full", brokers=None, approval="Automatic")
    for _ in range(20):
        await scene.look()
        scene.copied()
    assert scene.status.phase == "Completed"
    again = Rebalancings(image=scene.deciding.image, mode="Full", brokers=None)
    again.objects.rebalances.drop(KEY)
    again.put(an_object(uid="b2", mode="Full", brokers=None))
    status = await again.look()
    assert status.phase == "NothingToDo"
    assert conditions(status)["Ready"] == ("True", "NothingToDo")
    assert again.deciding.image.rebalances["b2"].phase == "Completed"
    assert again.work == []


async def test_operator_restart_keeps_rebalance_and_plan():
    scene = Rebalancings(approval="Automatic", limits={"concurrentMovesPerBroker": 1})
    before = await scene.look()
    draft = draft_of(scene.term, Target(REBALANCES, *KEY))
    assert draft is not None
    later = Rebalancings(
        image=scene.deciding.image, approval="Automatic", limits={"concurrentMovesPerBroker": 1}
    )
    body = {**later.kube.find(REBALANCES, *KEY), "status": msgspec.to_builtins(draft.status)}
    later.kube.put(REBALANCES, body)
    status = await later.look()
    assert status.phase == "Running"
    assert status.plan == before.plan
    assert len(later.moving()) == len(scene.moving())


async def test_users_objects_stay_as_they_are():
    scene = Rebalancings(approval="Automatic")
    before = scene.kube.find(REBALANCES, *KEY)
    await scene.look()
    assert scene.kube.find(REBALANCES, *KEY) == before


async def test_rebalance_with_unregistered_broker_is_blocked():
    scene = Rebalancings(brokers=[9], approval="Automatic")
    with pytest.raises(Retry, match="broker 9"):
        await scene.look()
    status = scene.status
    assert status.phase == "Blocked"
    assert conditions(status)["Blocked"] == ("True", "BrokerIdNotRegistered")
    assert conditions(status)["Planned"] == ("False", "BrokerIdNotRegistered")


async def test_too_few_survivors_say_what_helps():
    scene = Rebalancings(mode="RemoveBrokers", brokers=[0, 1, 2], approval="Automatic")
    with pytest.raises(Retry, match="Add brokers first"):
        await scene.look()
    assert conditions(scene.status)["Blocked"] == ("True", "NotEnoughBrokers")


async def test_dead_target_is_named():
    scene = Rebalancings(approval="Automatic")
    await scene.look()
    await scene.kill(3)
    status = await scene.look()
    assert status.phase == "Blocked"
    assert conditions(status)["Blocked"] == ("True", "TargetDown")
    assert "Broker 3 is down" in says(status, "Blocked")


async def test_another_one_that_runs_is_waited_for():
    scene = Rebalancings(approval="Automatic")
    await scene.look()
    other = an_object(uid="b2", mode="RemoveBrokers", brokers=[1], approval="Automatic")
    other["metadata"]["name"] = "drain"
    scene.put(other)
    with pytest.raises(Retry, match="Rebalance kafka/fill is running"):
        await scene.run(rebalance.reconcile, ("kafka", "drain"))
    status = scene.term.shown.statuses[Target(REBALANCES, "kafka", "drain")][1]
    assert (status.phase, conditions(status)["Blocked"][1]) == ("Blocked", "ReassignmentInProgress")


async def test_paused_before_it_began_and_on_the_way():
    scene = Rebalancings(approval="Automatic", paused=True)
    assert (await scene.look()).phase == "Paused"
    assert not scene.deciding.image.rebalances
    scene.change(approval="Automatic")
    assert (await scene.look()).phase == "Running"
    scene.change(3, approval="Automatic", paused=True)
    status = await scene.look()
    assert (status.phase, status.progress.eta_seconds) == ("Paused", None)
    assert scene.row.paused


async def test_progress_in_bytes_and_time():
    scene = Rebalancings(
        approval="Automatic",
        limits={"concurrentMovesPerBroker": 1, "maxBytes": "10Gi"},
        throttle={"bytesPerSecond": "1Mi"},
    )
    await scene.tell(100 * MIB)
    status = await scene.look()
    assert status.progress.bytes_left != "0"
    assert status.plan.moves.estimated_seconds == 300
    assert scene.row.bytes_per_second == MIB
    assert status.progress.wave == 1
    left = status.progress.partitions_left
    scene.copied()
    assert (await scene.look()).progress.partitions_left < left


class TestBack:
    async def test_cancelled(self):
        scene = Rebalancings(approval="Automatic")
        await scene.look()
        scene.change(approval="Automatic", cancelled=True)
        status = await scene.look()
        assert status.phase == "Cancelled"
        assert conditions(status)["Failed"] == ("True", "Cancelled")
        assert not scene.moving()

    async def test_cancelled_before_it_began_is_final_too(self):
        scene = Rebalancings()
        await scene.look()
        scene.change(cancelled=True)
        assert (await scene.look()).phase == "Cancelled"
        scene.change(3, approval="Automatic")
        assert (await scene.look()).phase == "Cancelled"
        assert not scene.moving()

    async def gone(self, scene: Rebalancings) -> None:
        scene.objects.rebalances.drop(KEY)
        await scene.run(rebalance.reconcile, KEY)

    async def test_deletion_rolls_back_and_forgets(self):
        scene = Rebalancings(approval="Automatic")
        await scene.look()
        scene.kube.drop(REBALANCES, *KEY)
        await self.gone(scene)
        assert not scene.moving()
        assert not scene.deciding.image.rebalances
        assert Target(REBALANCES, *KEY) not in scene.term.shown.statuses
        assert not rebalances_of(scene.term).plans

    async def test_plan_nobody_approved_is_forgotten_with_its_object(self):
        scene = Rebalancings()
        await scene.look()
        scene.kube.drop(REBALANCES, *KEY)
        await self.gone(scene)
        assert not rebalance.rebalances_of(scene.term).rebalancing.sketches
        assert not rebalances_of(scene.term).plans

    async def test_rebalance_missing_from_watch_is_not_deleted(self):
        scene = Rebalancings(approval="Automatic")
        await scene.look()
        await self.gone(scene)
        assert scene.moving()

    async def test_api_server_that_does_not_answer_proves_nothing(self):
        scene = Rebalancings(approval="Automatic")
        await scene.look()
        scene.kube.drop(REBALANCES, *KEY)
        scene.kube.fail.append(Unavailable(0, "no answer"))
        with pytest.raises(Retry):
            await self.gone(scene)
        assert scene.moving()

    async def test_another_object_of_the_name_is_another_one(self):
        scene = Rebalancings(approval="Automatic")
        await scene.look()
        scene.put(an_object(uid="b2", mode="PreferredLeaders", brokers=None))
        status = await scene.look()
        assert "b1" not in scene.deciding.image.rebalances
        assert status.phase in ("AwaitingApproval", "NothingToDo")

    async def test_controller_removes_rebalance_deleted_meanwhile(self):
        scene = Rebalancings(approval="Automatic")
        await scene.look()
        later = Rebalancings(image=scene.deciding.image)
        later.objects.rebalances.drop(KEY)
        later.kube.drop(REBALANCES, *KEY)
        assert [w for w in all_work(later.term) if w.task is Task.REBALANCE] == [LOOK]
        await later.run(rebalance.reconcile, KEY)
        assert not later.deciding.image.rebalances


async def test_resync_drops_rebalance_whose_deletion_the_watch_missed():
    scene = Rebalancings()
    scene.kube.drop(REBALANCES, *KEY)
    assert await offered_by_resync(scene) == [(("kafka", "main"), LOOK)]
    assert scene.objects.rebalances.get(KEY) is None
