"""Reconciles a Rebalance object with its plan: begin, continue, pause, roll back, forget.

Called for BeginRebalance, and for RunRebalance and RebalanceObjectGone at each reconcile of the
object. The plan was computed outside the controller and approved as the object requires. Each row
is compared with the present cluster, and the plan is committed in parts. It runs from the last part
on: after an earlier crash the plan is submitted again. One Rebalance runs at a time: two plans
would each undo the other's balance.

Each call notes moves that have ended, begins moves that have room, and replaces targets that stay
away. A move is claimed in a record before its partition is changed: after a crash either nothing
has begun, or the next call carries the claim out. A plan that drains brokers ends when they hold no
replica. Source: the protocol's rules for adding and removing brokers, and for the full rebalance;
for the rollback its rule for reassignments.
"""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster.model import (
    Partition,
    Rebalance,
    RebalanceMode,
    RebalanceMove,
    RebalancePhase,
    RebalanceRest,
)
from plimsoll_core.cluster.move_owners import mover_name, running
from plimsoll_core.cluster.records import (
    RebalanceAdvanced,
    RebalanceForgotten,
    RebalanceMovesAdded,
    RebalanceNoted,
)
from plimsoll_core.controller.kernel.availability_margin import away as absences
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.voluntary_work import HourHold, VoluntaryWork, hour_hold
from plimsoll_core.controller.moves import rebalance_schedule as looks
from plimsoll_core.controller.moves.partition_move import (
    begun,
    check_target,
    contradicts,
    rolled_back,
)
from plimsoll_core.controller.moves.rebalance_schedule import Look, PendingMoves, Row
from plimsoll_core.controller.moves.target_choice import Want, choose, is_lost, waited_for
from plimsoll_core.controller.partitions.leader_elections import lead_by_preferred
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import (
    BeginRebalance,
    RebalanceObjectGone,
    RebalanceState,
    RunRebalance,
)
from plimsoll_core.messages.requests import Answer
from plimsoll_core.phrasing import brokers_text, counted, down_text, first_few, is_or_are
from plimsoll_core.planner.placement import EXPLICIT
from plimsoll_core.planner.rebalance import too_old

PLANNED = "planned"
ROWS_MAX = 1_000
"""The most Rebalance objects in the image."""
PART_MAX = 1_000
"""The most moves in one record."""
CAUSE = "reassignment by a rebalance"
CANCELLED = "reassignment cancelled with its rebalance"
OPEN = ("Beginning", "Running")


def begin(turn: DecisionContext, request: BeginRebalance) -> Answer | Refusal:
    row = turn.image.rebalances.get(request.object.uid)
    if row is not None and row.phase != "Beginning":
        return RebalanceState(phase=row.phase, reason=row.reason, message=row.message)
    refusal = too_old(turn.image, request.mode) or _check_alone(turn, request)
    refusal = refusal or _check_hours(turn, request)
    if refusal:
        return refusal
    if not request.noted:
        refusal = _check_plan(turn, request)
        if refusal:
            return refusal
        row = _new_row(request)
        if not request.moves or request.cancelled:
            phase = "Cancelled" if request.cancelled else "Completed"
            return _note_planned(turn, replace(row, phase=phase, ended_ms=request.wall_ms))
        _note_planned(turn, row)
    elif row is None or not _continues(turn, row, request):
        return RebalanceState(phase=None if row is None else row.phase)
    first, size = request.noted, min(PART_MAX, turn.settings.slice_partitions_max)
    part = request.moves[first : first + size]
    turn.add(RebalanceMovesAdded(cause=PLANNED, uid=row.object.uid, moves=part))
    if first + size < len(request.moves):
        turn.again = replace(request, noted=first + size)
        return RebalanceState(phase="Beginning")
    return _note_planned(turn, replace(row, phase="Running"))


def _note_planned(turn: DecisionContext, row: Rebalance) -> RebalanceState:
    turn.add(RebalanceNoted(cause=PLANNED, rebalance=row))
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
        text = (
            f"The Rebalance cannot start: the cluster already keeps {ROWS_MAX} Rebalances. "
            "Delete old Rebalance objects."
        )
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


def _check_hours(turn: DecisionContext, request: BeginRebalance) -> Refusal | None:
    """Refuse a plan that moves something while moves of its kind wait for their hours."""
    if not request.moves or request.cancelled:
        return None
    hold = _hold(turn, request.mode, request.brokers, by_itself=request.by_itself)
    return None if hold is None else hold.refusal


