"""When a VerificationSchedule starts Verifications, and which it deletes."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.due_times import BadSchedule, DueTimes
from plimsoll_operator.api.meta import LocalClusterRef
from plimsoll_operator.api.verification import Produce, VerificationSpec
from plimsoll_operator.api.verification_schedule import History, VerificationScheduleSpec
from plimsoll_operator.reconcile.verification_schedule.schedule_plan import (
    Started,
    periods_without_verdict,
    plan,
)

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
FIRST_MS = milliseconds("2026-11-01T02:00:00Z")
"""A due time of `nightly`."""


def nightly(**changes: Any) -> VerificationScheduleSpec:
    template = VerificationSpec(
        cluster_ref=LocalClusterRef(name="main"),
        topic="orders",
        produce=Produce(records=10),
        allow_existing=True,
    )
    return VerificationScheduleSpec(**{"schedule": "0 2 * * *", "template": template, **changes})


def ran(night: int, verdict: str = "Passed", **changes: Any) -> Started:
    """A run of one night that ended an hour later."""
    due_ms = FIRST_MS + night * DAY_MS
    found = Started(
        name=f"n{night}", uid=f"u{night}", due_ms=due_ms, ended_ms=due_ms + HOUR_MS, verdict=verdict
    )
    return replace(found, **changes)


def running(night: int, *, begun: bool = True) -> Started:
    return ran(night, "", ended_ms=None, begun=begun)


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "due"),
    [
        ("0 2 * * *", "UTC", "2026-11-01T02:00:00Z", "2026-11-02T02:00:00Z"),
        ("*/15 * * * *", "UTC", "2026-11-01T02:01:00Z", "2026-11-01T02:15:00Z"),
        ("0 2 * * *", "Europe/Berlin", "2026-11-01T00:00:00Z", "2026-11-01T01:00:00Z"),
        # 02:30 does not exist in this night: the start comes right after the skipped hour.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        # 02:30 comes twice: one start.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ("0 0 29 2 *", "UTC", "2026-11-01T00:00:00Z", "2028-02-29T00:00:00Z"),
    ],
)
def test_due_time_follows_schedule_and_zone(schedule, zone, after, due):
    found = DueTimes(schedule, zone)
    assert found.next_after(milliseconds(after)) == milliseconds(due)
    assert found.newest_until(milliseconds(due)) == milliseconds(due)
    assert found.newest_until(milliseconds(due) + 500) == milliseconds(due)


@pytest.mark.parametrize(
    ("schedule", "zone", "text"),
    [
        ("61 2 * * *", "UTC", "Bad minute"),
        ("0 2 * * *", "Mars/Olympus", "Mars/Olympus"),
        ("0 2 * * *", "../../etc/passwd", "does not exist"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("a b c d e", "UTC", "no cron expression"),
        ("61 2 * * *", "Nowhere", "timeZone Nowhere.*Bad minute"),
    ],
)
def test_bad_schedule_is_refused_with_its_reason(schedule, zone, text):
    with pytest.raises(BadSchedule, match=text):
        DueTimes(schedule, zone).check(FIRST_MS)


def test_start_comes_at_its_due_time():
    early = plan(nightly(), [], FIRST_MS - DAY_MS, FIRST_MS - 1)
    assert (early.start_ms, early.next_ms) == (None, FIRST_MS)
    due = plan(nightly(), [], FIRST_MS - DAY_MS, FIRST_MS)
    assert (due.start_ms, due.missed, due.handled_ms) == (FIRST_MS, 0, FIRST_MS)
    assert due.next_ms == FIRST_MS + DAY_MS
    again = plan(nightly(), [], due.handled_ms, FIRST_MS + 1)
    assert again.start_ms is None


def test_start_is_known_from_its_verification():
    assert plan(nightly(), [ran(0)], 0, FIRST_MS + HOUR_MS).start_ms is None


def test_one_missed_start_is_made_up():
    now_ms = FIRST_MS + 3 * DAY_MS + HOUR_MS
    found = plan(nightly(), [ran(0)], FIRST_MS, now_ms)
    assert found.start_ms == FIRST_MS + 3 * DAY_MS
    assert (found.missed, found.late_ms) == (2, HOUR_MS)


def test_suspended_schedule_starts_and_makes_up_nothing():
    found = plan(nightly(suspend=True), [], FIRST_MS - DAY_MS, FIRST_MS)
    assert (found.start_ms, found.next_ms, found.missed) == (None, None, 0)
    resumed = plan(nightly(), [], found.handled_ms, FIRST_MS + HOUR_MS)
    assert resumed.start_ms is None


def test_verification_of_the_future_stops_no_start():
    far = ran(900)
    assert plan(nightly(), [far], FIRST_MS - 1, FIRST_MS).start_ms == FIRST_MS


@pytest.mark.parametrize(
    ("policy", "starts", "in_the_way", "deleted"),
    [
        (None, False, ("n0",), []),
        ("Forbid", False, ("n0",), []),
        ("Replace", True, (), ["n0"]),
        ("Allow", True, (), []),
    ],
)
def test_running_verification_meets_the_next_start(policy, starts, in_the_way, deleted):
    spec = nightly(concurrency_policy=policy)
    found = plan(spec, [running(0)], FIRST_MS, FIRST_MS + DAY_MS)
    assert (found.start_ms is not None, found.in_the_way) == (starts, in_the_way)
    assert [one.name for one, _ in found.delete] == deleted
    assert found.handled_ms == FIRST_MS + DAY_MS, "a start that is left out is dealt with"


def test_history_keeps_so_many_of_each_verdict():
    spec = nightly(history=History(passed=2, violated=1), ttl="365d")
    runs = [ran(n, "Violated" if n % 3 == 0 else "Passed") for n in range(9)]
    found = plan(spec, runs, FIRST_MS, FIRST_MS + 9 * DAY_MS - HOUR_MS)
    kept = {one.name for one in runs} - {one.name for one, _ in found.delete}
    assert kept == {"n8", "n7", "n5", "n6"}, "the newest one does not count"


def test_ttl_deletes_old_runs_but_no_violation():
    spec = nightly(ttl="3d")
    runs = [ran(0, "Violated"), ran(1), ran(2, "Inconclusive"), ran(6), ran(7)]
    found = plan(spec, runs, FIRST_MS + 7 * DAY_MS, FIRST_MS + 8 * DAY_MS - HOUR_MS)
    assert [one.name for one, _ in found.delete] == ["n2", "n1"]
    alone = plan(spec, [ran(0)], FIRST_MS, FIRST_MS + 30 * DAY_MS)
    assert alone.delete == (), "the newest one stays"


@pytest.mark.parametrize(
    ("runs", "periods"),
    [
        ([], 4),
        ([ran(3)], 0),
        ([ran(2)], 1),
        ([ran(0), ran(1, "Inconclusive"), ran(2, "Inconclusive")], 3),
        ([ran(1, "Violated"), running(3)], 1),
        ([ran(1, "Violated"), running(3, begun=False)], 2),
        ([ran(2), running(3)], 0),
    ],
)
def test_periods_without_verdict_are_counted(runs, periods):
    now_ms = FIRST_MS + 3 * DAY_MS + HOUR_MS
    assert periods_without_verdict(nightly(), runs, FIRST_MS - 1, now_ms) == periods
    assert periods_without_verdict(nightly(suspend=True), runs, FIRST_MS - 1, now_ms) == 0


def test_times_are_shown_to_the_second():
    assert timestamp(FIRST_MS) == "2026-11-01T02:00:00Z"
