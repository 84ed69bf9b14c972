"""Evaluates a LogCluster's maintenance windows: is one open, and until when does that answer hold.

`hours_at` is pure. `HoursClock` repeats it whenever its last answer has expired, so that a decision
costs no cron expression. Called for each decision of the cluster's controller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_core.controller.kernel.voluntary_work import ALWAYS, Hours
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.due_times import ZONE_DEFAULT, BadSchedule, DueTimes
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.maintenance import Maintenance, MaintenanceWindow

CHECKED_MS_MAX = 3_600_000
"""Milliseconds after which windows are evaluated again in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoursSpan:
    """The hours from `from_ms` to before `until_ms`, in milliseconds since 1970. `closes_ms`: the
    end of the window that is open, None if none is."""

    hours: Hours
    from_ms: int
    until_ms: int
    closes_ms: int | None = None


def hours_at(cluster: LogCluster, now_ms: int) -> HoursSpan:
    """Return the hours at `now_ms`. A window with an invalid schedule counts as closed."""
    maintenance = cluster.spec.maintenance or Maintenance()
    until_ms = now_ms + CHECKED_MS_MAX
    closes: list[int] = []
    opens: list[int] = []
    for window in maintenance.windows or ():
        try:
            begun_ms, next_ms = _around(window, now_ms)
        except BadSchedule:
            continue
        length_ms = 1_000 * seconds(window.duration)
        if begun_ms is not None and now_ms < begun_ms + length_ms:
            closes.append(begun_ms + length_ms)
        if next_ms is not None:
            opens.append(next_ms)
    free = not maintenance.windows or bool(closes)
    hours = Hours(
        paused=bool(cluster.spec.paused),
        hibernated=bool(cluster.spec.hibernated),
        window_open=free,
        opens="" if free else _opens(cluster, opens),
    )
    return HoursSpan(
        hours=hours,
        from_ms=now_ms,
        until_ms=min([until_ms, *closes, *opens]),
        closes_ms=max(closes, default=None),
    )


def bad_window(cluster: LogCluster, now_ms: int) -> str:
    """Return a sentence about the first window that never opens because its schedule or time zone
    is invalid. Return "" if there is none."""
    maintenance = cluster.spec.maintenance or Maintenance()
    for number, window in enumerate(maintenance.windows or ()):
        try:
            _due_times(window).check(now_ms)
        except BadSchedule as error:
            return f"spec.maintenance.windows[{number}] never opens. {error}"
    return ""


def _opens(cluster: LogCluster, opens: list[int]) -> str:
    if not opens:
        return "a window of spec.maintenance.windows is corrected (see the condition Stalled)"
    return f"the maintenance window opens at {timestamp(min(opens))}"


def _due_times(window: MaintenanceWindow) -> DueTimes:
    return DueTimes(window.schedule, window.time_zone or ZONE_DEFAULT)


def _around(window: MaintenanceWindow, now_ms: int) -> tuple[int | None, int | None]:
    """Return the newest beginning of the window until now, and the next one, None each if there is
    none within 50 years."""
    times = _due_times(window)
    return times.newest_until(now_ms), times.next_after(now_ms)


class HoursClock:
    """Tells a cluster's hours now. `cluster` returns the LogCluster as last seen, None if it is
    gone; the last answer holds then. `now_ms`: the wall clock."""

    def __init__(self, cluster: Callable[[], LogCluster | None], now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._of: LogCluster | None = None
        self._span = HoursSpan(hours=ALWAYS, from_ms=0, until_ms=0)

    def __call__(self) -> Hours:
        return self.span().hours

    def span(self) -> HoursSpan:
        found, now_ms, span = self._cluster(), self._now_ms(), self._span
        if found is None:
            return span
        if found is not self._of or not span.from_ms <= now_ms < span.until_ms:
            self._of, self._span = found, hours_at(found, now_ms)
        return self._span
