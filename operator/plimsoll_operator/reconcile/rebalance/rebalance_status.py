"""Phase, progress and conditions of a Rebalance, with their causes. Pure.

Called by the Rebalance reconciler. The plan is in the operator's memory; the committed row of the
Rebalance and its remaining moves are in the metadata log. Progress is shown to people only; no
decision depends on it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage, RebalanceRest
from plimsoll_core.cluster.model import Rebalance as Row
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.moves import RebalanceState
from plimsoll_core.messages.requests import Refused
from plimsoll_core.phrasing import NAMED_AT_MOST, brokers_text, bytes_text, counted
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.api.rebalance import (
    Phase,
    PlanStatus,
    Progress,
    Rebalance,
    RebalanceStatus,
)
from plimsoll_operator.reconcile.rebalance.planning import approval_reason
from plimsoll_operator.status.copy_meter import Copies, Meter

FINAL: frozenset[Phase] = frozenset({"Completed", "Cancelled", "Failed", "NothingToDo"})
"""Phases in which a Rebalance has ended."""

Answer = RebalanceState | Refused | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Input of a Rebalance's status. `answer`: the controller's at this pass. `plan`: the plan as
    the status shows it, possibly made by an earlier term; None if there is none. `planned`: the
    plan itself, None if this term did not make it. `seen`: the sizes that brokers reported, and the
    time (monotonic). `shown`: hashes of the plans shown in this term. `wall_ms`: the wall clock."""

    image: ClusterImage
    answer: Answer
    plan: PlanStatus | None
    planned: Planned | Refusal | None
    meter: Meter
    seen: tuple[Copies, int]
    shown: Collection[str] = ()
    wall_ms: int = 0


def status_of(found: Rebalance, view: View) -> RebalanceStatus:
    image, uid = view.image, found.metadata.uid
    row = image.rebalances.get(uid)
    phase = _phase(found, row, view)
    why = _why(found, phase, row, view)
    ended_ms = row.ended_ms if row else None
    begun = row is not None and row.phase != "Beginning"
    return RebalanceStatus(
        phase=phase,
        start_time=timestamp(row.started_ms) if begun and row else None,
        completion_time=None if ended_ms is None else timestamp(ended_ms),
        plan=view.plan,
        progress=_progress(row, view, phase) if begun and row else None,
        conditions=_conditions(phase, *why, view),
    )


def _phase(found: Rebalance, row: Row | None, view: View) -> Phase:
    if row is None or row.phase == "Beginning":
        if isinstance(view.answer, Refused):
            outdated = view.answer.known_reason is Reason.PlanOutdated
            return "Planning" if outdated else "Blocked"
        if view.answer is None and found.spec.paused:
            return "Paused"
        return "AwaitingApproval" if view.answer is None else "Planning"
    if row.phase != "Running":
        return "NothingToDo" if row.phase == "Completed" and not row.total else row.phase
    if row.paused:
        return "Paused"
    return "Blocked" if view.answer is not None and view.answer.reason else "Running"


def _why(found: Rebalance, phase: Phase, row: Row | None, view: View) -> tuple[str, str]:
    answer = view.answer
    if phase in ("Blocked", "Planning") and answer is not None and answer.reason:
        return answer.reason, answer.message
    left = 0
    if row is not None:
        left = max(0, row.total - row.moved - row.dropped)
    match phase:
        case "AwaitingApproval":
            name = view.plan.hash if view.plan else ""
            return approval_reason(found, name, view.image, view.shown)
        case "Planning":
            return "Planning", "The plan of the Rebalance is being computed."
        case "Paused":
            return "Paused", "The Rebalance is paused; set spec.paused to false to continue."
        case "NothingToDo":
            return "NothingToDo", (
                "The placement is already optimal, so the Rebalance moves nothing."
            )
        case "Completed":
            return "Done", _done(row)
        case "Cancelled":
            return (
                "Cancelled",
                "The Rebalance was cancelled: its moves in progress were rolled back, and no "
                "others were started.",
            )
        case "Failed" if row is not None:
            return row.reason or "Failed", row.message
        case _:
            return "Moving", f"The Rebalance is running: {left} partitions are left to move."


def _done(row: Row | None) -> str:
    if row is None or not row.dropped:
        text = f"All {(row.total if row else 0)} partitions have their planned replicas."
    else:
        text = (
            f"{row.moved} of {row.total} partitions were moved; {row.dropped} were skipped "
            "because their replicas or topics changed in the meantime."
        )
    return f"{text} {row.message if row else ''}".strip()


