"""The only switch over the operations on groups: an operation in, a `CoordinatorOutcome` out.

Called by the broker's group shard, by the simulator through it, and by tests. It decides nothing
itself and changes nothing durable: the shard appends the outcome's records and has `apply` apply
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply
from plimsoll_core.groups import membership as m
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.admin import (
    delete_group,
    delete_unloaded,
    describe_group,
    list_groups,
)
from plimsoll_core.groups.checks import check_loaded, check_named, check_rate, owner_of
from plimsoll_core.groups.classic import deadlines as d
from plimsoll_core.groups.classic.join import join_group
from plimsoll_core.groups.classic.leave import heartbeat, leave_group
from plimsoll_core.groups.classic.sync import generation_stored, sync_group
from plimsoll_core.groups.memory import SeatsCharged, made_bytes, seated_bytes
from plimsoll_core.groups.offsets.commit import commit_offsets, fetch_all_offsets, fetch_offsets
from plimsoll_core.groups.offsets.delete import delete_offsets, expire_offsets, forget_topics
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.turn import DeadlineKey, ExpiryDue, GroupTurn

GroupOutcome = CoordinatorOutcome[GroupRecord, o.Operation]

_RULES: dict[type, Callable[[GroupTurn, Any, object], GroupOutcome]] = {
    o.CommitOffsets: commit_offsets,
    o.FetchOffsets: fetch_offsets,
    o.FetchAllOffsets: fetch_all_offsets,
    o.DeleteOffsets: delete_offsets,
    o.DeleteGroup: delete_group,
    o.DeleteUnloaded: delete_unloaded,
    o.DescribeGroup: describe_group,
    o.ListGroups: list_groups,
    o.ExpireOffsets: expire_offsets,
    o.ForgetTopics: forget_topics,
    m.JoinGroup: join_group,
    m.SyncGroup: sync_group,
    m.MemberHeartbeat: heartbeat,
    m.LeaveGroup: leave_group,
    m.CloseRequest: d.close_request,
    m.EndSession: d.end_session,
    m.EndPending: d.end_pending,
    m.EndJoining: d.end_joining,
    m.EndSyncing: d.end_syncing,
    m.WakeGroup: d.wake_group,
    m.StoreEmptiness: d.store_emptiness,
    m.BeginningStored: d.beginning_stored,
    m.GenerationStored: generation_stored,
    m.EmptinessStored: d.emptiness_stored,
}


_OF_NAMED_GROUPS = (m.JoinGroup, m.SyncGroup, m.MemberHeartbeat, m.LeaveGroup, o.DeleteOffsets)
"""The operations for which Kafka refuses an empty group id."""


def step(turn: GroupTurn, op: o.Operation, token: object) -> GroupOutcome:
    """Decide one operation, update what the group's owner is charged for its members in memory, and
    return the outcome. An operation on a group that was not loaded for lack of memory is refused.
    `token`: identifies the client's request; None if no client waits."""
    if isinstance(op, _OF_NAMED_GROUPS) and (refusal := check_named(op.group_id)):
        return CoordinatorOutcome(key=op.group_id, at_once=(Reply(token, refusal),))
    if isinstance(op, o.ListGroups | o.DeleteUnloaded):
        return _decided(turn, op, token)
    if refusal := check_loaded(turn, op.group_id):
        replies = () if token is None else (Reply(token, refusal),)
        return CoordinatorOutcome(key=op.group_id, at_once=replies)
    if isinstance(op, o.CommitOffsets | m.JoinGroup) and (
        refusal := check_rate(turn, op.group_id, op.principal)
    ):
        return CoordinatorOutcome(key=op.group_id, at_once=(Reply(token, refusal),))
    outcome = _decided(turn, op, token)
    _charge_seats(turn, op.group_id)
    return outcome


def _decided(turn: GroupTurn, op: o.Operation, token: object) -> GroupOutcome:
    outcome = _RULES[type(op)](turn, op, token)
    answered = any(reply.token is token for reply in (*outcome.at_once, *outcome.replies))
    assert token is None or answered or outcome.parked, f"no reply to {op}"
    return outcome


def _charge_seats(turn: GroupTurn, group_id: str) -> None:
    """After an operation has changed a group's members in memory, update the amount that its owner
    is charged for them."""
    memory, charged = turn.state.memory, turn.soft.charged
    group, durable = turn.soft.classic.get(group_id), turn.state.groups.get(group_id)
    before = charged.pop(group_id, None)
    if group is None and before is None:
        return
    if before is not None:
        memory.change(before.principal, -before.size_bytes)
        memory.seats.give_back(before.principal, before.seats)
    if group is not None:
        made = 0 if durable is None else made_bytes(durable.stored)
        size_bytes = max(seated_bytes(group) - made, 0)
        now = SeatsCharged(owner_of(turn, group_id), size_bytes, group.size)
        charged[group_id] = now
        memory.change(now.principal, size_bytes)
        memory.seats.take(now.principal, now.seats)


def due(key: DeadlineKey) -> o.Operation:
    """Return the operation that the shard must submit when the deadline with this key has
    passed."""
    match key:
        case ExpiryDue(group_id):
            return o.ExpireOffsets(group_id=group_id)
        case _:
            return key


def loaded(turn: GroupTurn) -> None:
    """Set the deadlines of all groups after a load. Their first expiry checks are spread over the
    check interval."""
    interval_ms = turn.settings.retention_check_ms
    groups = turn.state.groups
    for number, group_id in enumerate(groups, 1):
        _begin_deadlines(turn, group_id, turn.now_ms + interval_ms * number // len(groups))


def loaded_again(turn: GroupTurn, group_id: str) -> None:
    """Mark a formerly unloaded group as loaded, after all its records were applied, and set its
    deadlines if it still exists."""
    turn.state.loaded_again(group_id)
    if group_id in turn.state.groups:
        _begin_deadlines(turn, group_id, turn.now_ms + turn.settings.retention_check_ms)


def _begin_deadlines(turn: GroupTurn, group_id: str, expiry_ms: int) -> None:
    turn.soft.deadlines.set(ExpiryDue(group_id), expiry_ms)
    if turn.state.groups[group_id].has_members:
        turn.soft.deadlines.set(m.WakeGroup(group_id), turn.now_ms)
