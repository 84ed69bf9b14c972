"""A drill: faults that the operator injects once each, while a Verification's driver writes."""

import json
from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_verification_handler import KEY, VERDICT, a_scene, report, step

from plimsoll_core.errors import Reason
from plimsoll_core.messages.elections import ElectionAnswer, ElectionsAnswer, ElectLeaders
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.drill import DRILL_RULES, DrillStep
from plimsoll_operator.api.labels import PAUSED_UNTIL, RESTART
from plimsoll_operator.kube.errors import Conflict, Rejected
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    LOG_CLUSTERS,
    PODS,
    REASSIGNMENTS,
    VERIFICATIONS,
)
from plimsoll_operator.status.events import Occurrence

NOW_MS = 1_000_000_000
LEADER_OF = {"leaderOf": {"topic": "orders", "partition": 0}}
PROGRESS = {"phase": "Producing", "counts": {"acked": 5}}


class Drills(Scene):
    """What `a_drill` makes. `events`: what the passes told."""

    events: list[Occurrence]


def a_drill(*steps: dict[str, Any], local: bool = True, allowed: bool = True) -> Drills:
    """A Verification with these steps; broker 1 leads its topic's only partition."""
    image = with_topic(an_image(), ((1, 0, 2),))
    scene: Any = a_scene(image, local_faults=local)
    scene.events = []
    scene.effects.tell = scene.events.append
    scene.declare(maintenance={"allowDrills": allowed})
    spec = {
        "clusterRef": {"name": "main"},
        "topic": "orders",
        "produce": {"records": 10},
        "drill": list(steps),
    }
    meta = {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1}
    body = scene.kube.put(VERIFICATIONS, {"metadata": meta, "spec": spec})
    scene.objects.verifications.put(body)
    for broker in range(3):
        pod = {"name": f"main-broker-{broker}-0", "namespace": "kafka", "uid": f"p{broker}"}
        scene.kube.put(
            PODS, {"metadata": pod, "spec": {"containers": [{"name": "broker", "image": "b"}]}}
        )
    return scene


async def at(scene: Drills, seconds: float) -> Any:
    """One pass, so many seconds after the drill began; the status that it shows."""
    scene.kube.said_ms = NOW_MS + round(seconds * 1000)
    return await step(scene)


async def begun(*steps: dict[str, Any], **more: Any) -> Drills:
    """A drill of which the driver's first acknowledgement was just seen."""
    scene = a_drill(*steps, **more)
    await at(scene, -5)
    report(scene, progress_json=PROGRESS)
    await at(scene, 0)
    return scene


def record(scene: Drills) -> Any:
    """What the operator goes by; the driver has a copy of it."""
    noted = scene.kube.find(VERIFICATIONS, "kafka", "check")["status"]["drillRecord"]
    report = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    assert json.loads(report["data"]["drill.json"]) == noted
    return noted


def note(scene: Drills, **stated: Any) -> None:
    """The status as another operator left it."""
    found = scene.kube.find(VERIFICATIONS, "kafka", "check")
    status = {"drillRecord": {"beganMs": NOW_MS, **stated}}
    scene.kube.put(VERIFICATIONS, {**found, "status": status})


def edit_copy(scene: Drills, **stated: Any) -> None:
    """Someone who may edit ConfigMaps writes another record to the report's."""
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    data = {**found["data"], "drill.json": json.dumps(stated)}
    scene.kube.put(CONFIG_MAPS, {**found, "data": data})


def end(scene: Drills) -> None:
    """The driver reports that every check passed."""
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    data = {**found["data"], "verdict.json": json.dumps(VERDICT)}
    scene.kube.put(CONFIG_MAPS, {**found, "data": data})


async def test_leader_is_killed_once_when_due():
    scene = await begun({"at": "30s", "fault": "KillBroker", "target": LEADER_OF})
    assert record(scene)["beganMs"] == NOW_MS
    await at(scene, 29)
    assert not [call for call in scene.kube.calls if call[0] == "force"]
    status = await at(scene, 30)
    assert [call for call in scene.kube.calls if call[0] == "force"] == [
        ("force", "pods", "main-broker-1-0")
    ]
    (mark,) = status.drill
    assert (mark.fault, mark.result) == ("KillBroker", "Injected")
    assert "Broker 1, which led orders-0" in mark.message
    assert [one.reason for one in scene.events] == ["DrillFault"]
    await at(scene, 40)
    assert len([call for call in scene.kube.calls if call[0] == "force"]) == 1
    end(scene)
    assert (await at(scene, 50)).verdict == "Passed"


