"""OffsetDelete, and offsets of topics that are gone.

Called by `groups.step`.  Source: KIP-496; docs/protocol.md §5.8.
"""

from __future__ import annotations

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refused
from plimsoll_core.errors import Code
from plimsoll_core.groups.classic.seats import is_empty
from plimsoll_core.groups.operations import (
    DeleteOffsets,
    ForgetTopics,
    OffsetsCommitted,
    Operation,
    PartitionCode,
)
from plimsoll_core.groups.records import GroupRecord, OffsetForgotten
from plimsoll_core.groups.turn import GroupTurn


def delete_offsets(
    turn: GroupTurn, op: DeleteOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """An offset that is not there is deleted already."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        message = f"There is no group {op.group_id}."
        reply = refused(token, Code.GROUP_ID_NOT_FOUND, message)
        return CoordinatorOutcome(key=op.group_id, replies=(reply,))
    code = _check_unused(turn, op.group_id)
    codes = tuple(PartitionCode(topic, index, code) for topic, index in op.partitions)
    asked = dict.fromkeys(op.partitions) if code is Code.NONE else {}
    records = tuple(
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, index in asked
        if index in group.offsets.get(topic, {})
    )
    replies = (Reply(token, OffsetsCommitted(codes)),)
    return CoordinatorOutcome(key=op.group_id, records=records, replies=replies)


def _check_unused(turn: GroupTurn, group_id: str) -> Code:
    """Members may consume any topic, as far as is known here."""
    return Code.NONE if is_empty(turn, group_id) else Code.GROUP_SUBSCRIBED_TO_TOPIC


def forget_topics(
    turn: GroupTurn, op: ForgetTopics, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Offsets of deleted topics: a topic that gets the name later must not begin there."""
    group = turn.state.groups.get(op.group_id)
    held = {} if group is None else group.offsets
    records = tuple(
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, partitions in held.items()
        for index, committed in partitions.items()
        if committed.topic_id in op.topic_ids
    )
    return CoordinatorOutcome(key=op.group_id, records=records)
