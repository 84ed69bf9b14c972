"""Accepts or refuses a Rebalance's plan.

Called for BeginRebalance. The plan was computed outside the controller and approved as the object
requires. Each row is compared with the present cluster, and the plan is committed in parts. It runs
from the last part on: after an earlier crash the plan is submitted again. One Rebalance runs at a
time: two plans would each undo the other's balance. Source: the protocol's rules for adding and
removing brokers, and for the full rebalance."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster.model import Rebalance, RebalanceMove
from plimsoll_core.cluster.records import RebalanceMovesAdded, RebalanceNoted
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.moves.partition_move import check_target, contradicts
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.rebalances import BeginRebalance, RebalanceState
from plimsoll_core.messages.requests import Answer

CAUSE = "planned"
ROWS_MAX = 1_000
"""The greatest number of Rebalance objects in the image."""
PART_MAX = 1_000
"""The greatest number of moves in one record."""


def begin(turn: DecisionContext, request: BeginRebalance) -> Answer | Refusal:
    row = turn.image.rebalances.get(request.object.uid)
    if row is not None and row.phase != "Beginning":
        return RebalanceState(phase=row.phase, reason=row.reason, message=row.message)
    refusal = _check_alone(turn, request)
    if refusal:
        return refusal
    if not request.noted:
        refusal = _check_plan(turn, request)
        if refusal:
            return refusal
        row = _new_row(request)
        if not request.moves or request.cancelled:
            phase = "Cancelled" if request.cancelled else "Completed"
            return _note(turn, replace(row, phase=phase, ended_ms=request.wall_ms))
        _note(turn, row)
    elif row is None or not _continues(turn, row, request):
        return RebalanceState(phase=None if row is None else row.phase)
    first, size = request.noted, min(PART_MAX, turn.settings.slice_partitions_max)
    part = request.moves[first : first + size]
    turn.add(RebalanceMovesAdded(cause=CAUSE, uid=row.object.uid, moves=part))
    if first + size < len(request.moves):
        turn.again = replace(request, noted=first + size)
        return RebalanceState(phase="Beginning")
    return _note(turn, replace(row, phase="Running"))


def _note(turn: DecisionContext, row: Rebalance) -> RebalanceState:
    turn.add(RebalanceNoted(cause=CAUSE, rebalance=row))
    return RebalanceState(phase=row.phase)


def _continues(turn: DecisionContext, row: Rebalance, request: BeginRebalance) -> bool:
    rest = turn.image.rebalance_rests[row.object.uid]
    return row.plan_hash == request.plan_hash and len(rest.moves) == request.noted


def _new_row(request: BeginRebalance) -> Rebalance:
    return Rebalance(
        object=request.object,
        mode=request.mode,
        brokers=request.brokers,
        phase="Beginning",
        plan_hash=request.plan_hash,
        total=len(request.moves),
        replicas=sum(len(move.adding) for move in request.moves),
        waves=request.waves,
        bytes_per_second=request.bytes_per_second,
        started_ms=request.wall_ms,
    )


# --- refusals -----------------------------------------------------------------------------------


def _check_alone(turn: DecisionContext, request: BeginRebalance) -> Refusal | None:
    uid, rows = request.object.uid, turn.image.rebalances
    if uid not in rows and len(rows) >= ROWS_MAX:
        text = f"The cluster already remembers {ROWS_MAX} Rebalances. Delete old Rebalance objects."
        return Refusal(reason=Reason.TooManyWaiting, message=text)
    others = (row for _, row in sorted(rows.items()) if row.object.uid != uid)
    other = next((row for row in others if row.phase == "Running"), None)
    if other is None or not request.moves:
        return None
    return Refusal(
        reason=Reason.ReassignmentInProgress,
        message=(
            f"Rebalance {other.object.namespace}/{other.object.name} is running, and only one can "
            "run at a time. This one begins when that has ended."
        ),
    )


def _check_plan(turn: DecisionContext, request: BeginRebalance) -> Refusal | None:
    """Refuse if a partition has changed since the plan was made, or may not get the replicas that
    the plan gives it."""
    stale: list[RebalanceMove] = []
    for number, move in enumerate(request.moves):
        assert move.number == number, "moves are numbered in their order"
        if not _holds(turn, move):
            stale.append(move)
    if not stale:
        return None
    return Refusal(
        reason=Reason.PlanOutdated,
        message=(
            f"{len(stale)} partitions have changed since the plan was made, such as "
            f"{_named(turn, stale[0])}. A new plan is being made."
        ),
    )


def _holds(turn: DecisionContext, move: RebalanceMove) -> bool:
    """Return True if the move still fits its partition. If another request is moving the partition,
    the replicas of that target are compared, and the Rebalance waits for that move to end."""
    p = turn.image.partitions.get(move.key)
    if p is None or p.target != move.before or len(move.after) != len(move.before):
        return False
    if contradicts(turn.image.topics[p.topic_id], p, move.after):
        return False
    return check_target(turn, p, move.after) is None


def _named(turn: DecisionContext, move: RebalanceMove) -> str:
    topic = turn.image.topics.get(move.topic_id)
    return f"{move.topic_id if topic is None else topic.name}-{move.index}"
