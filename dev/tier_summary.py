"""Reads the outcomes of the tiers of `make test` from pytest's reports and prints them.

A person who follows a run from afar may see only its last 25 lines: failures are repeated there,
with the beginning of each reason, in 20 lines at most.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

SLOWEST = 10
FAILURES_TOLD = 10
REASON_LINES = 3
"""Maximum lines printed of one failure. If more tests failed, fewer lines are printed of each, so
that all take at most `FAILURES_LINES`."""
FAILURES_LINES = 20
LINE_WIDTH = 160
LOG_TAIL_BYTES = 4000
PROGRESS_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, or a tier that ended without a report."""

    name: str
    # The first lines are printed.
    reason: str


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of one tier. `seconds` includes bringing up what it needs."""

    name: str
    seconds: float = 0.0
    # Seconds of a processor, without pods.
    processor_s: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""
    # Seconds and name of each of its tests.
    tests: list[tuple[float, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def explain(self, log: Path) -> None:
        """If the tier failed without a report about a test, explain that by the end of its
        output."""
        if self.failed and not self.failures:
            last = last_lines(log, REASON_LINES)
            # The first line may be the only one that is printed.
            first = f"{self.note}, at {last[-1].strip()}" if self.note and last else self.note
            self.failures.append(Failure(self.name, "\n".join([first, *last][:REASON_LINES])))


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last `count` lines of a log that are not blank; [] without a log."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - LOG_TAIL_BYTES, 0))
        text = file.read().decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()][-count:]


def progress(log: Path) -> str:
    """Return the log's last line."""
    return "".join(f", {line.strip()[-PROGRESS_WIDTH:]}" for line in last_lines(log, 1))


def judge(outcome: Outcome, code: int, report: Path, limit_s: int) -> None:
    """Set the outcome by pytest's report. A tier without a report ended before its tests. `code`:
    the exit code of pytest."""
    if code == 124:
        outcome.note = f"stopped at its limit of {limit_s} s"
    elif code != 0:
        outcome.note = f"pytest ended with {code}"
    if report.exists():
        for suite in ET.parse(report).getroot().iter("testsuite"):
            total = int(suite.get("tests", 0))
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            outcome.failed += bad
            outcome.skipped += skipped
            outcome.passed += total - bad - skipped
            for case in suite.iter("testcase"):
                outcome.tests.append((float(case.get("time", 0)), case.get("name", "")))
                outcome.failures += failures_of(case)
    if code != 0 and not outcome.failed:
        outcome.failed = 1


def failures_of(case: ET.Element) -> list[Failure]:
    """Return the failures of a test: it can fail itself, and its fixtures after it."""
    name = f"{case.get('classname', '')}::{case.get('name', '')}"
    return [
        Failure(name, found.get("message") or found.text or "")
        for found in case
        if found.tag in ("failure", "error")
    ]


def told(outcomes: list[Outcome]) -> list[str]:
    """Return the failures with the first lines of their reasons, bounded in number and width."""
    every = [(one.name, failure) for one in outcomes for failure in one.failures]
    shown = every[:FAILURES_TOLD]
    if not shown:
        return []
    reason_lines = min(REASON_LINES, FAILURES_LINES // len(shown) - 1)
    lines = []
    for tier, failure in shown:
        lines.append(f"{tier}: {failure.name}")
        reason = [line for line in failure.reason.splitlines() if line.strip()]
        lines += [f"    {line}" for line in reason[:reason_lines]]
    if more := len(every) - len(shown):
        lines.append(f"and {more} more")
    return [line[:LINE_WIDTH] for line in ("failed:", *lines)]


def summary(outcomes: list[Outcome], seconds: float, where: str = "") -> int:
    """Print the summary of all tiers and return the exit code. `where`: a sentence on how busy the
    machine was."""
    slow = sorted(
        ((took, name, one.name) for one in outcomes for took, name in one.tests), reverse=True
    )
    if slow:
        print(f"\nthe {SLOWEST} slowest tests")
        for took, name, tier in slow[:SLOWEST]:
            print(f"{took:6.0f} s  {tier:<12}{name}")
    print("\ntier           time  processor  passed  failed  skipped")
    for one in outcomes:
        print(
            f"{one.name:<12}{one.seconds:6.0f} s {one.processor_s:8.0f} s {one.passed:7}"
            f" {one.failed:7} {one.skipped:8}  {one.note}"
        )
    passed, failed, skipped = (
        sum(getattr(one, what) for one in outcomes) for what in ("passed", "failed", "skipped")
    )
    print(f"{seconds:18.0f} s in all\n")
    if where:
        print(f"{where}\n")
    for line in told(outcomes):
        print(line)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0
