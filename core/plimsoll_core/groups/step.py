"""The only switch over what may happen to groups: an operation in, an `CoordinatorOutcome` out.

Called by the broker's group shard, by the simulator through it, and by tests.  It decides nothing
itself.  Nothing durable changes here: the shell appends the outcome's records and has `apply`
carry them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply
from plimsoll_core.groups import membership as m
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.admin import delete_group, describe_group, list_groups
from plimsoll_core.groups.checks import check_named
from plimsoll_core.groups.classic import deadlines as d
from plimsoll_core.groups.classic.heartbeat import heartbeat
from plimsoll_core.groups.classic.join import join_group
from plimsoll_core.groups.classic.leave import leave_group
from plimsoll_core.groups.classic.sync import generation_stored, sync_group
from plimsoll_core.groups.offsets.commit import commit_offsets
from plimsoll_core.groups.offsets.delete import delete_offsets, forget_topics
from plimsoll_core.groups.offsets.expire import expire_offsets
from plimsoll_core.groups.offsets.fetch import fetch_all_offsets, fetch_offsets
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.soft import DeadlineKey, ExpiryDue
from plimsoll_core.groups.turn import GroupTurn

GroupOutcome = CoordinatorOutcome[GroupRecord, o.Operation]

_RULES: dict[type, Callable[[GroupTurn, Any, object], GroupOutcome]] = {
    o.CommitOffsets: commit_offsets,
    o.FetchOffsets: fetch_offsets,
    o.FetchAllOffsets: fetch_all_offsets,
    o.DeleteOffsets: delete_offsets,
    o.DeleteGroup: delete_group,
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
"""Kafka takes no empty group id for these."""


def step(turn: GroupTurn, op: o.Operation, token: object) -> GroupOutcome:
    """What follows from one operation.  `token`: who asked; None where nobody waits."""
    if isinstance(op, _OF_NAMED_GROUPS) and (refusal := check_named(op.group_id)):
        return CoordinatorOutcome(key=op.group_id, at_once=(Reply(token, refusal),))
    outcome = _RULES[type(op)](turn, op, token)
    answered = any(reply.token is token for reply in (*outcome.at_once, *outcome.replies))
    assert token is None or answered or outcome.parked, f"nobody answers {op}"
    return outcome


def due(key: DeadlineKey) -> o.Operation:
    """The operation of a deadline whose time has come."""
    match key:
        case ExpiryDue(group_id):
            return o.ExpireOffsets(group_id=group_id)
        case _:
            return key


def loaded(turn: GroupTurn) -> None:
    """The log has been read to its end: every deadline begins anew, spread over the interval."""
    interval_ms = turn.settings.retention_check_ms
    groups = turn.state.groups
    for number, group_id in enumerate(groups, 1):
        at_ms = turn.now_ms + interval_ms * number // len(groups)
        turn.soft.deadlines.set(ExpiryDue(group_id), at_ms)
        if groups[group_id].has_members:
            turn.soft.deadlines.set(m.WakeGroup(group_id), turn.now_ms)
