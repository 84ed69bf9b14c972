"""Injects the faults of a Verification's drill while the driver writes.

The record of a drill is `status.drillRecord` of the Verification. A fault is noted there before it
is injected, under the object's resourceVersion, so it is injected at most once, whichever operator
leads. If a later pass finds a fault that is noted but has no outcome, its outcome is Unknown; but
an operator that noted KillOperator and leads no longer was killed. The key `drill.json` of the
report's ConfigMap is a copy for the driver's report: others may write it, and it is never read.

Times count from the first acknowledgement that the operator saw, by the API server's clock. A run
that passed although a fault was not injected is Inconclusive (DrillIncomplete).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.drill import (
    FOR_DEFAULT,
    FOR_SECONDS_MAX,
    DrillMark,
    DrillRecord,
    DrillStep,
    StepRecord,
)
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.api.verification import Verification, VerificationStatus
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CONFIG_MAPS, VERIFICATIONS
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.verification.drill_faults import Injection, NotInjected, inject
from plimsoll_operator.reconcile.verification.driver_report import final
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_seen

KEY = "drill.json"
NOTES_MAX = 5
"""The most attempts to note the outcome of a fault, each after a conflict with another write of the
status."""
PAUSES_ONLY_LOCALLY = (
    "The drill's fault PauseBroker is not possible, because Kubernetes offers the operator no way "
    "to pause a process. Use KillBroker, or try PauseBroker with plimsoll local."
)
ONLY_ON_KUBERNETES = ("CutApiServer", "Evict", "LoseVolume")
SHARED = ("CutApiServer", "Evict", "KillOperator")
"""Faults that only an installation with `verification.drills` offers: of what all LogClusters
share, and Evict, for which the operator has no right otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPass:
    """Result of one pass over a drill. `record`: the drill's record, None if the drill has not
    begun. `wait_ms`: milliseconds until the next fault is due; None if none is left."""

    record: DrillRecord | None
    wait_ms: int | None = None


def refusal(term: Term, verification: Verification) -> VerificationStatus | None:
    """Return None if the Verification has no drill, or its drill can be carried out. Else return a
    failed status, with which no driver starts: the Verification is an audit, the LogCluster does
    not allow drills, or this installation cannot inject one of the faults."""
    drill = verification.spec.drill
    if drill is None:
        return None
    if verification.spec.produce is None:
        text = (
            "The Verification has a drill but no spec.produce, and a drill needs records to be "
            "written. No driver pod was started. Add spec.produce, and create the Verification "
            "again."
        )
        return _refused("FaultNotOffered", text)
    if not _allowed(term):
        text = (
            f"LogCluster {term.key[1]} does not allow drills, so no driver pod was started. Set "
            "maintenance.allowDrills: true, which restarts all brokers one after another, and "
            "create the Verification again."
        )
        return _refused("DrillsNotAllowed", text)
    for step in drill:
        if why := _not_offered(term, step):
            return _refused(
                "FaultNotOffered", f"{why} No driver pod was started for the Verification."
            )
    return None


def _not_offered(term: Term, step: DrillStep) -> str:
    """Return the reason why this installation cannot inject the fault, as a sentence; "" if it
    can."""
    fault, local = step.fault, term.options.local_faults
    if fault == "PauseBroker":
        return "" if local else PAUSES_ONLY_LOCALLY
    if seconds(step.for_ or FOR_DEFAULT) > FOR_SECONDS_MAX:
        return (
            f"The drill's fault {fault} may last {FOR_SECONDS_MAX} s at most; state a shorter "
            "`for`."
        )
    if local and fault in ONLY_ON_KUBERNETES:
        return f"The drill's fault {fault} needs Kubernetes; plimsoll local does not offer it."
    if fault in SHARED and not term.options.shared_drills:
        return (
            f"The drill's fault {fault} needs a chart that was installed with "
            "verification.drills=true."
        )
    return ""


async def follow(
    term: Term,
    result: PassResult,
    verification: Verification,
    report: Object | None,
    status: VerificationStatus,
) -> tuple[VerificationStatus, int | None]:
    """While the driver writes, begin the drill, or inject its next fault if that is due. Return the
    status with the outcomes, and the milliseconds until the next fault is due; None if none is left
    or the driver does not write. If `status` is final, inject nothing and return it as judged
    (`judged`). `report`: the ConfigMap, None if there is none yet. Raises ApiError."""
    if verification.spec.drill is None:
        return status, None
    seen = await _seen(term, verification)
    if seen is None:
        return status, None
    record = recorded(verification, seen)
    if record is not None:
        record = _settled(record, term.image.controller_epoch)
    if status.phase in ("Completed", "Failed"):
        return judged(verification, record, status), None
    writes = status.counts is not None and status.counts.acked > 0
    due = status.phase in ("Producing", "Running") and (writes or record is not None)
    if report is None or not due:
        return replace(status, drill=marks(record)), None
    done = await carry_out(term, result, verification, seen)
    await _show(term, report, done.record)
    return replace(status, drill=marks(done.record)), done.wait_ms