def _hold(
    turn: DecisionContext, mode: RebalanceMode, brokers: tuple[BrokerId, ...], *, by_itself: bool
) -> HourHold | None:
    """Return why a Rebalance may begin no move now, or None. A drain of brokers that are all away
    restores lost replicas, so it is urgent."""
    drains = mode == "RemoveBrokers"
    work = VoluntaryWork.DRAIN if drains else VoluntaryWork.FILL
    urgent = drains and not any(turn.acceptable(b) for b in brokers)
    kind = work if by_itself else VoluntaryWork.MOVE
    return hour_hold(turn.settings.hours, kind, urgent=urgent)


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
    """Return True if the move still fits its partition: the partition exists, its target replicas
    are `move.before`, and it may get `move.after`. If another request is moving the partition, the
    Rebalance waits for that move to end."""
    p = turn.image.partitions.get(move.key)
    if p is None or p.target != move.before or len(move.after) != len(move.before):
        return False
    if contradicts(turn.image.topics[p.topic_id], p, move.after):
        return False
    return check_target(turn, p, move.after) is None


def _named(turn: DecisionContext, move: RebalanceMove) -> str:
    topic = turn.image.topics.get(move.topic_id)
    return f"{move.topic_id if topic is None else topic.name}-{move.index}"


# --- on the way ---------------------------------------------------------------------------------


def run(turn: DecisionContext, request: RunRebalance) -> Answer | Refusal:
    row = turn.image.rebalances.get(request.object.uid)
    if row is None:
        return RebalanceState(phase=None)
    if row.phase not in OPEN:
        return _state(row)
    if (row.paused, row.bytes_per_second) != (request.paused, request.bytes_per_second):
        row = replace(row, paused=request.paused, bytes_per_second=request.bytes_per_second)
        _note(turn, row, CAUSE)
    if request.cancelled:
        return _roll_back(turn, row, request)
    if row.phase == "Beginning":
        return _state(row)
    return _go_on(turn, row, request)


def object_gone(turn: DecisionContext, request: RebalanceObjectGone) -> Answer:
    row = turn.image.rebalances.get(request.object.uid)
    if row is None:
        return RebalanceState(phase=None)
    if row.phase in OPEN:
        state = _roll_back(turn, row, request)
        if state.phase in OPEN:
            return state
    turn.add(RebalanceForgotten(cause="its object is gone", uid=row.object.uid))
    return RebalanceState(phase=None)


def _go_on(turn: DecisionContext, row: Rebalance, request: RunRebalance) -> RebalanceState:
    look = Look()
    rest = _rest(turn, row)
    looks.settle(turn, rest, look)
    hold = _hold(turn, row.mode, row.brokers, by_itself=request.by_itself)
    begins = not row.paused and hold is None
    if begins:
        movers = [mover for mover in running(turn.image) if mover.uid != row.object.uid]
        looks.choose_next(turn, rest, look, movers, request.limits)
    elif hold is not None and len(rest.moves) > len(look.moved) + len(look.moving):
        look.waits.add(hold.reason.name, hold.refusal.message)
    _advance(turn, row, look)
    if begins:
        refusal = _replan(turn, row, look) or _leftovers(turn, row, look)
        if refusal is not None:
            look.waits.add(refusal.reason.name, refusal.message)
    row = _watch_margin(turn, row)
    if not _rest(turn, row).moves and not look.waits.others and not row.paused:
        if row.total and row.dropped == row.total and row.mode != "RemoveBrokers":
            return _end(turn, _undone(row), "Failed", request.wall_ms)
        return _end(turn, _with_leaders_left(turn, row), "Completed", request.wall_ms)
    if look.more:
        turn.again = request
    return _waiting_for(turn, row, look)


def _undone(row: Rebalance) -> Rebalance:
    """Return the stored state with the message of a failure, for a plan of which not one move could
    be done."""
    text = (
        f"None of the {row.total} partitions was moved, because their replicas or topics have "
        "changed since the plan was made. Create another Rebalance."
    )
    return replace(row, reason="PlanOutdated", message=text)


def _rest(turn: DecisionContext, row: Rebalance) -> RebalanceRest:
    return turn.image.rebalance_rests[row.object.uid]


def _advance(turn: DecisionContext, row: Rebalance, look: Look) -> None:
    """Add the records of one pass over the plan (`look`): moves that ended, moves that begin, and
    the changes of their partitions."""
    uid = row.object.uid
    rest = _rest(turn, row)
    active = rest.active
    mover = mover_name(row)
    # Before the moves are noted as ended: a crash between leaves it to the next look.
    lead_by_preferred(turn, [rest.moves[number].key for number in look.moved], mover)
    claimed = [move.number for move, _ in look.begin if move.key not in active]
    _advanced(turn, uid, claimed, look.moved, look.dropped)
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    for move, p in look.begin:
        wish = begun(p, looks.name(turn, p), move.after)
        assert isinstance(wish, PartitionUpdate), "a partition that does not move drops no replica"
        wishes.append((p, wish))
    turn.change(wishes, CAUSE)
    ended = [m for m, p in look.begin if not turn.image.partitions[p.key].moving]
    lead_by_preferred(turn, [move.key for move in ended], mover)
    _advanced(turn, uid, [], [move.number for move in ended], [])


