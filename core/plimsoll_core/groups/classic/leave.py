"""Heartbeats and LeaveGroup: members renew their sessions in a classic group, or leave it.

Called by `groups.step`. Sources: Kafka's `GroupMetadataManager`; KIP-345 (static members may be
removed by an administrator).
"""

from __future__ import annotations

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refused
from plimsoll_core.errors import Code
from plimsoll_core.groups.classic.phases import complete_if_all_joined, rebalance
from plimsoll_core.groups.classic.seats import (
    Effects,
    check_member,
    find,
    let_go,
    prolong,
    stand_up,
    take_id,
)
from plimsoll_core.groups.classic_group import ClassicGroup, Preparing
from plimsoll_core.groups.membership import (
    HeartbeatTaken,
    LeaveGroup,
    Leaver,
    MemberHeartbeat,
    MembersLeft,
)
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.turn import GroupTurn


def heartbeat(
    turn: GroupTurn, op: MemberHeartbeat, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Renew the member's session and answer `HeartbeatTaken`, or REBALANCE_IN_PROGRESS if members
    must join again. Without renewal, refuse an unknown or fenced member, and another generation
    than the group's."""
    group = find(turn, op.group_id)
    code = check_member(group, op.member_id, op.group_instance_id)
    reply = Reply(token, HeartbeatTaken())
    if group is None or code is not Code.NONE:
        reply = refused(token, code)
    elif op.generation != group.generation:
        reply = refused(token, Code.ILLEGAL_GENERATION)
    else:
        prolong(turn, group, group.members[op.member_id])
        if isinstance(group.phase, Preparing):
            reply = refused(token, Code.REBALANCE_IN_PROGRESS)
    return CoordinatorOutcome(key=op.group_id, replies=(reply,))


def leave_group(
    turn: GroupTurn, op: LeaveGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Remove the named members, each with its own result (UNKNOWN_MEMBER_ID for all if the group
    has no members); the remaining members rebalance once if any was removed."""
    effects = Effects()
    group = find(turn, op.group_id)
    if group is None:
        effects.reply(token, MembersLeft((Code.UNKNOWN_MEMBER_ID,) * len(op.members)))
        return effects.outcome(op.group_id)
    members = len(group.members)
    codes = tuple(_leave(turn, group, one, effects) for one in op.members)
    effects.reply(token, MembersLeft(codes))
    if len(group.members) < members:
        rebalance(turn, group, effects)
    else:
        complete_if_all_joined(turn, group, effects)
    let_go(turn, group)
    return effects.outcome(op.group_id)


def _leave(turn: GroupTurn, group: ClassicGroup, leaver: Leaver, effects: Effects) -> Code:
    """Remove one member or release its reserved id, and return the error code of its result; with a
    code other than NONE nothing was changed. An administrator names a static member by its instance
    id alone."""
    member_id = leaver.member_id
    if member_id in group.pending:
        take_id(turn, group, member_id)
        return Code.NONE
    if not member_id and leaver.group_instance_id is not None:
        member_id = group.holder(leaver.group_instance_id) or ""
    code = check_member(group, member_id, leaver.group_instance_id)
    if code is Code.NONE:
        stand_up(turn, group, member_id, effects)
    return code