async def carry_out(
    term: Term, result: PassResult, verification: Verification, seen: Object
) -> DrillPass:
    """Note that a drill begins now; or inject the next fault if it is due, note its outcome, and
    report an Event. Nothing is injected if the Verification has changed since it was read:
    `wait_ms` is 0 then. `seen`: the Verification as just read. Raises ApiError."""
    drill, now_ms = verification.spec.drill or (), term.server_ms()
    record = recorded(verification, seen)
    if record is None:
        begun = DrillRecord(began_ms=now_ms)
        if await _note(term, seen, begun) is None:
            return DrillPass(record=None, wait_ms=0)
        return DrillPass(record=begun, wait_ms=_wait_ms(drill, begun, now_ms))
    record = _settled(record, term.image.controller_epoch)
    number = len(record.steps)
    if number < len(drill) and _due_ms(drill[number], record) <= now_ms:
        step = drill[number]
        noted = StepRecord(
            number=number,
            fault=step.fault,
            at_ms=now_ms,
            result="Begun",
            epoch=term.image.controller_epoch,
        )
        stored = await _note(term, seen, _with(record, noted))
        if stored is None:
            return DrillPass(record=record, wait_ms=0)  # another write of the status came first
        done, then = await _inject(term, verification, step, noted)
        record = _with(record, done)
        certain = await _note_outcome(term, verification, stored, record)
        _tell(result, verification, done)
        if certain and then is not None:
            then()
    return DrillPass(record=record, wait_ms=_wait_ms(drill, record, now_ms))


def recorded(verification: Verification, seen: Object) -> DrillRecord | None:
    """Return the record in the Verification's status, None if there is none. If it cannot be read,
    the outcome of every fault is Unknown. `seen`: the Verification as read."""
    stated = (seen.get("status") or {}).get("drillRecord")
    try:
        return None if stated is None else msgspec.convert(stated, DrillRecord)
    except msgspec.ValidationError:
        text = (
            "The drill has stopped, because its record in the Verification's status is "
            "unreadable; create the Verification again."
        )
        faults = enumerate(one.fault for one in verification.spec.drill or ())
        steps = (
            StepRecord(number=number, fault=fault, at_ms=0, result="Unknown", message=text)
            for number, fault in faults
        )
        return DrillRecord(began_ms=0, steps=tuple(steps))


def marks(record: DrillRecord | None) -> tuple[DrillMark, ...]:
    """Return the outcomes in the record, as the status shows them."""
    return tuple(
        DrillMark(
            fault=one.fault,
            time=timestamp(one.at_ms),
            until=None if one.until_ms is None else timestamp(one.until_ms),
            result=one.result,
            message=one.message,
        )
        for one in (record.steps if record is not None else ())
    )


def judged(
    verification: Verification, record: DrillRecord | None, status: VerificationStatus
) -> VerificationStatus:
    """Return the final status with the drill's marks. A Passed run becomes Inconclusive if a fault
    of its drill was not injected. `record`: settled."""
    drill = verification.spec.drill
    if drill is None:
        return status
    status = replace(status, drill=marks(record))
    done = record.steps if record is not None else ()
    if status.verdict != "Passed" or _all_injected(drill, done):
        return status
    missing = [f"{one.fault} ({one.result}: {one.message})" for one in done if _failed(one)]
    missing += [f"{one.fault} at {one.at} (the run had ended)" for one in drill[len(done) :]]
    text = (
        "Every check of the Verification passed, but these faults of its drill were not "
        f"injected: {'; '.join(missing)}."
    )
    ended = final("Failed", "DrillIncomplete", text)
    return replace(status, phase="Failed", verdict="Inconclusive", conditions=ended)


def _all_injected(drill: Sequence[DrillStep], done: Sequence[StepRecord]) -> bool:
    return len(done) == len(drill) and not any(_failed(one) for one in done)


def _failed(one: StepRecord) -> bool:
    return one.result != "Injected"


def _allowed(term: Term) -> bool:
    maintenance = None if term.cluster is None else term.cluster.spec.maintenance
    return bool(maintenance and maintenance.allow_drills)


def _refused(reason: str, message: str) -> VerificationStatus:
    return VerificationStatus(
        phase="Failed", verdict="Inconclusive", conditions=final("Failed", reason, message)
    )


