"""When maintenance windows are open, until when, and what never opens."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.maintenance_windows import HoursClock, bad_window, hours_at

BERLIN = {"schedule": "0 2 * * *", "timeZone": "Europe/Berlin", "duration": "2h"}
SATURDAYS = {"schedule": "0 2 * * 6", "duration": "4h"}


def span(at: str, *windows: dict[str, Any]) -> Any:
    return hours_at(a_cluster(maintenance={"windows": list(windows)}), milliseconds(at))


def open_until(at: str, *windows: dict[str, Any]) -> str | None:
    found = span(at, *windows).closes_ms
    return None if found is None else timestamp(found)


def test_cluster_without_windows_is_always_open():
    hours = hours_at(a_cluster(), milliseconds("2026-11-27T12:00:00Z")).hours
    assert (hours.window_open, hours.paused, hours.opens) == (True, False, "")


@pytest.mark.parametrize(
    ("at", "closes"),
    [
        ("2026-11-28T01:59:59Z", None),
        ("2026-11-28T02:00:00Z", "2026-11-28T06:00:00Z"),
        ("2026-11-28T05:59:59Z", "2026-11-28T06:00:00Z"),
        ("2026-11-28T06:00:00Z", None),
    ],
)
def test_window_begins_inclusive_and_ends_exclusive(at, closes):
    assert open_until(at, SATURDAYS) == closes


@pytest.mark.parametrize(
    ("at", "closes"),
    [
        # Winter and summer time: 2 o'clock in Berlin is 1 and 0 o'clock UTC.
        ("2026-11-28T01:00:00Z", "2026-11-28T03:00:00Z"),
        ("2026-07-01T00:00:00Z", "2026-07-01T02:00:00Z"),
        # 2026-03-29: two o'clock does not exist; the window begins at three, 01:00 UTC.
        ("2026-03-29T00:59:59Z", None),
        ("2026-03-29T01:00:00Z", "2026-03-29T03:00:00Z"),
        # 2026-10-25: two o'clock comes twice; the window begins once and lasts two real hours.
        ("2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"),
        ("2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"),
        ("2026-10-25T02:00:00Z", None),
    ],
)
def test_window_keeps_its_length_when_clocks_change(at, closes):
    assert open_until(at, BERLIN) == closes


@pytest.mark.parametrize(
    ("at", "opens"),
    [
        ("2027-02-28T12:00:00Z", "2028-02-29T00:00:00Z"),
        ("2028-02-29T01:00:00Z", "2032-02-29T00:00:00Z"),
    ],
)
def test_window_of_leap_days_waits_for_them(at, opens):
    leap = {"schedule": "0 0 29 2 *", "duration": "1h"}
    assert span(at, leap).hours.opens == f"the maintenance window opens at {opens}"


def test_windows_that_overlap_close_with_the_last():
    late = {"schedule": "0 5 * * 6", "duration": "3h"}
    assert open_until("2026-11-28T05:30:00Z", SATURDAYS, late) == "2026-11-28T08:00:00Z"
    assert span("2026-11-28T08:00:00Z", SATURDAYS, late).hours.opens.endswith(
        "2026-12-05T02:00:00Z"
    )


def test_window_longer_than_its_period_never_closes():
    daily = {"schedule": "0 2 * * *", "duration": "2d"}
    for hour in range(24):
        assert span(f"2026-11-28T{hour:02}:30:00Z", daily).hours.window_open


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"schedule": "0 2 30 2 *"}, "Bad day-of-month"),
        ({"schedule": "0 2 * * 9"}, "no cron expression"),
        ({"timeZone": "Europe/Nowhere"}, "The schedule's timeZone Europe/Nowhere does not exist."),
    ],
)
def test_invalid_window_stays_closed_and_is_named(window, said):
    cluster = a_cluster(maintenance={"windows": [{**SATURDAYS, **window}]})
    now_ms = milliseconds("2026-11-28T03:00:00Z")
    hours = hours_at(cluster, now_ms).hours
    assert not hours.window_open
    assert hours.opens == (
        "a window of spec.maintenance.windows is corrected (see the condition Stalled)"
    )
    text = bad_window(cluster, now_ms)
    assert text.startswith("spec.maintenance.windows[0] never opens.")
    assert said in text


def test_hours_clock_follows_time_and_spec():
    now = {"ms": milliseconds("2026-11-28T01:59:59Z")}
    shown = {"cluster": a_cluster(maintenance={"windows": [SATURDAYS]})}
    clock = HoursClock(lambda: shown["cluster"], lambda: now["ms"])
    assert not clock().window_open
    now["ms"] += 1_000
    assert clock().window_open
    now["ms"] = milliseconds("2026-11-28T06:00:00Z")
    assert not clock().window_open
    now["ms"] = milliseconds("2026-11-28T05:00:00Z")  # the host's clock was set back
    assert clock().window_open
    shown["cluster"] = a_cluster(paused=True)
    assert clock().paused
