"""Decides what a VerificationSchedule does now: which start is due, which Verifications are
replaced, and which ended ones are deleted. Pure.

Called by the reconciler with the Verifications as just listed. At most one start is made up after
an outage, the newest; earlier ones are counted as missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from plimsoll_operator.api.due_times import ZONE_DEFAULT, DueTimes
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.api.verification_schedule import (
    INCONCLUSIVE_DEFAULT,
    PASSED_DEFAULT,
    TTL_DEFAULT,
    VIOLATED_DEFAULT,
    History,
    VerificationScheduleSpec,
)

LATE_MS = 60_000
"""Delay in milliseconds from which a start is reported as late."""
PROVEN = ("Passed", "Violated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A Verification of the schedule as last read. `due_ms`: the due time of its start; `ended_ms`:
    when it ended, None if it has not; `going`: True if it is being deleted; `begun`: True if its
    driver runs. Times are in milliseconds since 1970."""

    name: str
    uid: str
    due_ms: int
    ended_ms: int | None = None
    verdict: str = ""
    going: bool = False
    begun: bool = False

    @property
    def active(self) -> bool:
        """Return True if the Verification has neither ended nor is being deleted."""
        return self.ended_ms is None and not self.going


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePlan:
    """The next actions of a schedule. `start_ms`: the due time of the Verification to create, None
    to create none. `late_ms`: milliseconds since the due time of the newest start, 0 if none is
    due. `missed`: number of earlier due times for which nothing was started. `in_the_way`: names of
    running Verifications because of which the start is left out. `delete`: each Verification to
    delete, with the reason. `handled_ms`: the newest due time that needs no more action after this
    plan. `next_ms`: the next due time; None while suspended. Times are in milliseconds since
    1970."""

    start_ms: int | None
    late_ms: int
    missed: int
    in_the_way: tuple[str, ...]
    delete: tuple[tuple[Started, str], ...]
    handled_ms: int
    next_ms: int | None


def due_times(spec: VerificationScheduleSpec) -> DueTimes:
    return DueTimes(spec.schedule, spec.time_zone or ZONE_DEFAULT)


def plan(
    spec: VerificationScheduleSpec, runs: Sequence[Started], handled_ms: int, now_ms: int
) -> SchedulePlan:
    """Return the actions at `now_ms`. `handled_ms`: the due time up to which starts were made or
    left out before, or the time from which the schedule counts. Raises `BadSchedule`."""
    times = due_times(spec)
    handled_ms = max([handled_ms, *(one.due_ms for one in runs if one.due_ms <= now_ms)])
    newest_ms = times.newest_until(now_ms)
    due = newest_ms is not None and newest_ms > handled_ms
    gone = tuple(_ended_to_delete(spec, runs, now_ms))
    start_ms = newest_ms if due and not spec.suspend else None
    missed = times.count(handled_ms, newest_ms - 1) if start_ms and newest_ms else 0
    in_the_way: tuple[str, ...] = ()
    active = [one for one in runs if one.active]
    policy = spec.concurrency_policy or "Forbid"
    if start_ms is not None and policy == "Replace":
        gone += tuple(
            (
                one,
                (
                    "The Verification is deleted, because the schedule's next one replaces it "
                    "(concurrencyPolicy)."
                ),
            )
            for one in active
        )
    elif start_ms is not None and policy == "Forbid":
        in_the_way = tuple(sorted(one.name for one in active))
    return SchedulePlan(
        start_ms=None if in_the_way else start_ms,
        late_ms=0 if start_ms is None else now_ms - start_ms,
        missed=missed,
        in_the_way=in_the_way,
        delete=gone,
        handled_ms=newest_ms if due and newest_ms is not None else handled_ms,
        next_ms=None if spec.suspend else times.next_after(now_ms),
    )


def periods_without_verdict(
    spec: VerificationScheduleSpec, runs: Iterable[Started], since_ms: int, now_ms: int
) -> int:
    """Return the number of due times since the last run with a verdict of PROVEN, or since
    `since_ms` if there is none. The due time of a run that still writes or checks is not counted;
    that of a run that waits to begin is. Return 0 while the schedule is suspended. Raises
    `BadSchedule`."""
    if spec.suspend:
        return 0
    known = list(runs)
    proven = [one.due_ms for one in known if one.verdict in PROVEN]
    from_ms = max([since_ms, *proven])
    running = {one.due_ms for one in known if one.active and one.begun and one.due_ms > from_ms}
    return max(0, due_times(spec).count(from_ms, now_ms) - len(running))


def _ended_to_delete(
    spec: VerificationScheduleSpec, runs: Sequence[Started], now_ms: int
) -> Iterator[tuple[Started, str]]:
    """Yield each ended Verification that history or ttl does not keep, with the reason. The ended
    one with the newest due time is always kept."""
    history = spec.history or History()
    kept = {
        "Passed": history.passed or PASSED_DEFAULT,
        "Violated": history.violated or VIOLATED_DEFAULT,
        "Inconclusive": history.inconclusive or INCONCLUSIVE_DEFAULT,
    }
    ttl_ms = 1_000 * seconds(spec.ttl or TTL_DEFAULT)
    ended = sorted((one for one in runs if not one.active), key=lambda one: -one.due_ms)
    for one in ended[1:]:
        if one.going or one.ended_ms is None:
            continue
        verdict = one.verdict if one.verdict in kept else "Inconclusive"
        kept[verdict] -= 1
        if kept[verdict] < 0:
            yield (
                one,
                (
                    "The Verification is deleted, because spec.history keeps no more with verdict "
                    f"{verdict}."
                ),
            )
        elif verdict != "Violated" and now_ms - one.ended_ms >= ttl_ms:
            yield one, "The Verification is deleted, because it ended longer ago than spec.ttl."