async def _inject(
    term: Term, verification: Verification, step: DrillStep, begun: StepRecord
) -> tuple[StepRecord, Callable[[], None] | None]:
    """Inject the fault of a step. Return its outcome, and what to do once that is noted."""
    try:
        if not _allowed(term):
            raise NotInjected(
                "The drill did not inject its fault, because the LogCluster no longer allows "
                "drills. Set maintenance.allowDrills: true, and create the Verification again."
            )
        if hold := hour_hold(term.controller.settings.hours, VoluntaryWork.DRILL):
            raise NotInjected(
                "The drill did not inject its fault, because the LogCluster allows none until "
                f"{hold.until}; create a Verification again then."
            )
        done: Injection = await inject(term, verification, step, begun.number)
    except NotInjected as why:
        return replace(begun, result="Refused", message=str(why)), None
    outcome = replace(begun, result="Injected", message=done.said, until_ms=done.until_ms)
    return outcome, done.then


def _settled(record: DrillRecord, epoch: int) -> DrillRecord:
    """Return the record with an outcome for each fault that an earlier pass noted and never
    finished. `epoch`: the present controller epoch. A fault KillOperator of an earlier epoch was
    injected: its operator leads no longer. The outcome of any other is Unknown."""
    steps = tuple(_settled_step(one, epoch) for one in record.steps)
    return replace(record, steps=steps)


def _settled_step(step: StepRecord, epoch: int) -> StepRecord:
    if step.result != "Begun":
        return step
    if step.fault == "KillOperator" and 0 < step.epoch < epoch:
        text = (
            f"The drill killed the operator that led with controller epoch {step.epoch}; an "
            f"operator leads with epoch {epoch} now."
        )
        return replace(step, result="Injected", message=text)
    text = (
        "The operator was restarted while it injected the drill's fault, and does not know whether "
        "the fault took effect. It does not inject the fault again. To repeat the drill, create "
        "another Verification."
    )
    return replace(step, result="Unknown", message=text)


def _with(record: DrillRecord, step: StepRecord) -> DrillRecord:
    return replace(record, steps=(*record.steps[: step.number], step))


def _due_ms(step: DrillStep, record: DrillRecord) -> int:
    return record.began_ms + 1_000 * seconds(step.at)


def _wait_ms(drill: Sequence[DrillStep], record: DrillRecord, now_ms: int) -> int | None:
    if len(record.steps) >= len(drill):
        return None
    return max(0, _due_ms(drill[len(record.steps)], record) - now_ms)


async def _seen(term: Term, verification: Verification) -> Object | None:
    """Return the Verification as the API server has it now, None if it is gone. Raises ApiError."""
    meta = verification.metadata
    try:
        found = await term.kube.get(VERIFICATIONS, meta.namespace, meta.name)
    except NotFound:
        return None
    return found if found["metadata"]["uid"] == meta.uid else None


async def _note(term: Term, seen: Object, record: DrillRecord) -> Object | None:
    """Write the record to the status of the Verification and return the stored object; return None
    if it has changed since it was read as `seen`. Raises ApiError."""
    meta, status = seen["metadata"], {"drillRecord": msgspec.to_builtins(record)}
    version = meta["resourceVersion"]
    try:
        return await term.kube.merge_status(
            VERIFICATIONS, meta["namespace"], meta["name"], status, version=version
        )
    except Conflict:
        return None


async def _note_outcome(
    term: Term, verification: Verification, stored: Object, record: DrillRecord
) -> bool:
    """Write the record with an outcome, `NOTES_MAX` times at most, and return True. Return False if
    that fails: a later pass takes the outcome for Unknown. `stored`: the Verification as last
    written. Raises ApiError."""
    seen: Object | None = stored
    for _ in range(NOTES_MAX):
        if seen is None:
            return False
        if await _note(term, seen, record) is not None:
            return True
        seen = await _seen(term, verification)
    return False


async def _show(term: Term, report: Object, record: DrillRecord | None) -> None:
    """Write the record to the report's ConfigMap for the driver, unless it is there. A failure is
    ignored: the next pass writes it again, and nothing depends on it."""
    text = msgspec.json.encode(record).decode()
    if record is None or (report.get("data") or {}).get(KEY) == text:
        return
    meta = report["metadata"]
    with suppress(ApiError):
        patch = {"metadata": {"uid": meta["uid"]}, "data": {KEY: text}}
        await term.kube.merge(CONFIG_MAPS, meta["namespace"], meta["name"], patch)


def _tell(result: PassResult, verification: Verification, done: StepRecord) -> None:
    meta = verification.metadata
    result.tell(
        Occurrence(
            key=f"drill-{meta.uid}-{done.number}",
            reason="DrillFault",
            message=f"Drill of Verification {meta.name}: {done.fault} ({done.result}). "
            f"{done.message}"[:LENGTH_MAX],
            warning=True,
            about=about_seen(VERIFICATIONS.kind, meta),
        )
    )
