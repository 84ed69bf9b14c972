"""Which of a group's offsets are too old, and when a group is.

Called by `groups.step` when a group's deadline is due.  A group without members and offsets goes.
Of a stable group of consumers, offsets of topics expire that no member is subscribed to.
Nothing goes for its age while the wall clock is not to be believed.  Source: KIP-186, KIP-211;
docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from plimsoll_core.coordination.outcome import CoordinatorOutcome
from plimsoll_core.groups.classic.seats import find, is_empty, let_go_of
from plimsoll_core.groups.members import ClassicGroup, Empty, Stable
from plimsoll_core.groups.operations import ExpireOffsets, Operation
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetForgotten,
)
from plimsoll_core.groups.soft import ExpiryDue
from plimsoll_core.groups.state import Group
from plimsoll_core.groups.subscriptions import subscribed_topics
from plimsoll_core.groups.turn import GroupTurn

RECORDS_AT_ONCE = 500
"""Tombstones of one operation: what is left goes with the next one, a moment later."""
SOON_MS = 100


_NEVER = -1


def expire_offsets(
    turn: GroupTurn, op: ExpireOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Nobody waits for it; the group is looked at again as long as it is there."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        let_go_of(turn, op.group_id)
        return CoordinatorOutcome(key=op.group_id)
    records: list[GroupRecord] = [
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, index in islice(_expired(turn, group), RECORDS_AT_ONCE)
    ]
    full = len(records) == RECORDS_AT_ONCE
    none_left = len(records) == sum(map(len, group.offsets.values()))
    known = turn.believed_ms is not None and group.stored is not None
    if none_left and known and is_empty(turn, op.group_id):
        records.append(GroupForgotten(group_id=op.group_id))
    wait_ms = SOON_MS if full else turn.settings.retention_check_ms
    turn.soft.deadlines.set(ExpiryDue(op.group_id), turn.now_ms + wait_ms)
    return CoordinatorOutcome(key=op.group_id, records=tuple(records))


def _expired(turn: GroupTurn, group: Group) -> Iterator[tuple[str, int]]:
    """Topic and partition of each.  Very many are gone through at once: what holds of all of them
    is worked out before."""
    now_ms = turn.believed_ms
    if now_ms is None:
        return
    members = find(turn, group.group_id)
    subscribed = _in_use(members, group.stored)
    if subscribed is None:
        return
    last_ms = _last_commit_ms(turn, group, now_ms, alone=is_empty(turn, group.group_id))
    for topic, partitions in group.offsets.items():
        if topic in subscribed:
            continue
        for index, committed in partitions.items():
            expire_ms = committed.expire_ms
            if committed.commit_ms <= last_ms if expire_ms is None else expire_ms <= now_ms:
                yield topic, index


def _in_use(members: ClassicGroup | None, stored: GroupStored | None) -> frozenset[str] | None:
    """Topics whose offsets do not expire; None: all.  While members share out anew nobody knows
    what they consume."""
    if members is None or isinstance(members.phase, Empty | Stable):
        return subscribed_topics(members, stored)
    return None


def _last_commit_ms(turn: GroupTurn, group: Group, now_ms: int, *, alone: bool) -> int:
    """What was committed until then is too old, unless its commit said how long it is kept.  In a
    group that had members nothing is before they have been gone for as long."""
    last_ms = now_ms - turn.settings.retention_ms
    emptied_ms = group.stored.state_ms if alone and group.stored is not None else _NEVER
    return last_ms if emptied_ms <= last_ms else _NEVER
