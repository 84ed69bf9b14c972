"""A Verification runs once, when its topic serves, and shows what its driver reports."""

import json
from typing import Any

import pytest
from tests.controller.builders import an_image, isr_changed, replay, with_topic
from tests.controller.terms import Scene

from plimsoll_operator.handlers import verification
from plimsoll_operator.kube.resources import CONFIG_MAPS, JOBS
from plimsoll_operator.reconcile.queue import Retry

KEY = ("kafka", "check")
READY = with_topic(an_image(), ((0, 1, 2),))
VERDICT = {
    "verdict": "Passed",
    "reason": "Passed",
    "message": "All checks passed.",
    "counts": {"sent": 10, "acked": 10, "read": 10, "failed": 0},
    "timing": {"startTime": "2026-11-20T15:00:00Z", "longestStallMilliseconds": 740.5},
    "examples": [],
}


def a_scene(image: Any = READY, spark_image: str = "s:1") -> Scene:
    scene = Scene(image)
    scene.term.options = type(scene.term.options)(
        identity="x", broker_image="b", controllers=("c:1",), spark_image=spark_image
    )
    scene.objects.verifications.put(
        {
            "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
            "spec": {
                "clusterRef": {"name": "main"},
                "topic": "orders",
                "produce": {"records": 10},
            },
        }
    )
    return scene


def report(scene: Scene, **files: Any) -> None:
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    data = {name.replace("_", "."): json.dumps(content) for name, content in files.items()}
    scene.kube.put(CONFIG_MAPS, {**found, "data": data})


async def step(scene: Scene) -> Any:
    await verification.reconcile(scene.term, KEY)
    return scene.term.verifications[KEY]


async def test_driver_starts_when_the_topic_serves():
    scene = a_scene()
    status = await step(scene)
    assert (status.phase, status.conditions[0].reason) == ("Pending", "DriverStarted")
    assert scene.made("jobs") == ["check-driver"]
    assert scene.made("roles") == ["check-driver"]


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (an_image(), "TopicNotFound"),
        (replay(READY, isr_changed(0, (), leader=None, leader_epoch_step=1)), "TopicNotServing"),
    ],
)
async def test_driver_waits_for_its_topic(image, reason):
    scene = a_scene(image)
    assert (await step(scene)).conditions[0].reason == reason
    assert scene.made("jobs") == []


async def test_without_an_image_it_says_how_to_get_one():
    status = await step(a_scene(spark_image=""))
    assert status.conditions[0].reason == "VerificationDisabled"
    assert "verification.enabled" in status.conditions[0].message


async def test_progress_is_shown():
    scene = a_scene()
    await step(scene)
    report(scene, progress_json={"phase": "Verifying", "counts": {"sent": 5, "acked": 4}})
    status = await step(scene)
    assert (status.phase, status.counts.acked, status.verdict) == ("Verifying", 4, "")


async def test_verdict_is_final_and_no_second_run_is_started():
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT)
    scene.kube.drop(JOBS, "kafka", "check-driver")
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Completed", "Passed")
    assert {c.type: c.status for c in status.conditions} == {"Complete": "True", "Ready": "True"}
    assert status.timing.longest_stall_milliseconds == 740.5
    assert scene.made("jobs") == []


async def test_violation_completes_the_run_and_fails_it():
    scene = a_scene()
    await step(scene)
    report(scene, verdict_json=VERDICT | {"verdict": "Violated", "reason": "RecordsLost"})
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Completed", "Violated")
    assert [(c.type, c.reason) for c in status.conditions if c.status == "True"] == [
        ("Failed", "RecordsLost")
    ]


async def test_driver_that_dies_without_a_word_is_inconclusive():
    scene = a_scene()
    await step(scene)
    job = scene.kube.find(JOBS, "kafka", "check-driver")
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    scene.kube.put(JOBS, {**job, "status": failed})
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Failed", "Inconclusive")


async def test_report_of_an_earlier_verification_is_waited_out():
    scene = a_scene()
    meta = {
        "name": "check-report",
        "namespace": "kafka",
        "ownerReferences": [{"uid": "an-earlier-uid"}],
    }
    scene.kube.put(CONFIG_MAPS, {"metadata": meta, "data": {"verdict.json": json.dumps(VERDICT)}})
    with pytest.raises(Retry, match="earlier Verification"):
        await verification.reconcile(scene.term, KEY)
