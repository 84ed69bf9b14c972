"""A VerificationSchedule makes Verifications, and shows their verdicts and trend."""

from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image
from tests.plimsoll_operator.terms import Scene

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import SCHEDULE
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.resources import VERIFICATION_SCHEDULES, VERIFICATIONS
from plimsoll_operator.reconcile.verification import reconcile as verification
from plimsoll_operator.reconcile.verification_schedule import reconcile as schedule
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.gauges import object_gauges
from plimsoll_operator.status.status_writer import Target

KEY = ("kafka", "nightly")
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
MADE = "2026-11-01T00:00:00Z"
DUE_MS = milliseconds("2026-11-01T02:00:00Z")
TEMPLATE = {
    "clusterRef": {"name": "main"},
    "topic": "orders",
    "produce": {"records": 10},
    "allowExisting": True,
}


class Nights(Scene):
    """`events`: what the passes told."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(an_image())
        self.events: list[Occurrence] = []
        self.effects.tell = self.events.append
        meta = {
            "name": "nightly",
            "namespace": "kafka",
            "uid": "s1",
            "generation": 1,
            "creationTimestamp": MADE,
        }
        self.body = {"metadata": meta, "spec": {"schedule": "0 2 * * *", "template": TEMPLATE}}
        self.change(**spec)

    def change(self, **spec: Any) -> None:
        self.body = {**self.body, "spec": {**self.body["spec"], **spec}}
        self.body = self.kube.put(VERIFICATION_SCHEDULES, self.body)
        self.objects.verification_schedules.put(self.body)

    async def at(self, now_ms: int) -> Any:
        """One pass at a time of the API server; the status that it shows."""
        self.kube.said_ms = self.kube.server_ms = now_ms
        await self.run(schedule.reconcile, KEY)
        return self.term.shown.statuses[Target(VERIFICATION_SCHEDULES, *KEY)][1]

    def runs(self) -> list[str]:
        return self.made("verifications")

    def end(self, name: str, verdict: str, at_ms: int, **figures: Any) -> None:
        """A Verification ends."""
        body = self.kube.find(VERIFICATIONS, "kafka", name)
        type_ = "Complete" if verdict == "Passed" else "Failed"
        conditions = [
            {"type": t, "status": s, "reason": "Because", "message": "m",
             "observedGeneration": 1, "lastTransitionTime": timestamp(at_ms)}
            for t, s in ((type_, "True"), ("Ready", "True" if verdict == "Passed" else "False"))
        ]  # fmt: skip
        status = {"phase": "Completed", "verdict": verdict, "conditions": conditions, **figures}
        self.kube.put(VERIFICATIONS, {**body, "status": status})

    def next_term(self) -> "Nights":
        """Another operator leads: it knows what the API server stores."""
        later = Nights()
        shown = self.term.shown.statuses[Target(VERIFICATION_SCHEDULES, *KEY)][1]
        later.kube = later.term.kube = self.kube
        later.body = {**self.body, "status": msgspec.to_builtins(shown)}
        later.objects.verification_schedules.put(later.body)
        return later


async def test_schedule_starts_a_verification_when_due():
    scene = Nights()
    waits = await scene.at(DUE_MS - 1_000)
    assert scene.runs() == []
    assert waits.next_schedule_time == "2026-11-01T02:00:00Z"
    assert (waits.conditions[0].type, waits.conditions[0].reason) == ("Ready", "Scheduled")
    status = await scene.at(DUE_MS)
    assert scene.runs() == ["nightly-20261101-0200"]
    assert status.active == ("nightly-20261101-0200",)
    made = scene.kube.find(VERIFICATIONS, "kafka", "nightly-20261101-0200")
    assert made["spec"] == TEMPLATE
    assert made["metadata"]["labels"][SCHEDULE] == "nightly"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "s1"
    await scene.at(DUE_MS + 1_000)
    assert len(scene.runs()) == 1
    assert scene.events == []


async def test_audit_runs_on_schedule():
    source = {"existingTopics": {"matchPattern": "orders.*"}, "reads": "Disk"}
    template = {"clusterRef": {"name": "main"}, "source": source}
    scene = Nights(template=template)
    await scene.at(DUE_MS)
    (name,) = scene.runs()
    assert scene.kube.find(VERIFICATIONS, "kafka", name)["spec"] == template
    scene.end(name, "Passed", DUE_MS + HOUR_MS)
    status = await scene.at(DUE_MS + 2 * HOUR_MS)
    assert (status.runs[0].verdict, status.runs[0].lost) == ("Passed", None)


async def test_verdicts_trend_and_change_are_shown():
    scene = Nights()
    for night, (verdict, rate) in enumerate([("Passed", 100), ("Passed", 80), ("Violated", 90)]):
        due_ms = DUE_MS + night * DAY_MS
        await scene.at(due_ms)
        name = f"nightly-2026110{night + 1}-0200"
        timing = {"recordsPerSecond": rate, "ackMilliseconds": {"p50": 1, "p99": 5 + night}}
        lost = 3 if verdict == "Violated" else 0
        scene.end(name, verdict, due_ms + HOUR_MS, timing=timing, counts={"lost": lost})
        status = await scene.at(due_ms + HOUR_MS + 5_000)
    assert [(one.verdict, one.lost) for one in status.runs] == [
        ("Violated", 3),
        ("Passed", 0),
        ("Passed", 0),
    ]
    assert (status.trend.passed, status.trend.violated, status.trend.lost) == (2, 1, 3)
    assert status.trend.records_per_second.change_percent == -20.0
    assert (status.trend.p99_milliseconds.last, status.trend.p99_milliseconds.median) == (6, 5)
    passing = next(one for one in status.conditions if one.type == "Passing")
    assert (passing.status, passing.reason) == ("False", "Violated")
    (told,) = scene.events
    assert told.reason == "ScheduledVerdictChanged"
    assert told.warning
    assert "after 2 runs with Passed" in told.message


async def test_next_operator_keeps_rows_and_makes_up_one():
    scene = Nights()
    await scene.at(DUE_MS)
    scene.end("nightly-20261101-0200", "Passed", DUE_MS + HOUR_MS)
    await scene.at(DUE_MS + 2 * HOUR_MS)
    scene.kube.drop(VERIFICATIONS, "kafka", "nightly-20261101-0200")
    later = scene.next_term()
    status = await later.at(DUE_MS + 3 * DAY_MS + HOUR_MS)
    assert [one.name for one in status.runs] == ["nightly-20261101-0200"]
    assert later.runs() == ["nightly-20261104-0200"]
    (told,) = later.events
    assert told.reason == "ScheduledStartMissed"
    assert "3600 s late, and 2 earlier starts" in told.message
    assert status.periods_without_verdict == 3


async def test_running_verification_leaves_out_the_next_start():
    scene = Nights()
    await scene.at(DUE_MS)
    status = await scene.at(DUE_MS + DAY_MS)
    assert scene.runs() == ["nightly-20261101-0200"]
    assert [one.reason for one in scene.events] == ["ScheduledStartSkipped"]
    assert "nightly-20261101-0200 has not ended" in scene.events[0].message
    assert status.periods_without_verdict == 2, "neither has begun"
    await scene.at(DUE_MS + DAY_MS + 5_000)
    assert len(scene.events) == 1


async def test_next_start_replaces_a_running_verification():
    scene = Nights(concurrencyPolicy="Replace")
    await scene.at(DUE_MS)
    status = await scene.at(DUE_MS + DAY_MS)
    assert scene.runs() == ["nightly-20261102-0200"]
    assert status.active == ("nightly-20261102-0200",)


async def test_ended_verifications_are_deleted_by_history():
    scene = Nights(history={"passed": 1})
    for night in range(3):
        await scene.at(DUE_MS + night * DAY_MS)
        at_ms = DUE_MS + night * DAY_MS + HOUR_MS
        scene.end(f"nightly-2026110{night + 1}-0200", "Passed", at_ms)
    status = await scene.at(DUE_MS + 2 * DAY_MS + 2 * HOUR_MS)
    assert scene.runs() == ["nightly-20261102-0200", "nightly-20261103-0200"]
    assert len(status.runs) == 3, "rows outlive their Verifications"


async def test_changed_schedule_promises_no_past_start():
    scene = Nights()
    await scene.at(DUE_MS)
    scene.end("nightly-20261101-0200", "Passed", DUE_MS + HOUR_MS)
    scene.change(schedule="0 12 * * *")
    await scene.at(DUE_MS + 20 * HOUR_MS)
    assert len(scene.runs()) == 1
    await scene.at(DUE_MS + 34 * HOUR_MS)
    assert scene.runs()[1] == "nightly-20261102-1200"


async def test_suspended_time_counts_as_no_missed_period():
    scene = Nights(suspend=True)
    status = await scene.at(DUE_MS + 5 * DAY_MS)
    assert (scene.runs(), status.periods_without_verdict) == ([], 0)
    assert status.conditions[0].reason == "Suspended"
    scene.change(suspend=False)
    status = await scene.at(DUE_MS + 5 * DAY_MS + HOUR_MS)
    assert (scene.runs(), status.periods_without_verdict) == ([], 0)


async def test_last_start_moves_only_with_a_start():
    scene = Nights()
    assert (await scene.at(DUE_MS - 1_000)).last_schedule_time is None
    assert (await scene.at(DUE_MS)).last_schedule_time == timestamp(DUE_MS)
    scene.change(suspend=True)
    later = DUE_MS + 2 * DAY_MS + HOUR_MS
    assert (await scene.at(later)).last_schedule_time == timestamp(DUE_MS)
    scene = scene.next_term()
    await scene.at(later + HOUR_MS)
    scene.change(suspend=False)
    status = await scene.at(later + 2 * HOUR_MS)
    shown = (scene.runs(), status.last_schedule_time)
    assert shown == (["nightly-20261101-0200"], timestamp(DUE_MS))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"schedule": "99 2 * * *"}, "Bad minute"),
        ({"timeZone": "Nowhere"}, "timeZone Nowhere does not exist"),
    ],
)
async def test_invalid_schedule_is_shown(changes, text):
    scene = Nights(**changes)
    status = await scene.at(DUE_MS)
    (ready,) = status.conditions
    assert (ready.status, ready.reason) == ("False", "InvalidSchedule")
    assert text in ready.message


async def test_verification_of_another_owner_is_left_alone():
    scene = Nights()
    meta = {"name": "nightly-20261101-0200", "namespace": "kafka"}
    scene.kube.put(VERIFICATIONS, {"metadata": meta, "spec": TEMPLATE})
    status = await scene.at(DUE_MS)
    assert status.conditions[0].reason == "NameTaken"
    assert status.active == ()


async def test_refused_creation_is_tried_again():
    scene = Nights()
    scene.kube.refuse["create"] = ApiError(500, "away")
    with pytest.raises(Retry):
        await scene.at(DUE_MS)
    scene.kube.refuse.clear()
    await scene.at(DUE_MS + 1_000)
    assert scene.runs() == ["nightly-20261101-0200"]


def test_metric_shows_periods_without_verdict():
    scene = Nights()
    body = {**scene.body, "status": {"periodsWithoutVerdict": 2}}
    scene.objects.verification_schedules.put(body)
    name = "plimsoll_verification_schedule_periods_without_verdict"
    metric = next(one for one in object_gauges(scene.objects) if one.name == name)
    (sample,) = metric.samples
    assert (sample.labels, sample.value) == ({"namespace": "kafka", "name": "nightly"}, 2)


@pytest.mark.parametrize(("ttl", "gone"), [("1h", True), ("2h", False), (None, False)])
async def test_ended_verification_is_deleted_after_ttl(ttl, gone):
    scene = Nights()
    scene.body = scene.kube.put(
        VERIFICATIONS,
        {
            "metadata": {"name": "check", "namespace": "kafka", "generation": 1},
            "spec": {**TEMPLATE, **({"ttlAfterFinished": ttl} if ttl else {})},
        },
    )
    scene.end("check", "Violated", DUE_MS)
    scene.objects.verifications.put(scene.kube.find(VERIFICATIONS, "kafka", "check"))
    scene.kube.said_ms = scene.kube.server_ms = DUE_MS + HOUR_MS
    await scene.run(verification.reconcile, ("kafka", "check"))
    assert scene.runs() == ([] if gone else ["check"])
    assert bool(scene.work) == (ttl == "2h"), "it looks again"
