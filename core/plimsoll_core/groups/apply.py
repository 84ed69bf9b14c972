"""Applies the records of `__consumer_offsets`: the only writer of a shard's durable state.

Called for each record that a decision makes, where it will stand in the log, and for each that a
load reads.  It never refuses: what is in the log *is* the state.
"""

from __future__ import annotations

from sys import intern
from typing import assert_never

from plimsoll_core.groups.memory import TOPIC_BYTES, offset_bytes, stored_bytes
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
)
from plimsoll_core.groups.state import CommittedOffset, Group, GroupsState


def apply(state: GroupsState, record: GroupRecord, offset: int) -> None:
    """`offset`: the record's own place in the log."""
    if offset >= state.end:
        state.end = offset + 1
    match record:
        case OffsetCommitted():
            _commit(state, record, offset)
        case OffsetForgotten():
            _forget_offset(state, record, offset)
        case GroupStored():
            group = _group(state, record.group_id, record.owner)
            state.grow(group, stored_bytes(record) - stored_bytes(group.stored))
            group.stored = record
            group.written_to = offset + 1
        case GroupForgotten():
            group = _group(state, record.group_id)
            state.grow(group, -stored_bytes(group.stored))
            group.stored = None
            group.written_to = offset + 1
            _drop_if_empty(state, group)
        case _:
            assert_never(record)


def skip(state: GroupsState, offset: int) -> None:
    """A record of a kind that this software does not know stands at `offset`."""
    state.end = max(state.end, offset + 1)


def _group(state: GroupsState, group_id: str, owner: str = "") -> Group:
    """`owner`: whom it is counted to, if it is nobody's."""
    group = state.groups.get(group_id)
    if group is None:
        group = Group(group_id)
        group.owner = intern(owner)
        state.begins(group)
    elif owner and not group.owner:
        state.adopt(group, intern(owner))
    return group


def _commit(state: GroupsState, record: OffsetCommitted, offset: int) -> None:
    # Once for each record of a load: what is nearly always true is asked without a call.
    group = state.groups.get(record.group_id)
    if group is None or group.owner != record.owner:
        group = _group(state, record.group_id, record.owner)
    partitions = group.offsets.get(record.topic)
    if partitions is None:
        # Thousands of groups name the same topics.
        partitions = group.offsets[intern(record.topic)] = {}
        state.grow(group, TOPIC_BYTES)
    before = partitions.get(record.partition)
    if before is None:
        state.offsets += 1
        state.grow(group, offset_bytes(record.metadata))
    elif before.metadata != record.metadata:
        state.grow(group, offset_bytes(record.metadata) - offset_bytes(before.metadata))
    partitions[record.partition] = CommittedOffset(
        record.offset,
        record.leader_epoch,
        record.metadata,
        record.commit_ms,
        record.expire_ms,
        record.topic_id,
    )
    group.written_to = offset + 1


def _forget_offset(state: GroupsState, record: OffsetForgotten, offset: int) -> None:
    group = _group(state, record.group_id)
    partitions = group.offsets.get(record.topic, {})
    before = partitions.pop(record.partition, None)
    if before is not None:
        state.offsets -= 1
        state.grow(group, -offset_bytes(before.metadata))
        if not partitions:
            del group.offsets[record.topic]
            state.grow(group, -TOPIC_BYTES)
    group.written_to = offset + 1
    _drop_if_empty(state, group)


def _drop_if_empty(state: GroupsState, group: Group) -> None:
    if group.stored is None and not group.offsets:
        state.ends(group)
