"""LeaveGroup: members that go, and members that an administrator sends away.

Called by `groups.step`.  Source: KIP-345; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from plimsoll_core.coordination.outcome import CoordinatorOutcome
from plimsoll_core.errors import Code
from plimsoll_core.groups.classic.effects import Effects
from plimsoll_core.groups.classic.phases import complete_if_all_joined, rebalance
from plimsoll_core.groups.classic.seats import check_member, find, let_go, stand_up, take_id
from plimsoll_core.groups.members import ClassicGroup
from plimsoll_core.groups.membership import LeaveGroup, Leaver, MembersLeft
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.turn import GroupTurn


def leave_group(
    turn: GroupTurn, op: LeaveGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Each of those who are named has its own answer; those who stay share out once."""
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
    """An administrator names a static member by its instance alone."""
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
