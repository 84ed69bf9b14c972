"""Phase, progress and conditions of a Reassignment, with their causes. Pure.

Called by the Reassignment reconciler, with the controller's answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.cluster.model import Reassignment as Row
from plimsoll_core.messages.moves import ReassignmentState
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api import reassignment as api
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.api.reassignment import Phase, Reassignment, ReassignmentStatus
from plimsoll_operator.status.copy_meter import Copies, Meter, MoveProgress, copied

FINAL: frozenset[Phase] = frozenset({"Completed", "Cancelled", "Failed"})
"""Phases in which a Reassignment has ended."""

ACTIVE_MAX = 20


def moving_of(image: ClusterImage, row: Row) -> list[Partition]:
    """Return the partitions that the Reassignment is still moving."""
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
    """Return the status of a Reassignment. `answer` is the controller's at this pass, `copies` are
    the sizes that brokers reported at `now_ms` (monotonic)."""
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
        why = ("Paused", "The Reassignment is paused; set spec.paused to false to start it.")
    else:
        why = ("Starting", "The Reassignment is about to start.")
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
        case "Failed" if not row.total:
            text = (
                "The operator does not try this Reassignment again; remove the cause stated here, "
                "and apply a new Reassignment."
            )
            return row.reason, f"{row.message} {text}"
        case "Failed":
            return row.reason, row.message
        case "Completed" if row.total == 0:
            return (
                "NothingToMove",
                "The Reassignment has nothing to move: the brokers in awayFrom have no replicas "
                "of these partitions.",
            )
        case "Completed":
            return "Done", f"All {row.total} partitions have their requested replicas."
        case "Cancelled":
            return "Cancelled", (
                "The Reassignment was cancelled, and its unfinished moves were rolled back."
            )
        case "Paused":
            return (
                "Paused",
                f"The Reassignment is paused with {moving} partitions unfinished; set "
                "spec.paused to false to continue.",
            )
        case _:
            return "Moving", f"The Reassignment is moving {moving} of its {row.total} partitions."


def _conditions(
    phase: Phase, reason: str, message: str, *, waits: bool = False
) -> tuple[Condition, ...]:
    """Return the conditions of a phase. Ready has the same status as Complete, for clients that
    read only Ready. `waits`: True if the Reassignment cannot begin yet, which is shown as
    Blocked."""
    done = phase == "Completed"
    blocked = phase == "Blocked" or waits
    failed = phase in ("Failed", "Cancelled")
    found = [
        condition("Complete", done, reason, message),
        condition("Ready", done, reason, message),
        condition("Reconciling", phase not in FINAL, reason, message),
        condition("Failed", True, reason, message)
        if failed
        else _not("Failed", "No move of the Reassignment has failed."),
        condition("Blocked", True, reason, message)
        if blocked
        else _not("Blocked", "No move of the Reassignment is blocked."),
    ]
    return tuple(found)


def _not(type_: str, message: str) -> Condition:
    return condition(type_, False, "Not" + type_, message)


def partition_counts(
    total: int, moving: Iterable[Partition], copies: Copies, rolled_back: int = 0
) -> api.PartitionCounts:
    """Return the numbers of partitions by state. A moving partition is pending until a new replica
    holds data, and copying afterwards."""
    pending = under_way = 0
    for partition in moving:
        sizes = copies.get(partition.key, {})
        begun = any(sizes.get(b) or b in partition.isr for b in partition.adding)
        begun |= not partition.adding
        under_way += begun
        pending += not begun
    return api.PartitionCounts(
        total=total,
        pending=pending,
        copying=under_way,
        done=max(0, total - pending - under_way - rolled_back),
        rolled_back=rolled_back,
    )


def byte_counts(progress: MoveProgress) -> api.ByteCounts:
    rate = progress.rate
    return api.ByteCounts(
        total=binary(progress.total),
        copied=binary(progress.copied),
        left=binary(progress.left),
        rate_per_second=None if rate is None else binary(rate),
    )


def active(
    image: ClusterImage, moving: Iterable[Partition], copies: Copies
) -> tuple[api.ActiveMove, ...] | None:
    """Return rows about the first `ACTIVE_MAX` moving partitions, by topic and index, or None if
    none is moving."""
    rows = []
    for partition in sorted(moving, key=lambda p: (image.topics[p.topic_id].name, p.index)):
        known = copied(partition, copies.get(partition.key, {}))
        rows.append(
            api.ActiveMove(
                topic=image.topics[partition.topic_id].name,
                partition=partition.index,
                from_=partition.settled,
                adding=partition.adding,
                removing=partition.removing,
                copied=None if known is None else binary(known.copied),
                total=None if known is None else binary(known.total),
            )
        )
        if len(rows) == ACTIVE_MAX:
            break
    return tuple(rows) or None