def _conditions(phase: Phase, reason: str, message: str, view: View) -> tuple[Condition, ...]:
    """Return the conditions of a phase. Ready is the same as Complete, for clients that read only
    Ready."""
    done = phase in ("Completed", "NothingToDo")
    failed = phase in ("Failed", "Cancelled")
    blocked = phase == "Blocked"
    busy = phase not in FINAL and phase != "AwaitingApproval"
    found = [
        condition("Complete", done, reason, message),
        condition("Ready", done, reason, message),
        condition("Reconciling", busy, reason, message),
        condition("Failed", failed, reason, message)
        if failed
        else condition("Failed", False, "NotFailed", "No move of the Rebalance has failed."),
        condition("Blocked", True, reason, message)
        if blocked
        else condition("Blocked", False, "NotBlocked", "No move of the Rebalance is blocked."),
    ]
    if (planned := _planned(view)) is not None:
        found.append(planned)
    return tuple(found)


def _planned(view: View) -> Condition | None:
    """Return the condition Planned: the plan's result and the limits that it could not keep, or why
    there is no plan. Return None if no plan was made yet."""
    planned = view.planned
    if isinstance(planned, Refusal):
        return condition("Planned", False, planned.reason.name, planned.message)
    if planned is None:
        known = view.plan is not None
        return (
            condition(
                "Planned",
                True,
                "Planned",
                "The plan of the Rebalance was made earlier and is still valid; status.plan "
                "shows it.",
            )
            if known
            else None
        )
    plan, unknown = planned.plan, ""
    if plan.unknown_disks:
        effect = "disks count as equal" if plan.why else "the plan goes by replica counts only"
        unknown = (
            f" The disk usage of {brokers_text(plan.unknown_disks, NAMED_AT_MOST)} is unknown, so"
            f" {effect}."
        )
    if plan.relaxations:
        text = " ".join((*plan.why, *(each.message for each in plan.relaxations)))
        return condition("Planned", True, plan.relaxations[0].rule, text + unknown)
    if plan.why:
        text = (
            f"{counted(plan.moved_replicas, 'replica')} ({bytes_text(plan.copied_bytes)}) and"
            f" {counted(plan.moved_leaders, 'preferred leader')} move. {' '.join(plan.why)}"
        )
        return condition("Planned", True, "UnevenLoad", text + unknown)
    if plan.moved_replicas <= plan.lower_bound:
        text = f"The plan moves {plan.moved_replicas} replicas, the fewest possible."
        return condition("Planned", True, "MinimalMoves", text + unknown)
    text = (
        f"The plan moves {plan.moved_replicas} replicas. {plan.lower_bound} of these moves would "
        "do to give all brokers equal numbers of replicas; the others come from racks, and from "
        "the formula that spreads each topic by itself (docs/topics.md)."
    )
    return condition("Planned", True, "MovesForPlacement", text + unknown)


def _progress(row: Row, view: View, phase: Phase) -> Progress:
    """Return the progress of a Rebalance that has begun, without an estimated end while it is
    blocked."""
    copies, now_ms = view.seen
    found = progress_of(row, view.image, view.meter, copies, now_ms, view.wall_ms)
    return found if phase != "Blocked" else replace(found, eta_seconds=None)


def progress_of(
    row: Row, image: ClusterImage, meter: Meter, copies: Copies, now_ms: int, wall_ms: int
) -> Progress:
    """Return the progress of a Rebalance that has begun. `copies` are the sizes that brokers
    reported at `now_ms` (monotonic)."""
    rest = image.rebalance_rests.get(row.object.uid)
    if rest is None:
        return Progress(
            replicas_moved=row.replicas_moved,
            wave=row.waves if row.phase == "Completed" else 0,
            lowest_isr_margin=row.lowest_isr_margin,
        )
    moving = [image.partitions[key] for key in rest.active if key in image.partitions]
    measured = meter.read([p for p in moving if p.moving], copies, now_ms)
    left = measured.left + _waiting_bytes(rest)
    rate = measured.rate
    return Progress(
        replicas_moved=row.replicas_moved,
        partitions_left=len(rest.moves),
        bytes_left=binary(left),
        eta_seconds=None if row.paused else eta_seconds(row, wall_ms, left, rate),
        wave=min((move.wave for move in rest.moves.values()), default=row.waves),
        lowest_isr_margin=row.lowest_isr_margin,
    )


def eta_seconds(row: Row, wall_ms: int, left: int, rate: int | None) -> int | None:
    """Return the estimated seconds until the end, None if unknown. This is the longer of two
    estimates: by bytes, and by partitions, since many small partitions take long although they have
    few bytes. `left`: bytes to copy. `rate`: bytes a second, None if unknown."""
    found = [-(-left // rate)] if rate else []
    elapsed_ms = wall_ms - row.started_ms
    if row.moved and elapsed_ms > 0:
        partitions = max(0, row.total - row.moved - row.dropped)
        found.append(-(-partitions * elapsed_ms // (row.moved * 1000)))
    return max(found, default=None)


def _waiting_bytes(rest: RebalanceRest) -> int:
    active = frozenset(rest.active.values())
    return sum(move.copied_bytes for move in rest.moves.values() if move.number not in active)