@pytest.mark.parametrize(("local", "how"), [(True, "SIGKILL"), (False, "a grace period of 1 s")])
async def test_kill_is_told_as_it_was_done(local, how):
    scene = await begun({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}}, local=local)
    status = await at(scene, 2)
    assert how in status.drill[0].message


async def test_drill_waits_for_the_first_acknowledgement():
    scene = a_drill({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}})
    await at(scene, -5)
    report(scene, progress_json={"phase": "Producing", "counts": {"acked": 0}})
    await at(scene, 60)
    assert "drill.json" not in scene.kube.find(CONFIG_MAPS, "kafka", "check-report")["data"]


async def test_continuous_run_has_its_drill():
    scene = a_drill({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}})
    rolling = {"windowSeconds": 60, "drivers": 1}
    await at(scene, -5)
    report(scene, progress_json={**PROGRESS, "phase": "Running", "rolling": rolling})
    await at(scene, 0)
    status = await at(scene, 2)
    assert (status.phase, status.drill[0].result) == ("Running", "Injected")


async def test_pause_is_asked_of_the_local_kubelet():
    pause = {"at": "1s", "fault": "PauseBroker", "target": {"broker": 2}, "for": "5s"}
    scene = await begun(pause)
    status = await at(scene, 1)
    pod = scene.kube.find(PODS, "kafka", "main-broker-2-0")
    assert pod["metadata"]["annotations"][PAUSED_UNTIL] in status.drill[0].message


async def test_roll_is_requested_of_the_logcluster():
    scene = await begun({"at": "1s", "fault": "RollAll"})
    await at(scene, 1)
    found = scene.kube.find(LOG_CLUSTERS, "kafka", "main")
    assert RESTART in found["metadata"]["annotations"]


async def test_partition_is_moved_off_its_leader():
    scene = await begun({"at": "1s", "fault": "Reassign", "target": LEADER_OF})
    status = await at(scene, 1)
    made = scene.kube.find(REASSIGNMENTS, "kafka", "check-drill-0")
    assert made["spec"]["moves"] == [{"topic": "orders", "partitions": [0], "replicas": [0, 2, 1]}]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "v1"
    assert "from replicas [1, 0, 2] to [0, 2, 1]" in status.drill[0].message


async def test_preferred_leaders_are_elected():
    scene = await begun({"at": "1s", "fault": "PreferLeaders"})
    rows = (ElectionAnswer(topic="orders", index=0), ElectionAnswer(topic="x", index=1, code=7))
    scene.controller.reply = lambda _: ElectionsAnswer(partitions=rows)
    status = await at(scene, 1)
    assert isinstance(scene.controller.asked[-1], ElectLeaders)
    assert "preferred leaders of 1 partitions" in status.drill[0].message


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (
            {"fault": "KillBroker", "target": {"broker": 9}},
            "The drill did not inject its fault, because the cluster has no broker 9. "
            "Name another broker in another Verification.",
        ),
        (
            {"fault": "KillBroker", "target": {"leaderOf": {"topic": "no", "partition": 0}}},
            "partition no-0, which target.leaderOf names, does not exist",
        ),
        ({"fault": "RollAll"}, "verification.drills=true"),
    ],
)
async def test_fault_not_injected_leaves_run_inconclusive(fault, why):
    scene = await begun({"at": "1s", **fault})
    scene.kube.refuse["merge"] = Rejected(403, "no")
    if fault["fault"] == "RollAll":
        merge = scene.kube.merge

        async def selective(kind: Any, *rest: Any) -> Any:
            if kind is CONFIG_MAPS:
                scene.kube.refuse.pop("merge", None)
            else:
                scene.kube.refuse["merge"] = Rejected(403, "no")
            return await merge(kind, *rest)

        scene.kube.merge = selective  # type: ignore[method-assign]
    else:
        scene.kube.refuse.clear()
    status = await at(scene, 1)
    assert (status.drill[0].result, why in status.drill[0].message) == ("Refused", True)
    assert [one.reason for one in scene.events] == ["DrillFault"]
    end(scene)
    status = await at(scene, 5)
    assert (status.verdict, status.conditions[0].reason) == ("Inconclusive", "DrillIncomplete")
    assert why in status.conditions[0].message


async def test_election_refused_by_controller_is_told():
    scene = await begun({"at": "1s", "fault": "PreferLeaders"})
    refused = Refused(code=42, reason=Reason.InvalidRequest.name, message="No election now.")
    scene.controller.reply = lambda _: refused
    status = await at(scene, 1)
    assert (status.drill[0].result, status.drill[0].message) == ("Refused", "No election now.")


