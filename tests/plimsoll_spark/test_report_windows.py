"""The report of a continuous run: the verdict of each window, with drills and drivers marked."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

from tests.plimsoll_spark.test_report import outcome

from plimsoll_spark import report
from plimsoll_spark.report_windows import Windows, covers
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.values import Counts, EndedWindow, FaultMark

SETTINGS = Settings(
    name="canary",
    bootstrap="b",
    topic="orders",
    mode="Continuous",
    produce=Produce(records_per_second=100),
)
T0_S = 1_795_000_000


def stamp(minute: float) -> str:
    return datetime.fromtimestamp(T0_S + 60 * minute, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(minute: int, verdict: str = "Passed") -> EndedWindow:
    return EndedWindow(
        start=stamp(minute),
        end=stamp(minute + 1),
        verdict=verdict,
        reason={"Violated": "RecordsLost"}.get(verdict, "AllChecksPassed"),
        acked=6_000,
        records_per_second=100.0,
        p99_milliseconds=4.5,
    )


def fault(minute: float, result: str = "Injected") -> FaultMark:
    return FaultMark(
        fault="KillBroker", at_ms=1000 * (T0_S + 60 * minute), result=result, message="<b>"
    )


def page(found: Windows) -> str:
    return report.render(SETTINGS, outcome(Counts()), None, found)


def test_acknowledged_violation_stands_below_the_verdict() -> None:
    rows = (ended(0, "Violated"), ended(1))
    line = f"Violations are acknowledged until {stamp(1)}"
    assert line in page(Windows(ended=rows, acknowledged=stamp(1)))
    assert "acknowledged" not in page(Windows(ended=rows))


def test_later_violation_is_not_covered() -> None:
    assert covers(stamp(1), stamp(1))
    assert not covers(stamp(1), stamp(2))
    assert not covers("soon", stamp(1))
    assert not covers(None, stamp(1))


def test_each_window_has_a_span_of_its_verdict() -> None:
    rows = tuple(ended(n, "Violated" if n == 30 else "Passed") for n in range(60))
    text = page(Windows(ended=rows))
    assert text.count('class="span Passed"') == 59
    assert text.count('class="span Violated"') == 1
    assert "continuous, a verdict every 1m" in text
    listed = [f"<td>{stamp(end)[:-1].replace('T', ' ')}</td>" in text for end in (31, 20, 60)]
    assert listed == [True, False, True], "a violated window stays in the table"
    for part in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")


def test_injected_faults_and_new_drivers_are_marked() -> None:
    rows = tuple(ended(n) for n in range(5))
    faults = (fault(1.5), fault(2.5, "Refused"), fault(-5))
    text = page(Windows(ended=rows, drivers=(stamp(-1), stamp(3)), earlier=2, faults=faults))
    plots = len(text.split("<svg")) - 1
    assert text.count("<title>injected fault KillBroker: &lt;b&gt;</title>") == plots == 3
    assert text.count("<title>driver process 4 continued the run</title>") == plots


def test_run_without_windows_has_no_plot() -> None:
    assert "<svg" not in page(Windows(ended=()))


def test_longest_history_fits_a_config_map() -> None:
    rows = tuple(ended(n, ("Passed", "Violated", "Inconclusive")[n % 3]) for n in range(240))
    drivers = tuple(stamp(2 * n) for n in range(100))
    faults = tuple(fault(n) for n in range(20))
    assert len(page(Windows(ended=rows, drivers=drivers, faults=faults)).encode()) < 300_000
