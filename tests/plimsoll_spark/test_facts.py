"""A report says what ran, what was done to the cluster, and how the run before it went."""

import json
import re
from html import unescape

from msgspec.structs import replace
from tests.plimsoll_spark.test_report import SETTINGS, T0, findings, outcome

from plimsoll_spark import report
from plimsoll_spark.facts import PARTITIONS_MAX, facts, marks
from plimsoll_spark.job_watch import as_json
from plimsoll_spark.values import Counts, Latency, Outcome, PartitionPace, Previous

DRILL = {
    "beganMs": T0,
    "steps": [
        {"number": 0, "fault": "KillBroker", "atMs": T0 + 2_000, "result": "Injected",
         "untilMs": T0 + 12_000, "message": "Broker 1: pod main-broker-1-0 was deleted."},
        {"number": 1, "fault": "RollAll", "atMs": T0 + 3_000, "result": "Refused",
         "message": "The operator may <not>."},
    ],
}  # fmt: skip
BEFORE = Previous(
    name="nightly-1",
    verdict="Passed",
    records_per_second=10_000.0,
    p99_milliseconds=8.0,
    longest_stall_milliseconds=500.0,
    lost=0,
)


def shown() -> tuple[Outcome, str]:
    """The outcome of a run with a drill, and its page."""
    paces = tuple(
        PartitionPace(partition=p, acked=1_000 + p, p99=9.5, longest_stall=700.0 + p)
        for p in range(3)
    )
    found = replace(findings(partitions=3, bins=20), partitions=paces)
    settings = replace(SETTINGS, previous=BEFORE)
    known = facts(settings, found, "abc-id", json.dumps(DRILL))
    timing = replace(
        outcome(Counts()).timing,
        records_per_second=20_000.0,
        longest_stall_milliseconds=702.0,
        ack_milliseconds=Latency(p99=9.0),
    )
    made = replace(outcome(Counts(lost=3)), facts=known, timing=timing)
    return made, report.render(settings, made, found)


def test_facts_of_a_run_are_on_the_page() -> None:
    _, page = shown()
    for text in (
        "checks: NoLoss, NoDuplicate, Order, NoGap",
        "brokers at b",
        "topic id abc-id",
        "librdkafka ",
        "Compared with nightly-1",
        "+12.5 %",
        "11:06:52 UTC",
    ):
        assert text in page, text
    assert "The operator may &lt;not&gt;." in page


def test_injected_faults_are_marked_in_both_plots() -> None:
    _, page = shown()
    assert page.count('<g class="mark">') == 2, "the refused one is in the table alone"
    assert page.count("<title>injected fault KillBroker: Broker 1") == 2


def test_page_and_json_state_the_same_facts() -> None:
    made, page = shown()
    stated = json.loads(as_json(made))["facts"]
    text = unescape(re.sub(r"<[^>]+>", " ", page))
    for fault in stated["faults"]:
        assert fault["fault"] in text
        assert fault["result"] in text
        assert fault["message"] in unescape(page)
    for row in stated["partitions"]:
        assert f"{row['acked']:,}" in text
        assert f"{row['longestStall']:g}" in text
    for name, number in stated["versions"].items():
        assert f"{name} {number}" in text
    assert f"{stated['megabytesPerSecond']:,g} MB" in text
    assert f"{stated['before']['recordsPerSecond']:,g}" in text


def test_table_of_partitions_is_bounded() -> None:
    paces = tuple(
        PartitionPace(partition=p, acked=1, p99=1, longest_stall=float(p)) for p in range(5_000)
    )
    found = replace(findings(partitions=5_000, bins=9), partitions=paces)
    known = facts(SETTINGS, found, None, None)
    assert [one.partition for one in known.partitions] == list(range(4_800, 5_000))
    assert known.partitions_left_out == 5_000 - PARTITIONS_MAX
    page = report.render(SETTINGS, replace(outcome(Counts()), facts=known), found)
    assert len(page.encode()) < report.MAX_BYTES


def test_unreadable_record_of_a_drill_gives_no_fault() -> None:
    late = {"fault": "RollAll", "atMs": 9_999_999_999_999_999}
    assert marks("no JSON") == marks(None) == marks(json.dumps({"steps": [late]})) == ()