async def test_run_that_ended_before_the_fault_is_inconclusive():
    scene = await begun({"at": "1h", "fault": "RollAll"})
    end(scene)
    status = await at(scene, 5)
    assert status.conditions[0].reason == "DrillIncomplete"
    assert "RollAll at 1h (the run had ended)" in status.conditions[0].message


async def test_fault_of_unknown_outcome_is_not_repeated():
    scene = await begun({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}})
    step_noted = {"number": 0, "fault": "KillBroker", "atMs": NOW_MS + 1000, "result": "Begun"}
    note(scene, steps=[step_noted])
    status = await at(scene, 2)
    assert status.drill[0].result == "Unknown"
    assert not [call for call in scene.kube.calls if call[0] == "force"]


async def test_edited_copy_repeats_no_fault():
    scene = await begun({"at": "1s", "fault": "KillBroker", "target": {"broker": 1}})
    for seconds in range(2, 12, 2):
        pod = {"name": "main-broker-1-0", "namespace": "kafka", "uid": f"q{seconds}"}
        scene.kube.put(
            PODS, {"metadata": pod, "spec": {"containers": [{"name": "broker", "image": "b"}]}}
        )
        await at(scene, seconds)
        edit_copy(scene, beganMs=1, steps=[])
    assert len([call for call in scene.kube.calls if call[0] == "force"]) == 1


@pytest.mark.parametrize("at_ms", [1, 9_999_999_999_999_999])
async def test_edited_copy_is_no_outcome(at_ms: int):
    scene = await begun({"at": "1h", "fault": "RollAll"})
    step_stated = {"number": 0, "fault": "RollAll", "atMs": at_ms, "result": "Injected"}
    edit_copy(scene, beganMs=1, steps=[step_stated])
    assert (await at(scene, 2)).drill == ()
    assert record(scene)["steps"] == []
    end(scene)
    assert (await at(scene, 5)).conditions[0].reason == "DrillIncomplete"


async def test_unreadable_record_injects_nothing():
    scene = await begun({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}})
    get = scene.kube.get

    async def another(kind: Any, *rest: Any) -> Any:
        found = await get(kind, *rest)
        return {**found, "status": {"drillRecord": 1}} if kind is VERIFICATIONS else found

    scene.kube.get = another  # type: ignore[method-assign]
    assert [one.result for one in (await at(scene, 2)).drill] == ["Unknown"]
    assert not [call for call in scene.kube.calls if call[0] == "force"]


async def test_change_since_reading_delays_the_fault():
    scene = await begun({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}})
    scene.kube.refuse["status"] = Conflict(409, "changed")
    await at(scene, 1)
    assert not [call for call in scene.kube.calls if call[0] == "force"]
    scene.kube.refuse.clear()
    assert (await at(scene, 2)).drill[0].result == "Injected"


@pytest.mark.parametrize(
    ("more", "fault", "reason", "remedy"),
    [
        ({"allowed": False}, "KillBroker", "DrillsNotAllowed", "create the Verification again"),
        ({"local": False}, "PauseBroker", "FaultNotOffered", "Use KillBroker"),
    ],
)
async def test_drill_is_refused_before_its_driver_starts(more, fault, reason, remedy):
    scene = a_drill({"at": "1s", "fault": fault, "target": {"broker": 0}}, **more)
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Failed", reason)
    assert remedy in status.conditions[0].message
    assert scene.made("jobs") == []


async def test_audit_has_no_drill():
    scene = a_drill({"at": "1s", "fault": "RollAll"})
    body = scene.kube.find(VERIFICATIONS, "kafka", "check")
    spec = {
        "clusterRef": {"name": "main"},
        "source": {"existingTopics": {"matchPattern": "orders"}},
        "drill": body["spec"]["drill"],
    }
    scene.objects.verifications.put({**body, "spec": spec})
    status = await step(scene)
    assert "a drill needs records to be written" in status.conditions[0].message
    assert scene.made("jobs") == []


async def test_withdrawn_permission_stops_the_drill():
    scene = await begun({"at": "1s", "fault": "KillBroker", "target": {"broker": 0}})
    scene.declare(maintenance={"allowDrills": False})
    status = await at(scene, 2)
    assert (
        status.drill[0].message
        == "The drill did not inject its fault, because the LogCluster no longer allows drills. "
        "Set maintenance.allowDrills: true, and create the Verification again."
    )


def test_step_is_read_with_its_length():
    found = msgspec.convert({"at": "1s", "fault": "PauseBroker", "for": "3s"}, DrillStep)
    assert found.for_ == "3s"
    assert len(DRILL_RULES) == 4
    assert KEY == ("kafka", "check")
