"""Adds the steps of a window up to its verdict, and the windows up to the state of a run. Pure.

Called by `continuous`. The verdict of a window is that of `verdict.judge` about its counts; what
could not be judged makes a window that would pass Inconclusive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import datetime

import msgspec

from plimsoll_spark.arrays import Floats
from plimsoll_spark.budget import Interval, budget_lines, judge_budget
from plimsoll_spark.rolling_judge import DOUBTS, EXAMPLES_OF_A_KIND, Step
from plimsoll_spark.settings import Settings
from plimsoll_spark.timeline import LatencyCounts
from plimsoll_spark.values import (
    Bin,
    BudgetLine,
    Counts,
    EndedWindow,
    Example,
    Findings,
    Latency,
    Rolling,
    Stall,
    Window,
)
from plimsoll_spark.verdict import Reason, Verdict, judge, judge_unreadable

RECENT_WINDOWS = 10
"""The most ended windows that the state of a run shows."""
UNREADABLE = "no consumer can read their batches"
LOSSES = ("lost", "mismatched", "unreadable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the budget of a window needs besides its acks. `end_ms`: when it ended, since 1970;
    `held`: the times in which producers did not run; `isr_seconds`: the longest time for which an
    ISR was seen not to be full, None if that was not measured."""

    end_ms: int
    held: Sequence[Interval] = ()
    isr_seconds: float | None = None


class WindowSoFar(msgspec.Struct, kw_only=True):
    """One window that has not ended. `started_ms`: since 1970; `recreated`: True if the topic was
    deleted and made anew in it; `stopped`: why nothing could be judged, or None."""

    started_ms: int
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    unjudged: dict[str, int] = msgspec.field(default_factory=dict)
    examples: list[Example] = msgspec.field(default_factory=list)
    unreadable: list[Example] = msgspec.field(default_factory=list)
    latencies: LatencyCounts = msgspec.field(default_factory=LatencyCounts)
    stalls: dict[int, Stall] = msgspec.field(default_factory=dict)
    """The longest of each partition."""
    recreated: bool = False

    def add(self, step: Step, latency_ms: Floats, stalls: Sequence[Stall] = ()) -> None:
        """Add a step. `latency_ms`: of its acknowledgements; `stalls`: those that ended in it."""
        for total, more in ((self.counts, step.counts), (self.unjudged, step.unjudged)):
            for name, count in more.items():
                total[name] = total.get(name, 0) + count
        kinds = Counter(one.kind for one in self.examples)
        for one in step.examples:
            if kinds[one.kind] < EXAMPLES_OF_A_KIND:
                kinds[one.kind] += 1
                self.examples.append(one)
        self.unreadable = [*self.unreadable, *step.unreadable][:EXAMPLES_OF_A_KIND]
        self.latencies.add(latency_ms)
        for stall in stalls:
            known = self.stalls.get(stall.partition)
            if known is None or stall.milliseconds > known.milliseconds:
                self.stalls[stall.partition] = stall

    @property
    def totals(self) -> Counts:
        """Return the counts of the window so far."""
        return Counts(**{name: self.counts.get(name, 0) for name in Counts.__struct_fields__})

    def verdict(self, settings: Settings, ended: Surroundings | None = None) -> Verdict:
        """Return the verdict on what was judged so far. `ended`: None before the window's end; its
        budget is judged at the end alone."""
        if self.unreadable and "NoLoss" in settings.checks and not self.recreated:
            return judge_unreadable(self.unreadable)
        found = judge(settings, self.totals, stopped=None, recreated=self.recreated)
        left = {
            why: count
            for why, count in self.unjudged.items()
            if count and (why not in DOUBTS or DOUBTS[why] in settings.checks)
        }
        if self.unreadable:
            left[UNREADABLE] = len(self.unreadable)
        if found.verdict == "Passed" and not left and ended is not None:
            budget = settings.budget
            late = judge_budget(budget, self._findings(ended), ended.held, ended.isr_seconds)
            found = late or found
        if found.verdict != "Passed" or not left:
            return replaced(found, message=found.message + self._places(found))
        causes = "; ".join(f"{count} because {why}" for why, count in sorted(left.items()))
        sentence = f"not all records of the window can be judged: {causes}"
        return Verdict(verdict="Inconclusive", reason=Reason.NOT_JUDGED, message=sentence)

    def lines(self, settings: Settings, ended: Surroundings) -> tuple[BudgetLine, ...]:
        """Return each limit of the budget with the window's figure."""
        findings = self._findings(ended)
        return budget_lines(settings.budget, findings, ended.held, ended.isr_seconds)

    def _findings(self, ended: Surroundings) -> Findings:
        latency, acked = self.latencies.latency(), sum(self.latencies.by_bucket.values())
        pace: tuple[Bin, ...] = ()
        if latency is not None:
            pace = (
                Bin(
                    start_ms=self.started_ms,
                    acked=acked,
                    p50=latency.p50,
                    p99=latency.p99,
                    worst=latency.worst,
                ),
            )
        return Findings(
            counts=self.totals,
            latency=latency or Latency(),
            stalls=tuple(self.stalls.values()),
            pace=pace,
            bin_ms=max(1, ended.end_ms - self.started_ms),
            examples=(),
        )

    def ended(
        self, settings: Settings, start: str, end: str, surroundings: Surroundings | None = None
    ) -> Window:
        """Return the window with its verdict. `start`, `end`: RFC 3339; `surroundings`: as of
        `verdict`."""
        found = self.verdict(settings, surroundings)
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
