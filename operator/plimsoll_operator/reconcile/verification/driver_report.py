"""Makes the status of a Verification from its driver's report. Pure.

The report is a ConfigMap written by the driver. The owner may choose the driver's image, and others
in the namespace may write the ConfigMap. So invalid content is left out, and an unknown verdict
counts as Inconclusive. The API server accepts the resulting status whatever the report contains.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll_core.phrasing import sentence_start
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.continuous import Example
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.verification import (
    Audited,
    Counts,
    Evidence,
    Phase,
    VerificationStatus,
)
from plimsoll_operator.api.workload import Capacity
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.manifests.verification import SparkDriver, timeout_seconds
from plimsoll_operator.reconcile.verification.report_content import (
    converted,
    reason_or,
    reported_timing,
)
from plimsoll_operator.reconcile.verification.rolling_report import (
    acknowledged_until,
    continuous,
    running,
)

VERDICT, PROGRESS = "verdict.json", "progress.json"
UNREADABLE = "ReportUnreadable"
VERDICTS = ("Passed", "Violated", "Inconclusive")
EXAMPLES_MAX = 20


def reported(report: Object, driver: SparkDriver) -> VerificationStatus | None:
    """Return the status by the report's verdict, or by its progress if it has no verdict; None if
    the driver has reported nothing."""
    data = report.get("data") or {}
    progress = _content(data[PROGRESS]) if PROGRESS in data else None
    state = None if progress is None else continuous(progress)
    if VERDICT in data:
        ended = _verdict(_content(data[VERDICT]), driver.report)
        if state is not None:
            until = acknowledged_until(driver.verification, state)
            state = msgspec.structs.replace(state, acknowledged=until)
        return msgspec.structs.replace(ended, continuous=state)
    if progress is not None and state is not None:
        return running(progress, driver.report, driver.verification, state)
    if progress is not None:
        return _progress(progress, driver)
    return None


def final(type_: str, reason: str, message: str) -> tuple[Condition, ...]:
    """Return the conditions of a run that has ended. `type_` is Complete or Failed; Ready is True
    for Complete."""
    return (
        condition(type_, True, reason, message),
        condition("Ready", type_ == "Complete", reason, message),
    )


def _content(text: str) -> dict[str, Any]:
    """Return the JSON object in an entry of the report, {} if it cannot be read."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _progress(content: dict[str, Any], driver: SparkDriver) -> VerificationStatus:
    phase: Phase = "Verifying" if content.get("phase") == "Verifying" else "Producing"
    text, timeout_s = (
        "The driver pod of the Verification is writing records to the topic.",
        timeout_seconds(driver.verification),
    )
    if driver.verification.spec.source is not None:
        text = (
            "The replicas are read and compared. The verdict is due deadlineSeconds "
            f"({driver.deadline_seconds}) after the start at the latest. Progress: "
            f"{driver.where_it_says}"
        )
    elif phase == "Verifying":
        text = (
            "The topic is read back and compared with what was acknowledged. The verdict is due "
            f"within verify.timeoutSeconds ({timeout_s}), and at the latest "
            f"deadlineSeconds ({driver.deadline_seconds}) after the start; records that other "
            f"clients write to the topic make it take longer. Progress: {driver.where_it_says}"
        )
    return VerificationStatus(
        phase=phase,
        verdict="",
        counts=converted(content.get("counts"), Counts),
        timing=reported_timing(content.get("timing")),
        evidence=Evidence(report_config_map=driver.report),
        conditions=(condition("Ready", False, phase, text),),
    )


def _verdict(content: dict[str, Any], name: str) -> VerificationStatus:
    verdict = content.get("verdict")
    if verdict not in VERDICTS:
        text = (
            "The Verification's driver pod has ended, but it left no valid verdict in ConfigMap "
            f"{name} (key {VERDICT}); see the pod's log."
        )
        return VerificationStatus(
            phase="Failed",
            verdict="Inconclusive",
            evidence=Evidence(report_config_map=name),
            conditions=final("Failed", UNREADABLE, text),
        )
    message = content.get("message")
    return VerificationStatus(
        phase="Failed" if verdict == "Inconclusive" else "Completed",
        verdict=verdict,
        counts=converted(content.get("counts"), Counts),
        timing=reported_timing(content.get("timing")),
        evidence=_evidence(content, name),
        audited=converted(content["audited"], Audited) if content.get("audited") else None,
        capacity=_capacity(content.get("facts")),
        conditions=final(
            "Complete" if verdict == "Passed" else "Failed",
            reason_or(content.get("reason"), verdict),
            _sentence(message) if isinstance(message, str) and message else "",
        ),
    )


def _capacity(facts: object) -> Capacity | None:
    """Return the result of a search for the highest rate, None if there is none."""
    found = facts.get("capacity") if isinstance(facts, dict) else None
    return None if found is None else converted(found, Capacity)


def _sentence(message: str) -> str:
    """Return the driver's message as a full sentence, as the messages of other conditions are."""
    return sentence_start(message) + ("" if message.endswith((".", "!", "?")) else ".")


def _examples(stated: object) -> tuple[Example, ...]:
    rows = stated[:EXAMPLES_MAX] if isinstance(stated, list) else []
    return tuple(converted(one, Example) for one in rows)


def _evidence(content: dict[str, Any], name: str) -> Evidence:
    """Return the details of a verdict, and where the driver kept its evidence."""
    kept = content.get("evidence")
    stated = kept if isinstance(kept, dict) else {}
    examples = _examples(content.get("examples"))
    try:
        return msgspec.convert(
            {"reportConfigMap": name, "examples": examples}
            | {key: stated[key] for key in ("run", "place", "missing") if stated.get(key)},
            Evidence,
        )
    except msgspec.ValidationError:
        return Evidence(report_config_map=name, examples=examples)
