"""Which of a group's offsets are too old, and when a group is.

Called by `groups.step` when a group's deadline is due.  A group without members and offsets goes.
Nothing goes for its age while the wall clock is not to be believed.  Source: KIP-186, KIP-211;
docs/protocol.md §5.8.
"""

from __future__ import annotations

from plimsoll_core.coordination.outcome import CoordinatorOutcome
from plimsoll_core.groups.classic.seats import is_empty, let_go_of
from plimsoll_core.groups.operations import ExpireOffsets, Operation
from plimsoll_core.groups.records import GroupForgotten, GroupRecord, OffsetForgotten
from plimsoll_core.groups.soft import ExpiryDue
from plimsoll_core.groups.state import CommittedOffset, Group
from plimsoll_core.groups.turn import GroupTurn

RECORDS_AT_ONCE = 500
"""Tombstones of one operation: what is left goes with the next one, a moment later."""
SOON_MS = 100


def expire_offsets(
    turn: GroupTurn, op: ExpireOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Nobody waits for it; the group is looked at again as long as it is there."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        let_go_of(turn, op.group_id)
        return CoordinatorOutcome(key=op.group_id)
    records: list[GroupRecord] = []
    kept = False
    for topic, partitions in group.offsets.items():
        for index, committed in partitions.items():
            if len(records) < RECORDS_AT_ONCE and _expired(turn, group, committed):
                records.append(OffsetForgotten(group_id=op.group_id, topic=topic, partition=index))
            else:
                kept = True
    full = len(records) >= RECORDS_AT_ONCE
    if not kept and is_empty(turn, op.group_id) and _old(turn, group):
        records.append(GroupForgotten(group_id=op.group_id))
    wait_ms = SOON_MS if full else turn.settings.retention_check_ms
    turn.soft.deadlines.set(ExpiryDue(op.group_id), turn.now_ms + wait_ms)
    return CoordinatorOutcome(key=op.group_id, records=tuple(records))


def _expired(turn: GroupTurn, group: Group, committed: CommittedOffset) -> bool:
    """Counted from the commit in a simple group, in another from when its last member left."""
    now_ms = turn.believed_ms
    if now_ms is None:
        return False
    if committed.expire_ms is not None:
        return now_ms >= committed.expire_ms
    if not is_empty(turn, group.group_id):
        return False
    since_ms = committed.commit_ms
    if group.stored is not None and group.stored.state_ms >= 0:
        since_ms = max(since_ms, group.stored.state_ms)
    return now_ms - since_ms >= turn.settings.retention_ms


def _old(turn: GroupTurn, group: Group) -> bool:
    """A group without members and offsets goes as soon as it has none."""
    return turn.believed_ms is not None and group.stored is not None