def _advanced(
    turn: DecisionContext, uid: str, claimed: list[int], moved: list[int], dropped: list[int]
) -> None:
    at = 0
    while at < max(len(claimed), len(moved), len(dropped)):
        part = slice(at, at + PART_MAX)
        turn.add(
            RebalanceAdvanced(
                cause=CAUSE,
                uid=uid,
                begun=tuple(claimed[part]),
                moved=tuple(moved[part]),
                dropped=tuple(dropped[part]),
            )
        )
        at += PART_MAX


def _watch_margin(turn: DecisionContext, row: Rebalance) -> Rebalance:
    partitions = (turn.image.partitions[key] for key in _rest(turn, row).active)
    lowest = min((len(p.isr) - p.effective_min_isr for p in partitions), default=None)
    row = turn.image.rebalances[row.object.uid]
    known = row.lowest_isr_margin
    if lowest is not None and (known is None or lowest < known):
        row = replace(row, lowest_isr_margin=lowest)
        _note(turn, row, CAUSE)
    return row


# --- other targets ------------------------------------------------------------------------------


def _replan(turn: DecisionContext, row: Rebalance, look: Look) -> Refusal | None:
    """Choose other targets for the moves in `look.lost`, of which a target broker stays away; at
    most one slice. A plan of mode AddBrokers keeps its targets: it is meant to fill them. Return
    the first refusal, or None."""
    if row.mode == "AddBrokers" or not look.lost:
        return None
    refused: Refusal | None = None
    by_size: dict[int, list[Row]] = {}
    for move, p in look.lost[: turn.settings.slice_partitions_max]:
        by_size.setdefault(len(move.after), []).append((move, p))
    for size in sorted(by_size):  # brokers may be too few for some of them only
        refusal = _other_targets(turn, row, by_size[size])
        refused = refused or refusal
    return refused


def _other_targets(turn: DecisionContext, row: Rebalance, lost: list[Row]) -> Refusal | None:
    wants = []
    for move, p in lost:
        needed = waited_for(turn, p) if p.moving else move.adding
        away = {b for b in needed if b not in p.isr and is_lost(turn, b)}
        off = frozenset((*away, *_left(row)))
        wants.append(Want(partition=p, size=len(move.after), off=off))
    chosen = choose(turn, wants)
    if isinstance(chosen, Refusal):
        return chosen
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    changed: list[RebalanceMove] = []
    refused: Refusal | None = None
    for (move, _), (p, target) in zip(lost, chosen, strict=True):
        if p.moving:
            wish = begun(p, looks.name(turn, p), target, absences(turn.image))
            if isinstance(wish, Refusal):
                refused = wish
                continue
            wishes.append((p, wish))
        changed.append(replace(move, after=target))
    if not changed:
        return refused
    cause = f"{CAUSE}: another target for one that stayed away"
    turn.add(RebalanceMovesAdded(cause=cause, uid=row.object.uid, moves=tuple(changed)))
    turn.change(wishes, cause)
    return refused


def _left(row: Rebalance) -> tuple[BrokerId, ...]:
    return row.brokers if row.mode == "RemoveBrokers" else ()


def _leftovers(turn: DecisionContext, row: Rebalance, look: Look) -> Refusal | None:
    """Add moves for the replicas that the brokers to be removed still hold after the plan, as when
    another request placed them there. Wait for a partition that is moving, since its move may be
    cancelled. Return a refusal if no target can be chosen, or None."""
    leaving = frozenset(_left(row))
    if _rest(turn, row).moves or not leaving:
        return None
    wants: list[Want] = []
    held = {p.key: p for broker in sorted(leaving) for p in turn.hosted(broker)}
    for _, p in sorted(held.items()):
        if turn.image.topics[p.topic_id].strategy == EXPLICIT:
            continue
        if p.moving:
            look.waits.add(looks.OTHERS, looks.moved_by(turn, p, None))
        else:
            wants.append(Want(partition=p, size=len(p.replicas), off=leaving))
    chosen = choose(turn, wants[: turn.settings.slice_partitions_max])
    if isinstance(chosen, Refusal):
        return chosen
    row = turn.image.rebalances[row.object.uid]
    added = tuple(
        RebalanceMove(
            number=row.total + n,
            topic_id=p.topic_id,
            index=p.index,
            before=p.replicas,
            after=target,
            wave=row.waves,
        )
        for n, (p, target) in enumerate(chosen)
    )
    if added:
        cause = f"{CAUSE}: left behind"
        turn.add(RebalanceMovesAdded(cause=cause, uid=row.object.uid, moves=added))
    return None


