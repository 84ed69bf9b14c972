"""Reasons of all Events that the operator writes, with their meaning.

`python -m plimsoll_operator.status.event_reasons docs/events.md` writes the table. A test fails if
the table is outdated, or if the code uses a reason that is not listed here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_core.errors import Reason
from plimsoll_operator.api.labels import REPORTING_CONTROLLER

ONLY_CLUSTER = "LogCluster"


@dataclass(frozen=True, slots=True)
class EventReason:
    """One row of docs/events.md: a reason of Events and its meaning. `type`: Normal or Warning, or
    a text that says when each applies. `about`: the kind of object that shows the Event in addition
    to the LogCluster."""

    reason: str
    type: str
    about: str
    meaning: str


def _phases(kind: str) -> tuple[EventReason, ...]:
    return (
        EventReason(f"{kind}Running", "Normal", kind, "The object runs, also after a pause."),
        EventReason(f"{kind}Paused", "Normal", kind, "The object is paused (`spec.paused`)."),
        EventReason(f"{kind}Completed", "Normal", kind, "The object has completed."),
        EventReason(f"{kind}Cancelled", "Normal", kind, "The object was cancelled or deleted."),
        EventReason(
            f"{kind}Failed", "Warning", kind, "The object cannot be carried out; the note says why."
        ),
    )


def _waits(action: str) -> EventReason:
    return EventReason(
        f"{action}Blocked",
        "Warning",
        ONLY_CLUSTER,
        "An action or object waits for the condition that the note names; `status.blocked` shows "
        "it.",
    )


REASONS = (
    EventReason(
        "BrokerFenced",
        "Normal in a granted restart or a drain, else Warning",
        ONLY_CLUSTER,
        "A broker was fenced: it leads nothing and is in no ISR. The note says why, and what "
        "happened to its partitions.",
    ),
    EventReason("BrokerUnfenced", "Normal", ONLY_CLUSTER, "A broker is active."),
    EventReason(
        "VolumeEmptied",
        "Warning",
        ONLY_CLUSTER,
        "A broker returned with an empty volume; its replicas are copied from other brokers.",
    ),
    EventReason(
        "UncleanElection",
        "Warning",
        "Topic",
        "Partitions got a leader that may lack acknowledged records; the note names them.",
    ),
    EventReason(
        "TopicRefused", "Warning", "Topic", "A Topic's spec was refused; the note says why."
    ),
    EventReason(
        "TopicAccepted",
        "Normal",
        "Topic",
        "A Topic's spec that was refused before is now in effect.",
    ),
    EventReason(
        "TopicDetached",
        "Warning",
        "Topic",
        "The namespace may no longer declare topics; topic and data stay, without an object.",
    ),
    EventReason(
        "TopicPendingDeletion",
        "Normal",
        ONLY_CLUSTER,
        "A Topic object was deleted; the topic serves until its grace period ends.",
    ),
    EventReason(
        "UserPendingDeletion",
        "Normal",
        ONLY_CLUSTER,
        "A User object was deleted; the user may log in until its grace period ends.",
    ),
    EventReason(
        "TopicHandedOver",
        "Normal",
        "Topic",
        "A Topic object was deleted; another one that declares the same topic has taken it over.",
    ),
    EventReason(
        "UserHandedOver",
        "Normal",
        "User",
        "A User object was deleted; another one that declares the same user has taken it over.",
    ),
    EventReason("TopicRemoved", "Normal", ONLY_CLUSTER, "A topic and its data were deleted."),
    EventReason(
        Reason.MassDeletion.name,
        "Warning",
        ONLY_CLUSTER,
        "More Topics were deleted within an hour than `topics.deletion.maxPerHour`, or more Users "
        "of a namespace than `users.deletion.maxPerHour`. None is removed until you acknowledge "
        "it.",
    ),
    *_phases("Reassignment"),
    EventReason(
        "RebalanceAwaitsApproval",
        "Normal",
        "Rebalance",
        "A plan awaits approval: set `spec.approvedPlan` to the value of `status.plan.hash`.",
    ),
    *_phases("Rebalance"),
    EventReason("VerificationPassed", "Normal", "Verification", "Every check passed."),
    EventReason(
        "VerificationViolated", "Warning", "Verification", "A check failed; the note says which."
    ),
    EventReason(
        "VerificationInconclusive",
        "Warning",
        "Verification",
        "The run did not complete, so it proves nothing; the note says why.",
    ),
    EventReason(
        "DrillFault",
        "Warning",
        "Verification",
        "A drill's fault was injected or refused; the note says what was done, or why not.",
    ),
    EventReason(
        "ContinuousVerdictChanged",
        "Normal for Passed, else Warning",
        "Verification",
        "A continuous Verification has another verdict, or another violated window.",
    ),
    EventReason(
        "ScheduledVerdictChanged",
        "Normal for Passed, else Warning",
        "VerificationSchedule",
        "A scheduled Verification has another verdict than the one before.",
    ),
    EventReason(
        "ScheduledStartMissed",
        "Warning",
        "VerificationSchedule",
        "Starts were missed; only the newest is made up for.",
    ),
    EventReason(
        "ScheduledStartSkipped",
        "Warning",
        "VerificationSchedule",
        "A start was left out, since the Verification before it has not ended.",
    ),
    EventReason(
        "RestartGranted",
        "Normal",
        ONLY_CLUSTER,
        "The controller allowed a broker's restart: no partition needs the broker meanwhile.",
    ),
    EventReason(
        "RestartEnded",
        "Normal",
        ONLY_CLUSTER,
        "The broker is back and in sync, or its restart was withdrawn.",
    ),
    _waits("Restart"),
    _waits("ReplacePod"),
    _waits("Drain"),
    _waits("Start"),
    _waits("GrowVolume"),
    _waits("FinalizeMetadata"),
    _waits("Hibernate"),
    EventReason(
        "Hibernated",
        "Normal",
        ONLY_CLUSTER,
        "`spec.hibernated` is true: the partitions have no leaders, and the brokers stop one after "
        "another.",
    ),
    EventReason("Woken", "Normal", ONLY_CLUSTER, "Brokers are back and lead again."),
    _waits("Rebalance"),
    _waits("Reassignment"),
    _waits("Verification"),
    _waits("User"),
    EventReason(
        "Restored",
        "Warning",
        ONLY_CLUSTER,
        "Another client changed or deleted an object of the operator; the operator restored it.",
    ),
    EventReason(
        "PodMonitorRefused",
        "Warning",
        ONLY_CLUSTER,
        "The operator cannot create the PodMonitor of `spec.podMonitor`; the note says why.",
    ),
    EventReason("ControllerChanged", "Normal", ONLY_CLUSTER, "A new controller term began."),
    EventReason(
        "ClusterContinued",
        "Normal",
        ONLY_CLUSTER,
        "A LogCluster that was applied again continues the cluster that left volumes under its "
        "name.",
    ),
    EventReason(
        "ControllerOutage",
        "Warning",
        ONLY_CLUSTER,
        "No operator led the cluster for longer than a usual take-over.",
    ),
    EventReason(
        "PeerRefused",
        "Warning",
        ONLY_CLUSTER,
        "The operator refused a connection to the controllers' port, because the peer is not a "
        "broker of the cluster; at most once a minute for each reason.",
    ),
    EventReason(
        "MetadataLogMended",
        "Warning",
        ONLY_CLUSTER,
        "Objects of the metadata log were deleted; the controller wrote them again.",
    ),
    EventReason(
        "MetadataRestored",
        "Warning",
        ONLY_CLUSTER,
        "The metadata log had lost records and was restored from the brokers' copies.",
    ),
    EventReason(
        Reason.MetadataRegressed.name,
        "Warning",
        ONLY_CLUSTER,
        "The metadata log lacks records that brokers hold, and is not restored without a person.",
    ),
    EventReason(
        Reason.MetadataTooNew.name,
        "Warning",
        ONLY_CLUSTER,
        "A newer release wrote to the metadata log; this operator does not lead the cluster.",
    ),
)

_HEAD = f"""# Events

Events (`events.k8s.io/v1`, reporting controller `{REPORTING_CONTROLLER}`) say what happened; each
object's conditions show its present state. `kubectl describe` shows them with the LogCluster and
with the object that its entry names; a Topic's are in its namespace. A repeated Event is written
once a minute, at most 5 Events a second.

Made by `python -m plimsoll_operator.status.event_reasons docs/events.md`.

"""


def render() -> str:
    """Return the text of docs/events.md: a line for each meaning, in the order of the first
    reasons."""
    alike: dict[tuple[str, str], list[EventReason]] = {}
    for row in sorted(REASONS, key=lambda row: row.reason):
        alike.setdefault((row.type, row.meaning), []).append(row)
    return _HEAD + "".join(map(_line, alike.values()))


def _line(rows: Sequence[EventReason]) -> str:
    """`rows`: reasons of one type and meaning."""
    names = ", ".join(f"`{row.reason}`" for row in rows)
    also = ", ".join(dict.fromkeys(row.about for row in rows if row.about != ONLY_CLUSTER))
    kinds = f"; {also}" if also else ""
    return f"- {names} ({rows[0].type}{kinds}): {rows[0].meaning}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
