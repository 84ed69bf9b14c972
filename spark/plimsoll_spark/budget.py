"""Judges the budget of a run: how long writes may stall, how late acks may be, and how soon ISRs
are full again. Called by `run` for a run that would pass; pure.

A machine that is out of processor time makes no violation. A producer notes the times in which it
did not run itself (`producer`). A stall is judged without the part of it in which a producer did
not run. The p99 is judged only if producers did not run for at most `HELD_PERCENT` of the drive. A
budget that is exceeded only because of such times is Inconclusive, and so is one with a limit of
which nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_spark.settings import Budget
from plimsoll_spark.values import BudgetLine, Findings, Stall
from plimsoll_spark.verdict import Reason, Verdict

HELD_PERCENT = 1.0
Interval = tuple[float, float]
"""Begin and end, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """One limit of the budget that a run exceeded. `sentence`: names the limit and the measured
    value; `certain`: False if producers that did not run may explain it."""

    sentence: str
    certain: bool


def judge_budget(
    budget: Budget, findings: Findings, held: Sequence[Interval], isr_seconds: float | None
) -> Verdict | None:
    """Return None if the run stayed within its budget. Else return Violated if at least one limit
    was exceeded for certain, and Inconclusive if producers that did not run may explain every
    excess, or a limit was not measured. `held`: the times in which a producer did not run;
    `isr_seconds`: the longest time for which an ISR was known not to be full, None if that was not
    measured to the end."""
    spans = joined(held)
    excesses = [
        *_stalled(budget, findings.stalls, spans),
        *_late(budget, findings, spans),
        *_shrunk(budget, isr_seconds),
    ]
    certain = [one.sentence for one in excesses if one.certain]
    if certain:
        return Verdict(
            verdict="Violated", reason=Reason.BUDGET_EXCEEDED, message="; ".join(certain)
        )
    if not excesses:
        return _unknown([one.limit for one in _measured(budget, findings, isr_seconds)
                         if one.allowed is not None and one.measured is None])  # fmt: skip
    sentence = "; ".join(one.sentence for one in excesses)
    lost_ms = sum(end - begin for begin, end in spans)
    return Verdict(
        verdict="Inconclusive",
        reason=Reason.DRIVER_STARVED,
        message=(
            f"{sentence}; but the Verification's own producers got no processor for "
            f"{lost_ms:,.0f} ms, which may be the cause: give the driver pod more processor time "
            "(runner.resources)"
        ),
    )


def budget_lines(
    budget: Budget, findings: Findings, held: Sequence[Interval], isr_seconds: float | None
) -> tuple[BudgetLine, ...]:
    """Return each limit of the budget with the measured value, for the report. Parameters as in
    `judge_budget`."""
    held = joined(held)
    found = (
        _stalled(budget, findings.stalls, held),
        _late(budget, findings, held),
        _shrunk(budget, isr_seconds),
    )
    return tuple(
        BudgetLine(
            limit=one.limit,
            allowed=one.allowed,
            measured=None if one.measured is None else round(one.measured, 1),
            result=_result(one.measured, excess),
        )
        for one, excess in zip(_measured(budget, findings, isr_seconds), found, strict=True)
        if one.allowed is not None
    )


class _Measured(NamedTuple):
    """A limit of the budget, None: there is none, and the measured value, None: there is none."""

    limit: str
    allowed: float | None
    measured: float | None


def _measured(
    budget: Budget, findings: Findings, isr_seconds: float | None
) -> tuple[_Measured, _Measured, _Measured]:
    # With acks, a partition that never stalled has a stall of 0.
    none = 0.0 if findings.pace else None
    stall = max((one.milliseconds for one in findings.stalls), default=none)
    p99 = findings.latency.p99 if findings.pace else None
    return (
        _Measured("maxStallMilliseconds", budget.max_stall_milliseconds, stall),
        _Measured("p99Milliseconds", budget.p99_milliseconds, p99),
        _Measured("isrFullWithinSeconds", budget.isr_full_within_seconds, isr_seconds),
    )


def _unknown(limits: Sequence[str]) -> Verdict | None:
    """Return Inconclusive if the run has no figure to compare with one of the limits."""
    if not limits:
        return None
    names = ", ".join(f"budget.{one}" for one in limits)
    return Verdict(
        verdict="Inconclusive",
        reason=Reason.NOT_JUDGED,
        message=f"no check failed, but {names} cannot be judged, since nothing, or not the end, "
        "was measured",
    )


def _result(measured: float | None, excess: Sequence[Excess]) -> str:
    if measured is None:
        return "unknown"
    if not excess:
        return "within"
    return "exceeded" if any(one.certain for one in excess) else "starved"


def joined(spans: Iterable[Interval]) -> list[Interval]:
    """Return the union of the intervals, sorted, without overlaps."""
    found: list[Interval] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _stalled(budget: Budget, stalls: Sequence[Stall], held: Sequence[Interval]) -> list[Excess]:
    limit = budget.max_stall_milliseconds
    if limit is None or not stalls:
        return []
    worst = max(stalls, key=lambda one: one.milliseconds)
    if worst.milliseconds <= limit:
        return []
    net_ms = max(one.milliseconds - _within(held, one.from_ms, one.to_ms) for one in stalls)
    sentence = (
        f"partition {worst.partition} got no ack for {worst.milliseconds:,.0f} ms, which exceeds "
        f"budget.maxStallMilliseconds ({limit:,})"
    )
    return [Excess(sentence=sentence, certain=net_ms > limit)]


def _late(budget: Budget, findings: Findings, held: Sequence[Interval]) -> list[Excess]:
    limit, p99 = budget.p99_milliseconds, findings.latency.p99
    if limit is None or p99 <= limit or not findings.pace:
        return []
    starts = [one.start_ms for one in findings.pace]
    begin_ms, end_ms = min(starts), max(starts) + findings.bin_ms
    share = _within(held, begin_ms, end_ms) / (end_ms - begin_ms)
    sentence = f"the p99 of acks was {p99:,g} ms, which exceeds budget.p99Milliseconds ({limit:,g})"
    return [Excess(sentence=sentence, certain=100 * share <= HELD_PERCENT)]


def _shrunk(budget: Budget, isr_seconds: float | None) -> list[Excess]:
    limit = budget.isr_full_within_seconds
    if limit is None or isr_seconds is None or isr_seconds <= limit:
        return []
    sentence = (
        f"a partition's ISR lacked a replica for at least {isr_seconds:,.0f} s, which exceeds "
        f"budget.isrFullWithinSeconds ({limit:,})"
    )
    return [Excess(sentence=sentence, certain=True)]


def _within(spans: Sequence[Interval], begin: float, end: float) -> float:
    """Return the length of the spans' part in [begin, end], in milliseconds."""
    return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in spans)
