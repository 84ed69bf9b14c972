"""Reconciles a VerificationSchedule: starts its Verifications at the due times of the API server's
clock, deletes old ones, and shows their verdicts.

A Verification's name is made from its due time, so a Verification is created only once, however
often that is tried. The due time up to which starts were handled is the newest one among these
names and `status.lastScheduleTime`, which also counts starts that were left out; no due time before
`status.countedSince` is handled, so a suspension makes none up. The rows of
`status.runs` are carried over from the object's status, because they outlive their Verifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from plimsoll_core.phrasing import counted
from plimsoll_operator.api.conditions import condition, milliseconds, timestamp
from plimsoll_operator.api.due_times import COUNTED_MAX, BadSchedule
from plimsoll_operator.api.labels import DUE_TIME, SCHEDULE
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.verification_schedule import (
    ScheduledRun,
    VerificationSchedule,
    VerificationScheduleStatus,
)
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import VERIFICATION_SCHEDULES, VERIFICATIONS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.manifests.verification_schedule import verification
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.verification_schedule import run_rows
from plimsoll_operator.reconcile.verification_schedule.schedule_plan import (
    LATE_MS,
    SchedulePlan,
    Started,
    due_times,
    periods_without_verdict,
    plan,
)
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_seen
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 5_000
"""Milliseconds between two checks of running Verifications."""
LOOK_MS_MAX = 600_000
"""Longest time in milliseconds without a check, since the clocks of host and API server may
differ."""
LOOK_MS_MIN = 1_000
ACTIVE_MAX = 20
BEGUN = ("Producing", "Verifying")


@dataclass(slots=True)
class _Seen:
    """State of one schedule that a term keeps. `handled_ms`: the newest due time of which the start
    was made or left out, None if there is none; `schedule`: the expression and time zone of the
    last pass; `counted_since_ms`: the time from which starts and periods without a verdict are
    counted; `rows`: the ended runs, newest first. Times are in milliseconds since 1970."""

    handled_ms: int | None
    counted_since_ms: int
    schedule: str
    rows: tuple[ScheduledRun, ...] = ()


@dataclass(slots=True)
class _Schedules:
    """State of the schedules that a term keeps, by uid."""

    seen: dict[str, _Seen] = field(default_factory=dict)


async def reconcile(term: Term, key: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    found, target = (
        term.objects.verification_schedules.get(key),
        Target(VERIFICATION_SCHEDULES, *key),
    )
    memory = term.kept(_Schedules, _Schedules).seen
    if found is None or found.metadata.deletion_timestamp:
        known = {one.metadata.uid for one in term.objects.verification_schedules}
        for uid in [uid for uid in memory if uid not in known]:
            del memory[uid]
        result.show_no_more(target)
        return
    if found.cluster_key != term.key:
        return
    generation = found.metadata.generation
    try:
        bodies = await _listed(term, found)
    except ApiError as error:
        text = (
            "the operator cannot list the Verifications of VerificationSchedule "
            f"{'/'.join(key)}; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    now_ms = term.server_ms()
    if found.metadata.uid not in memory:
        memory[found.metadata.uid] = _seen_before(term, found, now_ms)
    seen = memory[found.metadata.uid]
    try:
        due_times(found.spec).check(now_ms)
    except BadSchedule as why:
        waits = condition("Ready", False, "InvalidSchedule", str(why))
        result.show(target, generation, _status(seen, conditions=(waits, *_passing(seen.rows))))
        return
    if str(due_times(found.spec)) != seen.schedule:
        # Due times of the new schedule that have passed were never promised.
        seen.schedule, seen.counted_since_ms = str(due_times(found.spec)), now_ms
    if found.spec.suspend:
        seen.counted_since_ms = now_ms
    runs = [_started(body) for body in bodies]
    _note_ended(result, found, seen, bodies, runs)
    from_ms = max(seen.handled_ms or 0, seen.counted_since_ms)
    planned = plan(found.spec, runs, from_ms, now_ms)
    taken = await _carry_out(term, result, found, planned)
    if planned.handled_ms > from_ms:
        seen.handled_ms = planned.handled_ms
    _tell(result, found, planned)
    result.show(target, generation, _shown(found, seen, runs, planned, taken, now_ms))
    result.add_later(Work(Task.VERIFICATION_SCHEDULE, key), _wait_ms(planned, runs, now_ms))


def _wait_ms(planned: SchedulePlan, runs: Sequence[Started], now_ms: int) -> int:
    if planned.start_ms is not None or any(one.active for one in runs):
        return LOOK_MS
    due_ms = LOOK_MS_MAX if planned.next_ms is None else planned.next_ms - now_ms
    return max(LOOK_MS_MIN, min(LOOK_MS_MAX, due_ms))


# --- what is there --------------------------------------------------------------------------------


async def _listed(term: Term, found: VerificationSchedule) -> list[Object]:
    """Return the Verifications that this schedule owns, as just listed. The answer also updates the
    API server's time that `kube` remembers. Raises ApiError."""
    meta = found.metadata
    selector = f"{SCHEDULE}={meta.name}"
    listed = await term.kube.list(VERIFICATIONS, meta.namespace, label_selector=selector)
    return [body for body in listed.items if _is_owned(body, meta.uid)]


