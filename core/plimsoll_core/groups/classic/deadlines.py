"""Handles the deadlines of classic groups: expired sessions, members that did not join or sync in
time, lost connections, and the outcome of records.

Called by `groups.step`, for operations without a waiting client. Source: Kafka's
`GroupMetadataManager`, KIP-134, KIP-394; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from functools import partial

from plimsoll_core.coordination.outcome import CoordinatorOutcome
from plimsoll_core.errors import Code
from plimsoll_core.groups.classic.phases import (
    complete_if_all_joined,
    complete_joining,
    generation_of,
    prepare,
    rebalance,
)
from plimsoll_core.groups.classic.seats import Effects, find, let_go, stand_up, take_id
from plimsoll_core.groups.classic_group import Completing, Empty, FirstDelay, Preparing, Stable
from plimsoll_core.groups.membership import (
    BeginningStored,
    CloseRequest,
    EmptinessStored,
    EndJoining,
    EndPending,
    EndSession,
    EndSyncing,
    StoreEmptiness,
    WakeGroup,
)
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.turn import GroupTurn

_Outcome = CoordinatorOutcome[GroupRecord, Operation]

STORE_AGAIN_MS = 1_000
"""The delay in ms before another attempt to store that a group is empty."""


def end_session(turn: GroupTurn, op: EndSession, token: object) -> _Outcome:
    """Remove a member, static or not, because its session has expired, and start a rebalance. Do
    nothing if the member has left, or its session was renewed."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    if group is not None and op.member_id in group.members and op not in turn.soft.deadlines:
        stand_up(turn, group, op.member_id, effects)
        rebalance(turn, group, effects)
    return effects.outcome(op.group_id)


def end_pending(turn: GroupTurn, op: EndPending, token: object) -> _Outcome:
    """Release a reserved member id with which no member has joined in time. Complete the join phase
    if it waited only for this id. Do nothing if the id is not reserved any more."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    if group is not None and op.member_id in group.pending and op not in turn.soft.deadlines:
        take_id(turn, group, op.member_id)
        complete_if_all_joined(turn, group, effects)
        let_go(turn, group)
    return effects.outcome(op.group_id)


def end_joining(turn: GroupTurn, op: EndJoining, token: object) -> _Outcome:
    """End the join phase when its time is over, and form the next generation. The first rebalance
    of an empty group is prolonged while new members join, up to the members' longest rebalance
    timeout. Do nothing in another phase."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    if group is None or op in turn.soft.deadlines or not isinstance(group.phase, Preparing):
        return effects.outcome(op.group_id)
    first = group.phase.first
    if first is not None and first.newcomers and first.left_ms > 0:
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, first.left_ms)
        group.phase = Preparing(FirstDelay(delay_ms, first.left_ms - delay_ms))
        turn.soft.deadlines.set(op, turn.now_ms + delay_ms)
    else:
        complete_joining(turn, group, effects)
    return effects.outcome(op.group_id)


def end_syncing(turn: GroupTurn, op: EndSyncing, token: object) -> _Outcome:
    """Remove the members that were told the generation and did not send SyncGroup in time, and
    start a rebalance of the remaining ones. Do nothing if no SyncGroup is missing."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    if group is None or op in turn.soft.deadlines:
        return effects.outcome(op.group_id)
    match group.phase:
        case Completing(unsynced=unsynced) | Stable(unsynced=unsynced) if unsynced:
            for member_id in sorted(unsynced):
                stand_up(turn, group, member_id, effects)
            prepare(turn, group, effects)
    return effects.outcome(op.group_id)


def close_request(turn: GroupTurn, op: CloseRequest, token: object) -> _Outcome:
    """Process the loss of a connection with a parked JoinGroup. A new member was not told its id
    and cannot return, so it is removed; a known member may return within its session."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    held = {} if group is None else group.joins
    member_id = next((one for one, parked in held.items() if parked is op.token), None)
    if group is not None and member_id is not None and group.members[member_id].is_new:
        stand_up(turn, group, member_id, effects)
        complete_if_all_joined(turn, group, effects)
    return effects.outcome(op.group_id)


def wake_group(turn: GroupTurn, op: WakeGroup, token: object) -> _Outcome:
    """Build a loaded group in memory, which starts the session timeouts of its members, unless a
    request has done so before."""
    find(turn, op.group_id)
    return CoordinatorOutcome(key=op.group_id)


def beginning_stored(turn: GroupTurn, op: BeginningStored, token: object) -> _Outcome:
    """Process the outcome of writing a new group's first record. If it failed and the record is not
    in the log, the group does not exist: remove the members and answer their parked JoinGroups with
    the error. Otherwise do nothing."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    durable = turn.state.groups.get(op.group_id)
    begun = durable is not None and durable.stored is not None
    if group is None or begun or op.code is Code.NONE:
        return effects.outcome(op.group_id)
    for member_id in list(group.members):
        parked = group.joins.pop(member_id, None)
        if parked is not None:
            effects.refuse(parked, op.code)
        stand_up(turn, group, member_id, effects)
    group.phase = Empty()
    turn.soft.deadlines.clear(EndJoining(op.group_id))
    let_go(turn, group)
    return effects.outcome(op.group_id)


def emptiness_stored(turn: GroupTurn, op: EmptinessStored, token: object) -> _Outcome:
    """Process the outcome of writing an empty group's record: drop the group from memory if the log
    shows it as empty, else schedule another attempt. The group is empty either way."""
    group = turn.soft.classic.get(op.group_id)
    if group is not None and isinstance(group.phase, Empty):
        let_go(turn, group)
        if op.group_id in turn.soft.classic and not group.pending:
            key = StoreEmptiness(op.group_id)
            turn.soft.deadlines.set(key, turn.now_ms + STORE_AGAIN_MS)
    return CoordinatorOutcome(key=op.group_id)


def store_emptiness(turn: GroupTurn, op: StoreEmptiness, token: object) -> _Outcome:
    """Write the record of a group that has become empty, if it is still empty and the last stored
    generation has members; without such members, drop the empty group from memory."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    durable = turn.state.groups.get(op.group_id)
    if group is None or not isinstance(group.phase, Empty):
        return effects.outcome(op.group_id)
    if durable is not None and durable.stored is not None and durable.stored.members:
        effects.records.append(generation_of(turn, group))
        effects.then = partial(EmptinessStored, op.group_id)
    let_go(turn, group)
    return effects.outcome(op.group_id)
