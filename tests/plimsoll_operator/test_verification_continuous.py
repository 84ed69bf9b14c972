"""A continuous Verification shows a rolling verdict, keeps a violation until it is acknowledged,
and tells each change."""

from __future__ import annotations

import json
from typing import Any

from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_verification_handler import KEY, VERDICT, a_scene, report, step

from plimsoll_operator.api.labels import ACKNOWLEDGE_VIOLATION
from plimsoll_operator.kube.resources import CONFIG_MAPS, JOBS
from plimsoll_operator.reconcile.verification import reconcile as verification

TOLD: dict[int, list[Any]] = {}
"""Of each scene, the Events that it told."""
LOSS = {"topic": "orders", "partition": 2, "offset": 17, "kind": "lost"}


def continuous(scene: Scene, *, acknowledged: str = "", **more: Any) -> None:
    scene.objects.verifications.put(
        {
            "metadata": {
                "name": "check",
                "namespace": "kafka",
                "uid": "v1",
                "generation": 1,
                "annotations": {ACKNOWLEDGE_VIOLATION: acknowledged},
            },
            "spec": {
                "clusterRef": {"name": "main"},
                "topic": "orders",
                "mode": "Continuous",
                "produce": {"recordsPerSecond": 100},
                **more,
            },
        }
    )


def window(verdict: str, minute: int) -> dict[str, Any]:
    return {
        "start": f"2026-11-20T15:{minute - 1:02}:00Z",
        "end": f"2026-11-20T15:{minute:02}:00Z",
        "verdict": verdict,
        "reason": {"Passed": "AllChecksPassed", "Violated": "RecordsLost"}.get(
            verdict, "NotJudged"
        ),
        "message": "2 acked records are not in the log",
    }


def tell(scene: Scene, newest: Any = None, violated: Any = None, **more: Any) -> None:
    rolling = {"windowSeconds": 60, "since": "2026-11-20T15:00:00Z", "drivers": 1, **more}
    rolling |= {"window": newest, "lastViolation": violated}
    report(scene, progress_json={"phase": "Running", "counts": {"acked": 9}, "rolling": rolling})


def told(scene: Scene) -> list[str]:
    return [one.message for one in TOLD[id(scene)] if one.reason == "ContinuousVerdictChanged"]


async def a_run(**more: Any) -> Scene:
    scene = a_scene()
    TOLD[id(scene)] = []
    scene.effects.tell = TOLD[id(scene)].append
    continuous(scene, **more)
    await step(scene)
    return scene


async def test_continuous_driver_has_no_end() -> None:
    scene = await a_run()
    job = scene.kube.find(JOBS, "kafka", "check-driver")["spec"]
    assert "activeDeadlineSeconds" not in job
    assert job["backoffLimit"] >= 1_000
    config = scene.kube.find(CONFIG_MAPS, "kafka", "check-config")["data"]["verification.json"]
    stated = json.loads(config)
    assert (stated["mode"], stated["window"], stated["deadlineSeconds"]) == ("Continuous", "1m", 0)


async def test_deadline_bounds_a_continuous_job() -> None:
    scene = await a_run(deadlineSeconds=600)
    job = scene.kube.find(JOBS, "kafka", "check-driver")["spec"]
    assert job["activeDeadlineSeconds"] > 600


async def test_run_without_window_is_not_ready() -> None:
    scene = await a_run()
    tell(scene)
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Running", "")
    assert status.conditions[0].status == "False"
    assert told(scene) == []


async def test_passed_window_says_so_far() -> None:
    scene = await a_run()
    tell(scene, window("Passed", 1), passed=1)
    status = await step(scene)
    assert (status.phase, status.verdict, status.continuous.passed) == ("Running", "Passed", 1)
    assert status.conditions[0].status == "True"
    assert status.conditions[0].message.startswith("Passed so far.")
    tell(scene, window("Passed", 2), passed=2)
    await step(scene)
    assert len(told(scene)) == 1, "a verdict that stays is told once"


