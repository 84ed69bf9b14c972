"""A Rebalance's plan and progress, as people read them: pure.

The plan is the operator's memory; the row and what is left of it are in the metadata log.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage, PartitionKey, RebalanceRest
from plimsoll_core.cluster.model import Rebalance as Row
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.rebalances import RebalanceState
from plimsoll_core.messages.requests import Refused
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.api.rebalance import (
    BrokerLoad,
    Change,
    MoveCounts,
    Phase,
    PlanStatus,
    Progress,
    Rebalance,
    RebalanceStatus,
    SizeChange,
    SkippedTopic,
    WhatIf,
)
from plimsoll_operator.reconcile.rebalance.plan_approval import approval_reason
from plimsoll_operator.status.move_progress import Copies, Meter

FINAL: frozenset[Phase] = frozenset({"Completed", "Cancelled", "Failed", "NothingToDo"})
"""Phases after which nothing changes any more."""
SKIPPED_MAX = 20
LOOK_SECONDS = 1
"""How soon after a wave the next one begins, roughly."""

Answer = RebalanceState | Refused | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a status is made of.  `plan`: as it is shown, whoever made it.  `planned`: the plan
    itself, when this term made it.  `seen`: what brokers have told, and when (monotonic).  `shown`:
    the hashes that were shown in this term."""

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
        progress=_progress(row, view) if begun and row else None,
        conditions=_conditions(phase, *why, view),
    )


# --- the phase and its reason -------------------------------------------------------------------


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
            return "Planning", "The plan is being made."
        case "Paused":
            return "Paused", "It goes on when paused is false."
        case "NothingToDo":
            return "NothingToDo", "Nothing would be better elsewhere; nothing moves."
        case "Completed":
            return "Done", _done(row)
        case "Cancelled":
            return "Cancelled", "What was under way was rolled back, and nothing more was begun."
        case "Failed" if row is not None:
            return row.reason or "Failed", row.message
        case _:
            return "Moving", f"{left} partitions are to be moved yet."


def _done(row: Row | None) -> str:
    if row is None or not row.dropped:
        return f"All {row.total if row else 0} partitions are where they should be."
    return (
        f"{row.moved} of {row.total} partitions were moved; {row.dropped} were left alone, because"
        " their replicas or their topics had changed meanwhile."
    )


def _conditions(phase: Phase, reason: str, message: str, view: View) -> tuple[Condition, ...]:
    """Ready mirrors Complete, for those who read only that."""
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
        else condition("Failed", False, "NotFailed", "Nothing has failed."),
        condition("Blocked", True, reason, message)
        if blocked
        else condition("Blocked", False, "NotBlocked", "Nothing is waited for."),
    ]
    if (planned := _planned(view)) is not None:
        found.append(planned)
    return tuple(found)


def _planned(view: View) -> Condition | None:
    """What the plan promises, and what it could not keep."""
    planned = view.planned
    if isinstance(planned, Refusal):
        return condition("Planned", False, planned.reason.name, planned.message)
    if planned is None:
        known = view.plan is not None
        return (
            condition("Planned", True, "Planned", "The plan was made earlier.") if known else None
        )
    plan = planned.plan
    if plan.relaxations:
        text = " ".join(each.message for each in plan.relaxations)
        return condition("Planned", True, plan.relaxations[0].rule, text)
    if plan.moved_replicas <= plan.lower_bound:
        text = f"{plan.moved_replicas} replicas move, and fewer would not do."
        return condition("Planned", True, "MinimalMoves", text)
    text = (
        f"{plan.moved_replicas} replicas move; {plan.lower_bound} would even out numbers alone,"
        " without racks and the placement formula."
    )
    return condition("Planned", True, "MovesForPlacement", text)


# --- the plan -----------------------------------------------------------------------------------


def plan_status(
    image: ClusterImage, planned: Planned, rate: int, made_ms: int, details: str | None
) -> PlanStatus:
    """`rate`: bytes a second that each broker takes in."""
    plan = planned.plan
    return PlanStatus(
        hash=planned.hash,
        computed_time=timestamp(made_ms),
        moves=MoveCounts(
            replicas=plan.moved_replicas,
            leaders=plan.moved_leaders,
            bytes=binary(plan.copied_bytes),
            estimated_seconds=estimated_seconds(plan, planned.waves, rate),
            waves=planned.waves,
        ),
        per_broker=tuple(
            BrokerLoad(
                id=load.broker,
                replicas=Change(before=load.replicas.before, after=load.replicas.after),
                leaders=Change(before=load.leaders.before, after=load.leaders.after),
                size=SizeChange(
                    before=binary(load.size_bytes.before), after=binary(load.size_bytes.after)
                ),
            )
            for load in plan.loads[:100]
        ),
        lowest_isr_margin=plan.lowest_isr_margin,
        if_broker_dies_now=tuple(
            WhatIf(
                broker=risk.broker,
                under_min_isr=risk.under_min_isr,
                examples=tuple(_name(image, key) for key in risk.examples),
            )
            for risk in planned.risks[:100]
        ),
        skipped=tuple(
            SkippedTopic(topic=each.topic, reason=each.reason)
            for each in plan.skipped[:SKIPPED_MAX]
        ),
        details_config_map=details,
    )


def estimated_seconds(plan: Plan, waves: int, rate: int) -> int:
    """The broker that takes in most, at its limit; and a moment for each wave."""
    incoming: dict[int, int] = {}
    for move in plan.moves:
        for broker in move.adding:
            incoming[broker] = incoming.get(broker, 0) + (move.size_bytes or 0)
    slowest = max(incoming.values(), default=0)
    return max(-(-slowest // max(1, rate)), waves * LOOK_SECONDS)


def _name(image: ClusterImage, key: PartitionKey) -> str:
    topic = image.topics.get(key.topic_id)
    return f"{key.topic_id if topic is None else topic.name}-{key.index}"


# --- how far it is ------------------------------------------------------------------------------


def _progress(row: Row, view: View) -> Progress:
    rest = view.image.rebalance_rests.get(row.object.uid)
    if rest is None:
        return Progress(
            replicas_moved=row.replicas_moved,
            wave=row.waves if row.phase == "Completed" else 0,
            lowest_isr_margin=row.lowest_isr_margin,
        )
    copies, now_ms = view.seen
    moving = [view.image.partitions[key] for key in rest.active if key in view.image.partitions]
    measured = view.meter.read([p for p in moving if p.moving], copies, now_ms)
    left = measured.left + _waiting_bytes(rest)
    rate = measured.rate
    return Progress(
        replicas_moved=row.replicas_moved,
        partitions_left=len(rest.moves),
        bytes_left=binary(left),
        eta_seconds=None if row.paused else _eta_seconds(row, view, left, rate),
        wave=min((move.wave for move in rest.moves.values()), default=row.waves),
        lowest_isr_margin=row.lowest_isr_margin,
    )


def _eta_seconds(row: Row, view: View, left: int, rate: int | None) -> int | None:
    """By bytes or by partitions, whichever takes longer: many small ones cost rounds, not bytes."""
    found = [-(-left // rate)] if rate else []
    elapsed_ms = view.wall_ms - row.started_ms
    if row.moved and elapsed_ms > 0:
        partitions = max(0, row.total - row.moved - row.dropped)
        found.append(-(-partitions * elapsed_ms // (row.moved * 1000)))
    return max(found, default=None)


def _waiting_bytes(rest: RebalanceRest) -> int:
    active = frozenset(rest.active.values())
    return sum(move.copied_bytes for move in rest.moves.values() if move.number not in active)
