"""Makes the status of a continuous Verification from its driver's report, and the Event about a
change of its verdict. Pure.

A violated window keeps the verdict Violated until the owner acknowledges it by an annotation. From
then on the verdict is that of the newest window, and what is acknowledged is shown beside it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll_core.phrasing import sentence_start
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import condition, milliseconds
from plimsoll_operator.api.continuous import (
    MESSAGE_MAX,
    RECENT_MAX,
    Continuous,
    EndedWindow,
    Example,
    Window,
)
from plimsoll_operator.api.verification import Evidence, Verdict, Verification, VerificationStatus
from plimsoll_operator.kube.resources import VERIFICATIONS
from plimsoll_operator.reconcile.verification.report_content import (
    converted,
    known_time,
    reason_or,
    reported_counts,
    reported_timing,
)
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_seen

VERDICTS: tuple[Verdict, ...] = ("Passed", "Violated", "Inconclusive")
STARTED = (
    "The driver pod writes and reads records; the first window of the Verification has not ended "
    "yet."
)


def continuous(content: dict[str, Any]) -> Continuous | None:
    """Return the state in `progress.json`; None if it is not of a continuous run."""
    stated = content.get("rolling")
    if not isinstance(stated, dict):
        return None
    numbers = {name: stated[name] for name in _NUMBERS if name in stated}
    loss = stated.get("lastLoss")
    return msgspec.structs.replace(
        converted(numbers, Continuous),
        since=known_time(stated.get("since")),
        window=_known_window(stated.get("window")),
        last_violation=_known_window(stated.get("lastViolation")),
        last_loss=converted(loss, Example) if isinstance(loss, dict) else None,
        last_loss_time=known_time(stated.get("lastLossTime")),
        recent=_recent(stated.get("recent")),
    )


_NUMBERS = ("windowSeconds", "drivers", "passed", "violated", "inconclusive", "waiting", "behind")
_FIGURES = ("acked", "recordsPerSecond", "p99Milliseconds")


def _recent(stated: object) -> tuple[EndedWindow, ...]:
    rows = stated[:RECENT_MAX] if isinstance(stated, list) else []
    return tuple(_ended(one) for one in rows if isinstance(one, dict))


def _ended(stated: dict[str, Any]) -> EndedWindow:
    window = _window(stated)
    figures = {name: stated[name] for name in _FIGURES if name in stated}
    return msgspec.structs.replace(
        converted(figures, EndedWindow),
        start=window.start,
        end=window.end,
        verdict=window.verdict,
        reason=window.reason,
    )


def _known_window(stated: object) -> Window | None:
    return _window(stated) if isinstance(stated, dict) else None


def _window(stated: dict[str, Any]) -> Window:
    message, verdict = stated.get("message"), stated.get("verdict")
    known: Verdict = next((one for one in VERDICTS if one == verdict), "Inconclusive")
    return Window(
        start=known_time(stated.get("start")),
        end=known_time(stated.get("end")),
        verdict=known,
        reason=reason_or(stated.get("reason"), known),
        message=message[:MESSAGE_MAX] if isinstance(message, str) else "",
    )


def running(
    content: dict[str, Any], report: str, verification: Verification, state: Continuous
) -> VerificationStatus:
    """Return the status of a run that goes on. `content`: of `progress.json`; `report`: the name of
    the ConfigMap; `state`: that of `content`."""
    until = acknowledged_until(verification, state)
    state = msgspec.structs.replace(state, acknowledged=until)
    shown, verdict = state.window, ""
    if state.last_violation is not None and until is None:
        shown = state.last_violation
    if shown is None:
        ready = condition("Ready", False, "Running", STARTED)
    else:
        verdict = shown.verdict
        ready = condition(
            "Ready",
            verdict == "Passed",
            shown.reason or verdict,
            _words(verification, shown, until),
        )
    return VerificationStatus(
        phase="Running",
        verdict=next((one for one in VERDICTS if one == verdict), ""),
        counts=reported_counts(content.get("counts")),
        timing=reported_timing(content.get("timing")),
        evidence=Evidence(report_config_map=report),
        continuous=state,
        conditions=(ready,),
    )


def acknowledged_until(verification: Verification, state: Continuous) -> str | None:
    """Return the time up to which violations are acknowledged, as the annotation states it; None if
    there is no violation, or the last one is not acknowledged."""
    last = state.last_violation
    stamp = verification.metadata.annotations.get(labels.ACKNOWLEDGE_VIOLATION, "")
    try:
        covered = last is not None and last.end and milliseconds(stamp) >= milliseconds(last.end)
    except ValueError:
        return None
    return known_time(stamp) if covered else None


def _words(verification: Verification, window: Window, until: str | None) -> str:
    message = sentence_start(window.message).rstrip(".")
    before = ""
    if until is not None:
        before = (
            " An earlier window violated a check. A person has acknowledged all violations up to "
            f"{until}, so they no longer count."
        )
    if window.verdict == "Passed":
        return f"Passed so far. The window that ended at {window.end}: {message}.{before}"
    text = f"The Verification's window that ended at {window.end}: {message}.{before}"
    if window.verdict == "Violated":
        meta = verification.metadata
        text += (
            " When you have found the cause, acknowledge the violation: kubectl annotate"
            f" --overwrite verification {meta.name} -n {meta.namespace}"
            f" {labels.ACKNOWLEDGE_VIOLATION}={window.end}."
        )
    return text


def changed(
    verification: Verification,
    status: VerificationStatus,
    verdict: str,
    before: VerificationStatus | None,
) -> Occurrence | None:
    """Return the Event about a new verdict, or about another violated window; None if there is
    none. `verdict`: the one that was shown last; `before`: the last status of this term."""
    state = status.continuous
    if state is None or not status.verdict:
        return None
    last = state.last_violation
    known = before.continuous.last_violation if before and before.continuous else last
    again = status.verdict == "Violated" and (last and last.start) != (known and known.start)
    if status.verdict == verdict and not again:
        return None
    meta, why = verification.metadata, status.conditions[0].message
    start = last.start if last is not None and status.verdict == "Violated" else ""
    return Occurrence(
        key=f"continuous-{meta.uid}-{status.verdict}-{start}",
        reason="ContinuousVerdictChanged",
        message=f"Verification {meta.name}: {status.verdict}. {why}"[:LENGTH_MAX],
        warning=status.verdict != "Passed",
        about=about_seen(VERIFICATIONS.kind, meta),
    )