# --- what it waits for --------------------------------------------------------------------------


def _waiting_for(turn: DecisionContext, row: Rebalance, look: Look) -> RebalanceState:
    """Return the state of a running Rebalance. Its message says why the moves under way stall, or,
    if none is under way, why the others cannot begin."""
    if stuck := _said(turn, look.stuck):
        return _state(row, *stuck)
    going = look.moving or look.begin or row.paused
    if not going and (waits := _said(turn, look.waits)):
        return _state(row, *waits)
    return _state(row)


def _said(turn: DecisionContext, waits: PendingMoves) -> tuple[str, str] | None:
    if waits.down:
        broker, rows = min(waits.down.items())
        down = waits.down.keys() - {broker}
        others = f" (so {is_or_are(len(down))} {brokers_text(down)})" if down else ""
        leaves, until = "", f"broker {broker} is back"
        if not turn.image.takes_replicas(broker):
            leaves = ", and it is being drained or removed"
            until += " and is to stay; if it is not, set spec.cancelled of the Rebalance to true"
        names = first_few([looks.name(turn, p) for _, p in rows])
        return looks.TARGET_DOWN, (
            f"{down_text(broker)}{leaves}{others}; the moves of {counted(len(rows), 'partition')} "
            f"({names}) go on when {until}."
        )
    if waits.others:
        reason, (sentence, count) = next(iter(waits.others.items()))
        more = f" The same holds for {counted(count - 1, 'more partition')}." if count > 1 else ""
        return reason, sentence + more
    return None


# --- back ---------------------------------------------------------------------------------------


def _roll_back(
    turn: DecisionContext, row: Rebalance, request: RunRebalance | RebalanceObjectGone
) -> RebalanceState:
    """Roll back the moves of a cancelled Rebalance where that is safe, at most one slice in a turn.
    The other moves wait until more replicas are in sync. End the Rebalance as Cancelled when no
    move is left."""
    rest = _rest(turn, row)
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    ended: list[int] = []
    refusal: Refusal | None = None
    for number in sorted(rest.active.values()):
        move = rest.moves[number]
        p = turn.image.partitions.get(move.key)
        if p is None or not p.moving:
            if p is not None and p.replicas == move.after:
                ended.append(number)
            continue
        wish = rolled_back(p, looks.name(turn, p), absences(turn.image))
        if isinstance(wish, Refusal):
            refusal = refusal or wish
        elif len(wishes) < turn.settings.slice_partitions_max:
            wishes.append((p, wish))
        else:
            turn.again = request
    _advanced(turn, row.object.uid, [], ended, [])
    row = turn.image.rebalances[row.object.uid]
    turn.change(wishes, CANCELLED)
    if turn.again is not None:
        return _state(row)
    if refusal is not None:
        return _state(row, refusal.reason.name, refusal.message)
    return _end(turn, row, "Cancelled", request.wall_ms)


# --- rows ---------------------------------------------------------------------------------------


def _note(turn: DecisionContext, row: Rebalance, cause: str) -> None:
    turn.add(RebalanceNoted(cause=cause, rebalance=row))


def _with_leaders_left(turn: DecisionContext, row: Rebalance) -> Rebalance:
    """Return the stored state with a message about the partitions that a replica other than the
    preferred one leads. Return it unchanged if there are none."""
    count = len(turn.soft.displaced)
    if not count:
        return row
    have = "partition has" if count == 1 else "partitions have"
    text = (
        f"At the end of the Rebalance {count} {have} another leader than the preferred replica; "
        "the controller"
        " elects that one when it has been in sync for a minute."
    )
    return replace(row, message=text)


def _end(
    turn: DecisionContext, row: Rebalance, phase: RebalancePhase, wall_ms: int
) -> RebalanceState:
    ended = replace(row, phase=phase, paused=False, ended_ms=wall_ms)
    _note(turn, ended, CANCELLED if phase == "Cancelled" else CAUSE)
    return _state(ended)


def _state(row: Rebalance, reason: str = "", message: str = "") -> RebalanceState:
    return RebalanceState(
        phase=row.phase, reason=reason or row.reason, message=message or row.message
    )
