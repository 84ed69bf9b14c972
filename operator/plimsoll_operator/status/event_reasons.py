"""Reasons of all Events that the operator writes, with their meaning.

`python -m plimsoll_operator.status.event_reasons docs/events.md` writes the table. A test compares
it and fails if the code uses a reason that is not listed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from plimsoll_core.errors import Reason
from plimsoll_operator.api.labels import REPORTING_CONTROLLER

ONLY_CLUSTER = "LogCluster"


@dataclass(frozen=True, slots=True)
class EventReason:
    """One row of docs/events.md.

    `type`: Normal or Warning, or when each applies. `about`: the kind of object that shows the
    Event beside the LogCluster.
    """

    reason: str
    type: str
    about: str
    meaning: str


def _phases(kind: str, begun: str) -> tuple[EventReason, ...]:
    return (
        EventReason(f"{kind}Running", "Normal", kind, f"{begun}, or runs again."),
        EventReason(f"{kind}Paused", "Normal", kind, "`paused` is set."),
        EventReason(f"{kind}Completed", "Normal", kind, "It is done."),
        EventReason(f"{kind}Cancelled", "Normal", kind, "It was cancelled, or its object deleted."),
        EventReason(f"{kind}Failed", "Warning", kind, "It cannot be done; the note says why."),
    )


def _waits(action: str, what: str) -> EventReason:
    return EventReason(f"{action}Blocked", "Warning", ONLY_CLUSTER, f"{what} waits.")


REASONS = (
    EventReason(
        "BrokerFenced",
        "Normal in a granted restart or a drain, else Warning",
        ONLY_CLUSTER,
        "A broker takes no part any more; the note says why, and what became of what it led.",
    ),
    EventReason("BrokerUnfenced", "Normal", ONLY_CLUSTER, "A broker takes part."),
    EventReason(
        "VolumeEmptied",
        "Warning",
        ONLY_CLUSTER,
        "A broker came back with none of the data that it had; it is copied from others.",
    ),
    EventReason(
        "UncleanElection",
        "Warning",
        "Topic",
        "Partitions are led by a replica that may lack acknowledged records.",
    ),
    EventReason("TopicRefused", "Warning", "Topic", "A Topic's spec cannot be followed."),
    EventReason("TopicAccepted", "Normal", "Topic", "A spec that was refused is followed now."),
    EventReason(
        "TopicDetached",
        "Warning",
        "Topic",
        "The namespace may declare no topics any more: topic and data stay, without an object.",
    ),
    EventReason(
        "TopicPendingDeletion",
        "Normal",
        ONLY_CLUSTER,
        "A Topic's object is gone: the topic serves until its grace ends.",
    ),
    EventReason(
        "UserPendingDeletion",
        "Normal",
        ONLY_CLUSTER,
        "A User's object is gone: the user may log in until its grace ends.",
    ),
    EventReason(
        "TopicHandedOver",
        "Normal",
        "Topic",
        "A Topic's object is gone and another one declares the same topic: it has the topic now.",
    ),
    EventReason(
        "UserHandedOver",
        "Normal",
        "User",
        "A User's object is gone and another one declares the same user: it has the user now.",
    ),
    EventReason("TopicRemoved", "Normal", ONLY_CLUSTER, "A topic is gone, with its data."),
    EventReason(
        Reason.MassDeletion.name,
        "Warning",
        ONLY_CLUSTER,
        "More Topics disappeared than `topics.deletion.maxPerHour`, or Users of one namespace than"
        " `users.deletion.maxPerHour`: none goes until a person says so.",
    ),
    *_phases("Reassignment", "It runs"),
    EventReason(
        "RebalanceAwaitsApproval",
        "Normal",
        "Rebalance",
        "A plan waits until `spec.approvedPlan` has the hash that `status.plan.hash` shows.",
    ),
    *_phases("Rebalance", "It runs"),
    EventReason("VerificationPassed", "Normal", "Verification", "Every check held."),
    EventReason("VerificationViolated", "Warning", "Verification", "A check did not hold."),
    EventReason(
        "VerificationInconclusive",
        "Warning",
        "Verification",
        "The run broke, not the log: nothing is proven.",
    ),
    EventReason(
        "RestartGranted", "Normal", ONLY_CLUSTER, "A broker is restarted; nothing depends on it."
    ),
    EventReason(
        "RestartEnded", "Normal", ONLY_CLUSTER, "It is back and in sync, or the restart was undone."
    ),
    _waits("Restart", "A restart"),
    _waits("ReplacePod", "The replacement of a pod on a lost node"),
    _waits("Drain", "The emptying of a broker"),
    _waits("Start", "The start of moves"),
    _waits("GrowVolume", "The growth of a volume"),
    _waits("FinalizeMetadata", "A newer metadata version"),
    _waits("Rebalance", "A Rebalance"),
    _waits("Reassignment", "A Reassignment"),
    _waits("Verification", "A Verification"),
    _waits("User", "A User"),
    EventReason(
        "Restored",
        "Warning",
        ONLY_CLUSTER,
        "Another client changed or deleted what the operator had made; it is restored.",
    ),
    EventReason(
        "PodMonitorRefused",
        "Warning",
        ONLY_CLUSTER,
        "`spec.podMonitor` asks for a PodMonitor that the operator may not, or cannot, make.",
    ),
    EventReason("ControllerChanged", "Normal", ONLY_CLUSTER, "Another term of a controller began."),
    EventReason(
        "ControllerOutage", "Warning", ONLY_CLUSTER, "No operator led for longer than usual."
    ),
    EventReason(
        "PeerRefused",
        "Warning",
        ONLY_CLUSTER,
        "The operator refused a caller of the controllers' port as no broker; at most once a"
        " minute for each reason.",
    ),
    EventReason(
        "MetadataLogMended",
        "Warning",
        ONLY_CLUSTER,
        "Objects of the metadata log were deleted; the controller wrote them again.",
    ),
    EventReason(
        Reason.MetadataRegressed.name,
        "Warning",
        ONLY_CLUSTER,
        "The metadata log lacks what brokers hold: no operator decides until a person helps.",
    ),
    EventReason(
        Reason.MetadataTooNew.name,
        "Warning",
        ONLY_CLUSTER,
        "A newer release wrote to the metadata log: this operator does not lead.",
    ),
)

_HEAD = f"""# Events

Events (`events.k8s.io/v1`, reporting controller `{REPORTING_CONTROLLER}`) say what happened; each
object's conditions say what is so now. `kubectl describe` shows them with the LogCluster and with
the object that its entry names; a Topic's are in its namespace. A repeated Event is written once a
minute, at most 5 Events a second. Events `…Blocked` name the condition that the action waits for;
`status.blocked` shows it meanwhile.

Made by `python -m plimsoll_operator.status.event_reasons docs/events.md`.

"""


def render() -> str:
    """Return the text of docs/events.md."""
    rows = sorted(REASONS, key=lambda row: row.reason)
    also = {row.reason: "" if row.about == ONLY_CLUSTER else f"; {row.about}" for row in rows}
    lines = (f"- `{r.reason}` ({r.type}{also[r.reason]}): {r.meaning}" for r in rows)
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