def _is_owned(body: Object, uid: str) -> bool:
    owners = body["metadata"].get("ownerReferences") or ()
    return uid in [one.get("uid") for one in owners]


def _started(body: Object) -> Started:
    meta, status = body["metadata"], body.get("status") or {}
    ends = [
        milliseconds(c["lastTransitionTime"])
        for c in status.get("conditions") or ()
        if c.get("type") in ("Complete", "Failed") and c.get("status") == "True"
    ]
    return Started(
        name=meta["name"],
        uid=meta["uid"],
        due_ms=_due_ms(meta),
        ended_ms=min(ends, default=None),
        verdict=str(status.get("verdict") or ""),
        going=bool(meta.get("deletionTimestamp")),
        begun=status.get("phase") in BEGUN,
    )


def _due_ms(meta: Object) -> int:
    """Return the due time that the Verification's annotation states, else the time of its creation,
    in milliseconds since 1970."""
    for stated in ((meta.get("annotations") or {}).get(DUE_TIME), meta.get("creationTimestamp")):
        try:
            return milliseconds(str(stated))
        except ValueError:
            continue
    return 0


def _seen_before(term: Term, found: VerificationSchedule, now_ms: int) -> _Seen:
    """Return the state that the object's status shows, which an earlier term wrote. A new object
    counts from its creation."""
    shown = term.objects.verification_schedules.choices(found.key)
    made = found.metadata.creation_timestamp
    made_ms = milliseconds(made) if made else now_ms
    return _Seen(
        handled_ms=_time(shown.get("lastScheduleTime"), 0) or None,
        counted_since_ms=_time(shown.get("countedSince"), made_ms),
        schedule=str(shown.get("scheduleSeen") or due_times(found.spec)),
        rows=run_rows.shown_before(shown),
    )


def _time(stated: object, default_ms: int) -> int:
    try:
        return milliseconds(str(stated))
    except ValueError:
        return default_ms


# --- what is done ---------------------------------------------------------------------------------


