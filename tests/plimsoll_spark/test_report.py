"""The report: one page that loads nothing, fits in a ConfigMap, and shows the stall."""

from html.parser import HTMLParser
from xml.etree import ElementTree

from plimsoll_spark import report
from plimsoll_spark.checks import BINS_MAX
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.svg import nice_ceiling
from plimsoll_spark.values import (
    Bin,
    Counts,
    Example,
    Findings,
    Latency,
    Outcome,
    Stall,
    Timing,
)

SETTINGS = Settings(
    name="soak", bootstrap="b", topic="<orders>", produce=Produce(records=1_000_000)
)
T0 = 1_795_000_000_000.0


def outcome(counts: Counts, examples: tuple[Example, ...] = ()) -> Outcome:
    return Outcome(
        verdict="Violated",
        reason="RecordsLost",
        message="3 acked records are not in the log",
        counts=counts,
        timing=Timing(start_time="2026-11-20T15:00:00Z", completion_time="2026-11-20T15:01:00Z"),
        examples=examples,
    )


def findings(*, partitions: int, bins: int, bin_ms: int = 250) -> Findings:
    return Findings(
        counts=Counts(),
        latency=Latency(p50=1, p90=2, p99=9, p999=20, worst=812),
        stalls=tuple(
            Stall(partition=p, milliseconds=700.0 + p, from_ms=T0 + 1000, to_ms=T0 + 1700 + p)
            for p in range(partitions)
        ),
        pace=tuple(
            Bin(start_ms=T0 + n * bin_ms, acked=5_000 + n, p50=1.23, p99=9.87, worst=812.25)
            for n in range(bins)
        ),
        bin_ms=bin_ms,
        examples=(),
    )


def test_report_of_large_run_fits_config_map() -> None:
    examples = tuple(
        Example(topic="t" * 249, partition=p, offset=p, kind="lost") for p in range(20)
    )
    page = report.render(
        SETTINGS, outcome(Counts(sent=10**9), examples), findings(partitions=5_000, bins=BINS_MAX)
    )
    assert len(page.encode()) < report.MAX_BYTES


def test_page_loads_nothing_and_escapes_what_users_named() -> None:
    page = report.render(SETTINGS, outcome(Counts()), findings(partitions=3, bins=9))
    assert "&lt;orders&gt;" in page
    assert "<orders>" not in page

    class Loads(HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [tag for name, _ in attrs if name in ("src", "href")]

    parser = Loads()
    parser.feed(page)
    assert parser.found == []


def test_plots_are_well_formed_with_longest_stall() -> None:
    page = report.render(SETTINGS, outcome(Counts(lost=3)), findings(partitions=15, bins=40))
    drawn = page.split("<svg")[1:]
    assert len(drawn) == 3
    for part in drawn:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
    assert "longest: partition 14, 714 ms" in page
    assert '<div class="bad"><b>3</b>acked and lost</div>' in page


def test_run_that_broke_has_a_page_without_plots() -> None:
    page = report.render(SETTINGS, outcome(Counts(sent=5)), None)
    assert "<svg" not in page
    assert "3 acked records are not in the log" in page


def test_unreadable_batch_is_shown_with_its_broker() -> None:
    found = Example(topic="t", partition=0, offset=7, kind="unreadable", brokers=(2,))
    page = report.render(SETTINGS, outcome(Counts(lost=3), (found,)), None)
    assert '<td class="kind">unreadable on broker 2</td>' in page


def test_axis_ends_at_a_round_number() -> None:
    assert [nice_ceiling(v) for v in (0, 0.7, 13, 2_400, 9_999)] == [1, 1, 20, 2_500, 10_000]