async def test_violation_stays_until_acknowledged() -> None:
    scene = await a_run()
    tell(scene, window("Passed", 1))
    await step(scene)
    bad = window("Violated", 2)
    tell(scene, bad, bad, lastLoss=LOSS, lastLossTime=bad["end"])
    status = await step(scene)
    assert (status.phase, status.verdict) == ("Running", "Violated")
    assert status.conditions[0].reason == "RecordsLost"
    assert (status.continuous.last_loss.partition, status.continuous.last_loss.offset) == (2, 17)
    tell(scene, window("Passed", 3), bad)
    status = await step(scene)
    assert status.verdict == "Violated"
    assert f"{ACKNOWLEDGE_VIOLATION}={bad['end']}" in status.conditions[0].message
    assert [": Violated." in one for one in told(scene)] == [False, True]
    assert status.continuous.acknowledged is None
    continuous(scene, acknowledged=bad["end"])
    status = await step(scene)
    assert (status.verdict, status.continuous.acknowledged) == ("Passed", bad["end"])
    assert f"all violations up to {bad['end']}, so" in status.conditions[0].message
    noted = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")["data"]
    assert noted["acknowledged"] == bad["end"]
    assert [": Violated." in one for one in told(scene)] == [False, True, False]


async def test_second_violation_is_told_too() -> None:
    scene = await a_run()
    for minute in (1, 2):
        bad = window("Violated", minute)
        tell(scene, bad, bad)
        await step(scene)
        await step(scene)
    assert len(told(scene)) == 2


async def test_earlier_acknowledgement_covers_no_later_loss() -> None:
    scene = await a_run(acknowledged="2026-11-20T15:01:00Z")
    bad = window("Violated", 2)
    tell(scene, bad, bad)
    status = await step(scene)
    assert (status.verdict, status.continuous.acknowledged) == ("Violated", None)
    assert "acknowledged" not in scene.kube.find(CONFIG_MAPS, "kafka", "check-report")["data"]


async def test_ended_run_keeps_its_windows() -> None:
    scene = await a_run(deadlineSeconds=60)
    tell(scene, window("Passed", 1), passed=1)
    await step(scene)
    found = scene.kube.find(CONFIG_MAPS, "kafka", "check-report")
    data = {**found["data"], "verdict.json": json.dumps(VERDICT)}
    scene.kube.put(CONFIG_MAPS, {**found, "data": data})
    status = await step(scene)
    assert (status.phase, status.verdict, status.continuous.passed) == ("Completed", "Passed", 1)


async def test_recent_windows_are_shown_with_figures() -> None:
    scene = await a_run()
    rows = [window("Violated", 2), window("Passed", 1)]
    rows = [{**one, "acked": 600, "recordsPerSecond": 10.5, "p99Milliseconds": 7} for one in rows]
    tell(scene, rows[0], rows[0], recent=rows, behind=3)
    state = (await step(scene)).continuous
    assert [one.verdict for one in state.recent] == ["Violated", "Passed"]
    newest = state.recent[0]
    assert (newest.acked, newest.records_per_second, newest.p99_milliseconds) == (600, 10.5, 7)
    assert (newest.end, state.behind) == ("2026-11-20T15:02:00Z", 3)


async def test_malformed_report_is_left_out() -> None:
    scene = await a_run()
    strange = {"end": 5, "verdict": "Splendid", "message": 7, "reason": "no reason"}
    more = {"recent": [7, {"acked": "all", "verdict": 1}]}
    tell(scene, strange, drivers="many", lastLoss={"offset": 2**70}, lastLossTime="today", **more)
    status = await step(scene)
    assert [one.verdict for one in status.continuous.recent] == ["Inconclusive"]
    assert (status.verdict, status.continuous.window.message) == ("Inconclusive", "")
    assert status.continuous.drivers == 0
    await scene.run(verification.reconcile, KEY)
