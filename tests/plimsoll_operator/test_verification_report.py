"""A Verification ends, and stays ended, whatever its driver reports and becomes of its children."""

from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_verification_handler import (
    KEY,
    READY,
    VERDICT,
    a_scene,
    report,
    step,
)

from plimsoll_operator.api.conditions import merge
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.resources import CONFIG_MAPS, JOBS, VERIFICATIONS
from plimsoll_operator.reconcile.verification import reconcile as verification


def shown(scene: Scene, type_: str, reason: str, *, made: str = "", at: str = "") -> None:
    """The object, made then, shows it since `at`, as the API server has it by now."""
    condition = {"type": type_, "status": "True", "reason": reason, "message": "x"}
    condition["lastTransitionTime"] = at
    meta = {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1}
    meta["creationTimestamp"] = made
    spec = {"clusterRef": {"name": "main"}, "topic": "orders", "produce": {"records": 10}}
    status = {"conditions": [condition]}
    scene.objects.verifications.put({"metadata": meta, "spec": spec, "status": status})


def end_job(scene: Scene, condition: str) -> None:
    job = scene.kube.find(JOBS, "kafka", "check-driver")
    ended = {"conditions": [{"type": condition, "status": "True"}]}
    scene.kube.put(JOBS, {**job, "status": ended})


async def test_verification_with_deleted_job_ends():
    scene = a_scene()
    await step(scene)
    report(scene, progress_json={"phase": "Producing", "counts": {"sent": 5, "acked": 4}})
    scene.kube.drop(JOBS, "kafka", "check-driver")
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Failed", "Inconclusive")
    assert status.conditions[0].reason == "DriverFailed"
    assert "deleted its Job check-driver" in status.conditions[0].message
    assert status.counts.acked == 4, "what it counted so far stays"
    assert scene.made("jobs") == []


async def test_late_listed_job_is_not_deleted():
    """It was made between the read of the Job and that of the report."""
    scene = a_scene()
    await step(scene)
    report(scene, progress_json={"phase": "Producing", "counts": {}})
    scene.kube.fail = [NotFound(404, "not yet")]
    assert (await step(scene)).phase == "Producing"


async def test_successful_driver_without_verdict_is_inconclusive():
    scene = a_scene()
    await step(scene)
    end_job(scene, "Complete")
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Failed", "Inconclusive")
    assert status.conditions[0].reason == "DriverFailed"


@pytest.mark.parametrize("left", ["job", "report", "nothing"])
async def test_ended_verification_ignores_its_children(
    left: str,
):
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT)
    end_job(scene, "Complete")
    await step(scene)
    shown(scene, "Complete", "Passed")
    scene.term.shown.statuses.clear()  # another operator leads
    if left != "report":
        scene.kube.drop(CONFIG_MAPS, "kafka", "check-report")
    if left != "job":
        scene.kube.drop(JOBS, "kafka", "check-driver")
    before = scene.made("jobs")
    await scene.run(verification.reconcile, KEY)
    assert scene.term.shown.statuses == {}, "it goes on showing what it shows"
    assert scene.made("jobs") == before


async def test_verification_with_namesakes_end_still_runs():
    scene = a_scene()
    shown(scene, "Complete", "Passed", made="2026-11-26T10:00:00Z", at="2026-11-26T09:59:59Z")
    assert (await step(scene)).conditions[0].reason == "DriverStarted"


NO_VERDICT = [
    "",
    "no JSON",
    "[]",
    "null",
    "[" * 100_000,
    '{"verdict": "Splendid"}',
    '{"verdict": ["Passed"]}',
    '{"verdict": "Passed", "timing": {"longestStallMilliseconds": NaN}}',
]


@pytest.mark.parametrize("text", NO_VERDICT)
async def test_unreadable_verdict_is_inconclusive(text: str):
    scene = a_scene()
    await step(scene)
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    scene.kube.put(CONFIG_MAPS, {**found, "data": {"verdict.json": text}})
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Failed", "Inconclusive")
    assert status.conditions[0].reason == "ReportUnreadable"


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "7", '{"phase": 7, "counts": [1]}'])
async def test_unreadable_progress_shows_no_counts(text: str):
    scene = a_scene()
    await step(scene)
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    scene.kube.put(CONFIG_MAPS, {**found, "data": {"progress.json": text}})
    status = await step(scene)
    assert (status.phase, status.counts.sent) == ("Producing", 0)


