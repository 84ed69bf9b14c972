"""The end of `make test` says what failed and why, in the few lines that are kept of it."""

from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from dev import tier_summary
from dev.tier_summary import Failure, Outcome, judge, summary

ENDING = "0 passed, {} failed, 0 skipped"


def report_of(tmp_path: Path, messages: list[str]) -> Path:
    cases = "".join(
        f'<testcase classname="tests.a" name="test_{number}" time="1">'
        f"<failure message={quoteattr(message)}>all of it</failure></testcase>"
        for number, message in enumerate(messages)
    )
    report = tmp_path / "report.xml"
    count = len(messages)
    report.write_text(f'<testsuite tests="{count}" failures="{count}">{cases}</testsuite>')
    return report


def shown(outcomes: list[Outcome], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert summary(outcomes, 9.0) == 1
    return capsys.readouterr().out.splitlines()


def test_failed_test_is_named_with_report_head(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome(name="unit")
    long = "x" * 1000
    judge(outcome, 1, report_of(tmp_path, [f"AssertionError: told\n\n{long}\nthird\nfourth"]), 9)
    lines = shown([outcome], capsys)
    assert lines[-6:] == [
        "failed:",
        "unit: tests.a::test_0",
        "    AssertionError: told",
        "    " + "x" * (tier_summary.LINE_WIDTH - 4),
        "    third",
        ENDING.format(1),
    ]
    table = next(number for number, line in enumerate(lines) if line.startswith("tier "))
    assert table < lines.index("failed:")


def test_many_failures_are_abridged_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome(name="unit")
    judge(outcome, 1, report_of(tmp_path, ["first\nsecond\nthird"] * 25), 9)
    lines = shown([outcome], capsys)
    end = lines[lines.index("failed:") :]
    assert len(end) <= 25
    assert end[-4:] == ["unit: tests.a::test_9", "    first", "and 15 more", ENDING.format(25)]


def test_test_and_fixture_failures_are_both_reported(tmp_path: Path) -> None:
    report, outcome = tmp_path / "report.xml", Outcome(name="unit")
    report.write_text(
        '<testsuite tests="1" failures="1" errors="1"><testcase classname="a" name="b" time="1">'
        '<failure message="wrong"/><error>not ended</error></testcase></testsuite>'
    )
    judge(outcome, 1, report, 9)
    assert outcome.failures == [Failure("a::b", "wrong"), Failure("a::b", "not ended")]


def test_tier_without_report_shows_note_and_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, log = Outcome(name="e2e"), tmp_path / "e2e.log"
    log.write_text("much\nbefore\ntests/a.py::test_b PASSED [ 12%]\ntests/a.py::test_c\n\n")
    judge(outcome, 124, tmp_path / "no report", 9)
    outcome.explain(log)
    assert shown([outcome], capsys)[-5:] == [
        "e2e: e2e",
        "    stopped at its limit of 9 s, at tests/a.py::test_c",
        "    before",
        "    tests/a.py::test_b PASSED [ 12%]",
        ENDING.format(1),
    ]


def test_step_that_failed_without_output_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome(name="check", failed=1)
    outcome.explain(tmp_path / "no log")
    assert shown([outcome], capsys)[-3:] == ["failed:", "check: check", ENDING.format(1)]


def test_nothing_is_told_where_nothing_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert summary([Outcome(name="unit", passed=2)], 9.0) == 0
    assert "failed:" not in capsys.readouterr().out
