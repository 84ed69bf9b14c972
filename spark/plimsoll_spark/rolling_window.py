"""Adds the steps of a window up to its verdict, and the windows up to the state of a run. Pure.

Called by `continuous`. The verdict of a window is that of `verdict.judge` about its counts; what
could not be judged makes a window that would pass Inconclusive.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replaced
from datetime import datetime

import msgspec

from plimsoll_spark.arrays import Floats
from plimsoll_spark.rolling_judge import EXAMPLES_OF_A_KIND, Step
from plimsoll_spark.settings import Settings
from plimsoll_spark.timeline import LatencyCounts
from plimsoll_spark.values import Counts, EndedWindow, Example, Rolling, Window
from plimsoll_spark.verdict import Reason, Verdict, judge, judge_unreadable

RECENT_WINDOWS = 10
"""The most ended windows that the state of a run shows."""
LOSSES = ("lost", "mismatched", "unreadable")


class WindowSoFar(msgspec.Struct, kw_only=True):
    """One window that has not ended. `started_ms`: since 1970; `recreated`: True if the topic was
    deleted and made anew in it; `stopped`: why nothing could be judged, or None."""

    started_ms: int
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    unjudged: dict[str, int] = msgspec.field(default_factory=dict)
    examples: list[Example] = msgspec.field(default_factory=list)
    unreadable: list[Example] = msgspec.field(default_factory=list)
    latencies: LatencyCounts = msgspec.field(default_factory=LatencyCounts)
    recreated: bool = False

    def add(self, step: Step, latency_ms: Floats) -> None:
        """Add a step. `latency_ms`: of its acknowledgements."""
        for total, more in ((self.counts, step.counts), (self.unjudged, step.unjudged)):
            for name, count in more.items():
                total[name] = total.get(name, 0) + count
        known = Counter(one.kind for one in self.examples)
        for one in step.examples:
            if known[one.kind] < EXAMPLES_OF_A_KIND:
                known[one.kind] += 1
                self.examples.append(one)
        self.unreadable = [*self.unreadable, *step.unreadable][:EXAMPLES_OF_A_KIND]
        self.latencies.add(latency_ms)

    @property
    def totals(self) -> Counts:
        """Return the counts of the window so far."""
        return Counts(**{name: self.counts.get(name, 0) for name in Counts.__struct_fields__})

    def verdict(self, settings: Settings) -> Verdict:
        """Return the verdict on what was judged so far."""
        if self.unreadable and "NoLoss" in settings.checks and not self.recreated:
            return judge_unreadable(self.unreadable)
        found = judge(settings, self.totals, stopped=None, recreated=self.recreated)
        left = {why: count for why, count in self.unjudged.items() if count}
        if found.verdict != "Passed" or not left or "NoLoss" not in settings.checks:
            return replaced(found, message=found.message + self._places(found))
        causes = "; ".join(f"{count} because {why}" for why, count in sorted(left.items()))
        sentence = f"acknowledged records cannot be judged: {causes}"
        return Verdict(verdict="Inconclusive", reason=Reason.NOT_JUDGED, message=sentence)

    def ended(self, settings: Settings, start: str, end: str) -> Window:
        """Return the window with its verdict. `start`, `end`: RFC 3339."""
        found = self.verdict(settings)
        return Window(
            start=start,
            end=end,
            verdict=found.verdict,
            reason=found.reason.value,
            message=found.message,
            counts=self.totals,
            milliseconds=self.latencies.latency(),
            examples=tuple(self.unreadable) or tuple(self.examples),
        )

    def _places(self, found: Verdict) -> str:
        if found.verdict != "Violated" or not self.examples:
            return ""
        places = [f"{one.topic}-{one.partition} at offset {one.offset}" for one in self.examples]
        return f": {', '.join(places[:EXAMPLES_OF_A_KIND])}"


def with_window(rolling: Rolling, window: Window) -> Rolling:
    """Return the state of the run after a window has ended."""
    name = window.verdict.lower()
    rolling = msgspec.structs.replace(
        rolling,
        **{name: getattr(rolling, name) + 1},
        recent=(as_row(window), *rolling.recent)[:RECENT_WINDOWS],
    )
    return showing(rolling, window)


def as_row(window: Window) -> EndedWindow:
    """Return an ended window as a row of a list."""
    start, end = (datetime.fromisoformat(one) for one in (window.start, window.end))
    latency = window.milliseconds
    return EndedWindow(
        start=window.start,
        end=window.end,
        verdict=window.verdict,
        reason=window.reason,
        acked=window.counts.acked,
        records_per_second=round(window.counts.acked / max(1.0, (end - start).total_seconds()), 1),
        p99_milliseconds=None if latency is None else latency.p99,
    )


def showing(rolling: Rolling, window: Window) -> Rolling:
    """Return the state of the run with its newest window, which need not have ended."""
    rolling = msgspec.structs.replace(rolling, window=window)
    if window.verdict != "Violated":
        return rolling
    rolling = msgspec.structs.replace(rolling, last_violation=window)
    losses = [one for one in window.examples if one.kind in LOSSES]
    if not losses or losses[-1] == rolling.last_loss:
        return rolling
    return msgspec.structs.replace(rolling, last_loss=losses[-1], last_loss_time=window.end)
