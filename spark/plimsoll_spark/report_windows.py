"""Renders the sections of a report about the windows of a continuous run. Called by `report`.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TypeGuard

import msgspec

from plimsoll_spark import svg
from plimsoll_spark.report_facts import section
from plimsoll_spark.svg import Line, Mark, Plot, Span, Strip
from plimsoll_spark.values import EndedWindow, FaultMark

ROWS_MAX = 40
ACKNOWLEDGED = "acknowledged"
"""The operator's note beside the report: until when violations are acknowledged."""
VERDICTS = ("Passed", "Violated", "Inconclusive")


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a continuous run. `ended`: its last windows, the oldest first; `drivers`: when
    its drivers began, RFC 3339, the oldest first, and `earlier`: how many before these; `faults`:
    those of the drill; `acknowledged`: until when violations are acknowledged, "" if the last one
    is not, or there is none."""

    ended: tuple[EndedWindow, ...]
    drivers: tuple[str, ...] = ()
    earlier: int = 0
    faults: tuple[FaultMark, ...] = ()
    acknowledged: str = ""


def covers(until: str | None, end: str) -> TypeGuard[str]:
    """Return True if violations are acknowledged `until` a time that is not before the violated
    window's `end`."""
    try:
        return until is not None and _time(until) >= _time(end)
    except (TypeError, ValueError):
        return False


def acknowledged(found: Windows) -> str:
    """Return, as HTML, the line below the verdict that says until when violations are acknowledged;
    "" if there is nothing to say."""
    if not found.acknowledged:
        return ""
    until = escape(found.acknowledged)
    return f'<p class="about">Violations are acknowledged until {until}</p>'


def windows(found: Windows) -> str:
    """Return, as HTML, the verdicts of the windows over time, their rates and latencies, and the
    table of the newest ones and of all that did not pass; "" without an ended window."""
    if not found.ended:
        return ""
    start = _time(found.ended[0].start)
    marks = _marks(found, start)
    spans = [
        Span(
            begin_s=_seconds(start, one.start),
            end_s=_seconds(start, one.end),
            style=one.verdict if one.verdict in VERDICTS else "Inconclusive",
            title=f"window from {one.start} to {one.end}: {one.verdict} ({one.reason})",
        )
        for one in found.ended
    ]
    label = _clock(start)
    told = "; ".join(
        f'<span class="{name}">{sum(one.verdict == name for one in found.ended):,} {name}</span>'
        for name in VERDICTS
    )
    drawn = Strip(title="Verdict of each window", spans=spans, marks=marks, label=label)
    return (
        f'<h2>Windows</h2><p class="about">{told}; marks: <span class="key fault">faults of the '
        f'drill</span> &nbsp; <span class="key driver">a driver that went on</span></p>'
        f"{svg.strip(drawn)}{_rate(found, start, marks)}{_latency(found, start, marks)}"
        f"{_table(found.ended)}"
    )


def _rate(found: Windows, start: datetime, marks: Sequence[Mark]) -> str:
    plot = Plot(
        title="Acks per second of each window",
        unit="/s",
        seconds=[_middle(start, one) for one in found.ended],
        lines=[
            Line(name="acks", style="main", values=[one.records_per_second for one in found.ended])
        ],
        marks=marks,
        filled=True,
        label=_clock(start),
        until_s=_seconds(start, found.ended[-1].end),
    )
    return f"<h2>Judged acks per second, by window</h2>{svg.over_time(plot)}"


def _latency(found: Windows, start: datetime, marks: Sequence[Mark]) -> str:
    known = [(one, one.p99_milliseconds) for one in found.ended]
    plot = Plot(
        title="p99 of ack latency of each window",
        unit="ms",
        seconds=[_middle(start, one) for one, p99 in known if p99 is not None],
        lines=[
            Line(name="p99", style="second", values=[p99 for _, p99 in known if p99 is not None])
        ],
        marks=marks,
        label=_clock(start),
        until_s=_seconds(start, found.ended[-1].end),
    )
    return f"<h2>p99 of ack latency, by window (milliseconds)</h2>{svg.over_time(plot)}"


def _table(ended: Sequence[EndedWindow]) -> str:
    """Return the rows of the newest windows, and of the newest that did not pass."""
    newest = set(ended[-ROWS_MAX // 2 :])
    others = set([one for one in ended if one.verdict != "Passed"][-ROWS_MAX // 2 :])
    rows = [
        (
            _time(one.end).strftime("%Y-%m-%d %H:%M:%S"),
            one.verdict,
            one.reason,
            f"{one.acked:,}",
            f"{one.records_per_second:,g}",
            "" if one.p99_milliseconds is None else f"{one.p99_milliseconds:,g}",
        )
        for one in reversed(ended)
        if one in newest or one in others
    ]
    titles = ("until (UTC)", "verdict", "reason", "acked", "acks/s", "p99 (ms)")
    return section("Newest windows, and others that did not pass", titles, rows)


def _marks(found: Windows, start: datetime) -> list[Mark]:
    marks = [
        Mark(
            at_s=one.at_ms / 1000 - start.timestamp(),
            title=f"injected fault {one.fault}: {one.message}",
        )
        for one in found.faults
        if one.result == "Injected"
    ]
    first = found.earlier + 1
    marks += [
        Mark(
            at_s=_seconds(start, at),
            title=f"driver process {number} continued the run",
            style="mark driver",
        )
        for number, at in enumerate(found.drivers, start=first)
        if number > 1
    ]
    return [one for one in marks if one.at_s >= 0]


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


def _seconds(start: datetime, stamp: str) -> float:
    return (_time(stamp) - start).total_seconds()


def _middle(start: datetime, window: EndedWindow) -> float:
    return (_seconds(start, window.start) + _seconds(start, window.end)) / 2


def _clock(start: datetime) -> Callable[[float], str]:
    def label(second: float) -> str:
        at = (start + timedelta(seconds=second)).astimezone(UTC)
        return escape(at.strftime("%H:%M:%S"))

    return label
