"""Heartbeat: whether a member is still one.

Called by `groups.step`.  Source: Kafka's `classicGroupHeartbeat`; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refused
from plimsoll_core.errors import Code
from plimsoll_core.groups.classic.seats import check_member, find, prolong
from plimsoll_core.groups.members import Preparing
from plimsoll_core.groups.membership import HeartbeatTaken, MemberHeartbeat
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.turn import GroupTurn


def heartbeat(
    turn: GroupTurn, op: MemberHeartbeat, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """In a rebalance the member hears that it has to join."""
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
