"""Phase and conditions of a Reassignment, with their causes. Pure.

Called by the Reassignment reconciler, with the controller's answer.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.cluster.model import Reassignment as Row
from plimsoll_core.messages.reassignments import ReassignmentState
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import Phase, Reassignment, ReassignmentStatus
from plimsoll_operator.reconcile.reassignment.reassignment_progress import (
    active,
    byte_counts,
    partition_counts,
)
from plimsoll_operator.status.copy_meter import Copies, Meter

FINAL: frozenset[Phase] = frozenset({"Completed", "Cancelled", "Failed"})
"""Final phases."""


def moving_of(image: ClusterImage, row: Row) -> list[Partition]:
    """Return the partitions that it still moves."""
    found = (image.partitions.get(key) for key in row.named())
    return [p for p in found if p is not None and p.moving]


def status_of(
    found: Reassignment,
    image: ClusterImage,
    answer: ReassignmentState | Refused,
    meter: Meter,
    copies: Copies,
    now_ms: int,
) -> ReassignmentStatus:
    """Return the status. `copies`: copy sizes that brokers reported, as of `now_ms` (monotonic)."""
    row = image.reassignments.get(found.metadata.uid)
    if row is None:
        return _not_begun(found, answer)
    moving = moving_of(image, row)
    gone = sum(key not in image.partitions for key in row.named())
    progress = meter.read(moving, copies, now_ms)
    running = row.phase == "Running"
    phase = _phase(row, answer)
    ended_ms = row.ended_ms
    return ReassignmentStatus(
        phase=phase,
        start_time=timestamp(row.started_ms),
        completion_time=None if ended_ms is None else timestamp(ended_ms),
        partitions=partition_counts(row.total - gone, moving, copies, row.rolled_back),
        bytes=byte_counts(progress) if running else None,
        eta_seconds=progress.eta_seconds if phase == "Running" else None,
        lowest_isr_margin=meter.lowest_margin,
        active=active(image, moving, copies),
        conditions=_conditions(phase, *_why(phase, row, answer, len(moving))),
    )


def _not_begun(found: Reassignment, answer: ReassignmentState | Refused) -> ReassignmentStatus:
    if isinstance(answer, Refused):
        why = (answer.reason, answer.message)
    elif found.spec.paused:
        why = ("Paused", "Paused; set paused to false to start.")
    else:
        why = ("Starting", "About to start.")
    phase: Phase = "Paused" if why[0] == "Paused" else "Pending"
    waits = isinstance(answer, Refused)
    return ReassignmentStatus(phase=phase, conditions=_conditions(phase, *why, waits=waits))


def _phase(row: Row, answer: ReassignmentState | Refused) -> Phase:
    if row.phase != "Running":
        return row.phase
    if row.paused:
        return "Paused"
    return "Blocked" if answer.reason else "Running"


def _why(
    phase: Phase, row: Row, answer: ReassignmentState | Refused, moving: int
) -> tuple[str, str]:
    match phase:
        case "Blocked":
            return answer.reason, answer.message
        case "Failed":
            return row.reason, row.message
        case "Completed" if row.total == 0:
            return (
                "NothingToMove",
                "Nothing to move: the brokers in awayFrom have no replicas of these partitions.",
            )
        case "Completed":
            return "Done", f"All {row.total} partitions have their requested replicas."
        case "Cancelled":
            return "Cancelled", "Cancelled; unfinished moves were rolled back."
        case "Paused":
            return (
                "Paused",
                f"Paused with {moving} partitions unfinished; set paused to false to continue.",
            )
        case _:
            return "Moving", f"{moving} of {row.total} partitions are moving."


def _conditions(
    phase: Phase, reason: str, message: str, *, waits: bool = False
) -> tuple[Condition, ...]:
    """Return the conditions. Ready mirrors Complete, for clients that read only Ready. `waits`: it
    cannot begin yet."""
    done = phase == "Completed"
    blocked = phase == "Blocked" or waits
    failed = phase in ("Failed", "Cancelled")
    found = [
        condition("Complete", done, reason, message),
        condition("Ready", done, reason, message),
        condition("Reconciling", phase not in FINAL, reason, message),
        condition("Failed", True, reason, message)
        if failed
        else _not("Failed", "Nothing has failed."),
        condition("Blocked", True, reason, message)
        if blocked
        else _not("Blocked", "Nothing is blocked."),
    ]
    return tuple(found)


def _not(type_: str, message: str) -> Condition:
    return condition(type_, False, "Not" + type_, message)
