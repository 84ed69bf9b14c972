"""OffsetDelete, and offsets of topics that are gone.

Called by `groups.step`.  Source: KIP-496; docs/protocol.md §5.8.
"""

from __future__ import annotations

from itertools import islice

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import no_such_group
from plimsoll_core.groups.classic.seats import find, is_empty
from plimsoll_core.groups.operations import (
    DeleteOffsets,
    ForgetTopics,
    OffsetsCommitted,
    Operation,
    PartitionCode,
)
from plimsoll_core.groups.records import GroupRecord, OffsetForgotten
from plimsoll_core.groups.subscriptions import CONSUMER, subscribed_topics
from plimsoll_core.groups.turn import GroupTurn

RECORDS_AT_ONCE = 500
"""Tombstones of one `ForgetTopics`: who asks for more asks again."""


def delete_offsets(
    turn: GroupTurn, op: DeleteOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Of topics that no member is subscribed to.  Members of another protocol than the consumers'
    may consume any."""
    group, members = turn.state.groups.get(op.group_id), find(turn, op.group_id)
    if group is None:
        return no_such_group(op.group_id, token)
    empty = is_empty(turn, op.group_id)
    if not empty and members is not None and members.protocol_type != CONSUMER:
        message = f"Group {op.group_id} has members; stop them first."
        return refuse(op.group_id, token, Code.NON_EMPTY_GROUP, message)
    subscribed = subscribed_topics(members, group.stored)
    codes: list[PartitionCode] = []
    records: dict[tuple[str, int], GroupRecord] = {}
    for topic, index in op.partitions:
        code = Code.NONE
        if subscribed is None or topic in subscribed:
            code = Code.GROUP_SUBSCRIBED_TO_TOPIC
        elif index in group.offsets.get(topic, {}):
            tombstone = OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
            records[topic, index] = tombstone
        elif not turn.has_partition(topic, index):
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
        codes.append(PartitionCode(topic, index, code))
    replies = (Reply(token, OffsetsCommitted(tuple(codes))),)
    return CoordinatorOutcome(key=op.group_id, records=tuple(records.values()), replies=replies)


def forget_topics(
    turn: GroupTurn, op: ForgetTopics, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Offsets of deleted topics: a topic that gets the name later must not begin there."""
    group = turn.state.groups.get(op.group_id)
    held = {} if group is None else group.offsets
    gone = (
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, partitions in held.items()
        for index, committed in partitions.items()
        if committed.topic_id in op.topic_ids
    )
    return CoordinatorOutcome(key=op.group_id, records=tuple(islice(gone, RECORDS_AT_ONCE)))