async def _carry_out(
    term: Term, result: PassResult, found: VerificationSchedule, planned: SchedulePlan
) -> str | None:
    """Delete and create the Verifications that the plan names. Return a sentence if the name of the
    Verification to create belongs to another object, else None. Raise Retry if the API server
    fails."""
    namespace = found.metadata.namespace
    for old, _ in planned.delete:
        try:
            await term.kube.delete(VERIFICATIONS, namespace, old.name, uid=old.uid)
        except (NotFound, Conflict):
            continue
        except ApiError as error:
            text = (
                f"the operator cannot delete Verification {namespace}/{old.name}, which the "
                f"schedule no longer keeps; {UNLESS_LASTING}: {error}"
            )
            raise Retry(text) from error
    if planned.start_ms is None:
        return None
    name = _name(found, planned.start_ms)
    try:
        return await _create(term, found, verification(found, name, planned.start_ms))
    except ApiError as error:
        text = (
            f"the operator cannot create Verification {namespace}/{name}, which is due; "
            f"{UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error


async def _create(term: Term, found: VerificationSchedule, manifest: Object) -> str | None:
    try:
        await term.kube.create(VERIFICATIONS, manifest)
    except Conflict:
        name = manifest["metadata"]["name"]
        there = await term.kube.get(VERIFICATIONS, found.metadata.namespace, name)
        if not _is_owned(there, found.metadata.uid):
            return (
                f"Verification {name} exists and does not belong to this schedule, so this start "
                "is left out. Delete it, or rename the schedule."
            )
    return None


def _name(found: VerificationSchedule, due_ms: int) -> str:
    at = datetime.fromtimestamp(due_ms / 1000, UTC)
    return f"{found.metadata.name}-{at:%Y%m%d-%H%M}"


# --- what is told ---------------------------------------------------------------------------------


def _note_ended(
    result: PassResult,
    found: VerificationSchedule,
    seen: _Seen,
    bodies: Sequence[Object],
    runs: Sequence[Started],
) -> None:
    """Add rows to `seen` for Verifications that have ended since the last pass. Report an Event if
    the newest verdict differs from the one before."""
    ended = [run_rows.row(b, one) for b, one in zip(bodies, runs, strict=True) if one.ended_ms]
    before = seen.rows
    seen.rows = run_rows.merged(before, ended)
    if not before or not seen.rows or seen.rows[0].name == before[0].name:
        return
    old, new = before[0], seen.rows[0]
    if old.verdict == new.verdict:
        return
    streak = next((n for n, one in enumerate(before) if one.verdict != old.verdict), len(before))
    name = found.metadata.name
    result.tell(
        Occurrence(
            key=f"schedule-{found.metadata.uid}-{new.name}",
            reason="ScheduledVerdictChanged",
            message=(
                f"VerificationSchedule {name}: Verification {new.name} ended with verdict "
                f"{new.verdict} ({new.reason}), after {counted(streak, 'run')} with "
                f"{old.verdict}."
            )[:LENGTH_MAX],
            warning=new.verdict != "Passed",
            about=about_seen(VERIFICATION_SCHEDULES.kind, found.metadata),
        )
    )


def _tell(result: PassResult, found: VerificationSchedule, planned: SchedulePlan) -> None:
    meta, about = found.metadata, about_seen(VERIFICATION_SCHEDULES.kind, found.metadata)
    if planned.missed or planned.late_ms >= LATE_MS:
        starts = counted(planned.missed, "earlier start")
        many = "at least " if planned.missed >= COUNTED_MAX else ""
        text = (
            f"the Verification that was due at {timestamp(planned.handled_ms)} starts "
            f"{planned.late_ms // 1000} s late"
        )
        text += f", and {many}{starts} will not be made up" if planned.missed else ""
        result.tell(
            Occurrence(
                key=f"schedule-{meta.uid}-missed-{planned.handled_ms}",
                reason="ScheduledStartMissed",
                message=(
                    f"VerificationSchedule {meta.name}: {text}, because no operator led the "
                    "cluster at that time, or the API server did not answer."
                ),
                warning=True,
                about=about,
            )
        )
    if planned.in_the_way:
        result.tell(
            Occurrence(
                key=f"schedule-{meta.uid}-skipped-{planned.handled_ms}",
                reason="ScheduledStartSkipped",
                message=f"VerificationSchedule {meta.name}: the Verification that is due at "
                f"{timestamp(planned.handled_ms)} is not started, since Verification "
                f"{', '.join(planned.in_the_way)} has not ended."[:LENGTH_MAX],
                warning=True,
                about=about,
            )
        )


def _shown(
    found: VerificationSchedule,
    seen: _Seen,
    runs: Sequence[Started],
    planned: SchedulePlan,
    taken: str | None,
    now_ms: int,
) -> VerificationScheduleStatus:
    next_ms, active = planned.next_ms, {one.name for one in runs if one.active}
    active -= {one.name for one, _ in planned.delete}
    if planned.start_ms is not None and taken is None:
        active.add(_name(found, planned.start_ms))
    if taken is not None:
        ready = condition("Ready", False, "NameTaken", taken)
    elif next_ms is None:
        ready = condition(
            "Ready", True, "Suspended", "No Verification is started, because spec.suspend is true."
        )
    else:
        text = f"The next Verification is due at {timestamp(next_ms)}."
        ready = condition("Ready", True, "Scheduled", text)
    proven = [
        Started(name=one.name, uid="", due_ms=milliseconds(one.due_time), verdict=one.verdict)
        for one in seen.rows
        if one.due_time
    ]
    listed = [one for one in runs if one.active]
    return msgspec.structs.replace(
        _status(seen, conditions=(ready, *_passing(seen.rows))),
        next_schedule_time=None if next_ms is None else timestamp(next_ms),
        periods_without_verdict=periods_without_verdict(
            found.spec, [*proven, *listed], seen.counted_since_ms, now_ms
        ),
        active=tuple(sorted(active)[:ACTIVE_MAX]),
    )


def _status(seen: _Seen, conditions: tuple[Condition, ...]) -> VerificationScheduleStatus:
    return VerificationScheduleStatus(
        last_schedule_time=None if seen.handled_ms is None else timestamp(seen.handled_ms),
        counted_since=timestamp(seen.counted_since_ms),
        schedule_seen=seen.schedule,
        runs=seen.rows,
        trend=run_rows.trend(seen.rows),
        conditions=conditions,
    )


def _passing(rows: Sequence[ScheduledRun]) -> tuple[Condition, ...]:
    """Return the condition Passing in a tuple: True if the newest verdict is Passed, False if
    Violated, else unknown. Return () before the first verdict."""
    if not rows:
        return ()
    new = rows[0]
    state = {"Passed": True, "Violated": False}.get(new.verdict)
    text = (
        f"The newest Verification, {new.name}, ended with verdict {new.verdict} "
        f"({new.reason or 'no reason'})."
    )
    return (condition("Passing", state, new.verdict or "Inconclusive", text),)
