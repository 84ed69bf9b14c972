"""Makes the rows of a schedule's status from its ended Verifications, and their trend. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, cast, get_args

import msgspec

from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.verification import Verdict
from plimsoll_operator.api.verification_schedule import ROWS_MAX, Figure, ScheduledRun, Trend
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.reconcile.verification_schedule.schedule_plan import Started


def row(body: Object, run: Started) -> ScheduledRun:
    """Return the row of an ended Verification. Figures that its status lacks stay unset."""
    status = body.get("status") or {}
    timing, counts = status.get("timing") or {}, status.get("counts") or {}
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    latency = timing.get("ackMilliseconds") or {}
    lost = counts.get("lost")
    return ScheduledRun(
        name=run.name,
        due_time=timestamp(run.due_ms),
        completion_time=None if run.ended_ms is None else timestamp(run.ended_ms),
        verdict=verdict_of(run.verdict),
        reason=str(ready[0].get("reason") or "") if ready else "",
        records_per_second=_number(timing.get("recordsPerSecond")),
        p99_milliseconds=_number(latency.get("p99")),
        longest_stall_milliseconds=_number(timing.get("longestStallMilliseconds")),
        lost=lost if isinstance(lost, int) and lost >= 0 else None,
    )


def verdict_of(text: str) -> Verdict:
    """Return the text as a verdict, Inconclusive for any other text."""
    return cast("Verdict", text) if text in get_args(Verdict) and text else "Inconclusive"


def _number(stated: Any) -> float | None:
    return float(stated) if isinstance(stated, int | float) else None


def shown_before(choices: dict[str, Any]) -> tuple[ScheduledRun, ...]:
    """Return the rows that the object's status shows, empty if they cannot be read."""
    try:
        return msgspec.convert(choices.get("runs") or (), tuple[ScheduledRun, ...])
    except msgspec.ValidationError:
        return ()


def merged(
    before: Sequence[ScheduledRun], ended: Iterable[ScheduledRun]
) -> tuple[ScheduledRun, ...]:
    """Return the rows of `before` and `ended`, those of `ended` if both have a name, by due time,
    the newest first, at most `ROWS_MAX`. The row of a deleted Verification stays."""
    rows = {one.name: one for one in before} | {one.name: one for one in ended}
    ordered = sorted(rows.values(), key=lambda one: (one.due_time or "", one.name), reverse=True)
    return tuple(ordered[:ROWS_MAX])


def trend(rows: Sequence[ScheduledRun]) -> Trend | None:
    """Return the trend of the rows, which are the newest first; None without rows. Verdicts and
    lost records are counted over all rows, rate and latency are those of passed runs."""
    if not rows:
        return None
    passed = [one for one in rows if one.verdict == "Passed"]
    return Trend(
        passed=len(passed),
        violated=sum(one.verdict == "Violated" for one in rows),
        inconclusive=sum(one.verdict == "Inconclusive" for one in rows),
        lost=sum(one.lost or 0 for one in rows),
        records_per_second=_figure([one.records_per_second for one in passed]),
        p99_milliseconds=_figure([one.p99_milliseconds for one in passed]),
    )


def _figure(values: Sequence[float | None]) -> Figure | None:
    """Return the first value, which is the newest, with the median of the older ones. Return None
    if every value is None."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) == 1:
        return Figure(last=known[0])
    middle = median(known[1:])
    change = round(100 * (known[0] / middle - 1), 1) if middle else None
    return Figure(last=known[0], median=round(middle, 3), change_percent=change)