async def test_verdict_sentence_is_whole_in_condition():
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT | {"message": "all 9 acknowledged records were read back"})
    status = await step(scene)
    assert {one.message for one in status.conditions if one.status == "True"} == {
        "All 9 acknowledged records were read back."
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"examples": 7},
        {"examples": [7, {"topic": "t" * 300}, {"offset": 2**70}]},
        {"counts": {"sent": 2**70}},
        {"counts": {"sent": -1}},
        {"timing": {"startTime": "yesterday"}},
        {"timing": {"startTime": "2026-02-30T00:00:00Z"}},
        {"reason": "r" * 2_000},
        {"reason": ["x"], "message": {"a": 1}},
        {"message": "m" * 100_000},
    ],
)
async def test_odd_report_yields_a_storable_status(
    odd: dict[str, Any],
):
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT | odd)
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Completed", "Passed")
    conditions = merge((), status.conditions, 1, 1_000_000)
    told = msgspec.to_builtins(msgspec.structs.replace(status, conditions=conditions))
    body = scene.kube.put(VERIFICATIONS, verification_body())
    body["status"] = {name: value for name, value in told.items() if value is not None}
    await scene.kube.apply_status(VERIFICATIONS, "kafka", "check", body["status"])


def verification_body() -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Verification",
        "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
        "spec": {
            "clusterRef": {"name": "main"},
            "topic": "orders",
            "produce": {"records": 10},
        },
    }


@pytest.mark.parametrize(
    ("policy", "checks", "starts"),
    [
        ("compact", None, False),
        ("compact,delete", ["NoGap"], False),
        ("compact", ["Order", "NoDuplicate"], True),
        ("delete", None, True),
    ],
)
async def test_what_a_cleaner_takes_is_not_called_lost(
    policy: str, checks: list[str] | None, starts: bool
):
    image = READY
    (topic,) = image.topics.values()
    compacted = msgspec.structs.replace(topic, configs={"cleanup.policy": policy})
    scene = a_scene(msgspec.structs.replace(image, topics={topic.id: compacted}))
    body = verification_body()
    body["spec"]["verify"] = {} if checks is None else {"checks": checks}
    scene.objects.verifications.put(body)
    status = await step(scene)
    assert (scene.made("jobs") == ["check-driver"]) is starts
    if not starts:
        assert (status.phase, status.verdict) == ("Failed", "Inconclusive")
        assert status.conditions[0].reason == "TopicCompacted"


async def test_driver_is_told_that_its_topic_is_compacted():
    """It may have no right to read the topic's configuration."""
    scene = a_scene()
    await step(scene)
    report(scene, progress_json={"phase": "Producing"})
    (topic,) = scene.controller.image.topics.values()
    seen = []
    for policy, ever in (("delete", False), ("compact,delete", True), ("delete", True)):
        changed = msgspec.structs.replace(topic, configs={"cleanup.policy": policy}, compacted=ever)
        scene.controller.image = msgspec.structs.replace(
            scene.controller.image, topics={topic.id: changed}
        )
        await step(scene)
        seen.append(scene.kube.find(CONFIG_MAPS, "kafka", "check-report")["data"].get("compacted"))
    assert seen == [None, "yes", "before"]


async def test_policy_before_the_run_is_not_told():
    image = READY
    (topic,) = image.topics.values()
    before = msgspec.structs.replace(topic, configs={"cleanup.policy": "delete"}, compacted=True)
    scene = a_scene(msgspec.structs.replace(image, topics={topic.id: before}))
    await step(scene)
    report(scene, progress_json={"phase": "Producing"})
    await step(scene)
    assert "compacted" not in scene.kube.find(CONFIG_MAPS, "kafka", "check-report")["data"]
