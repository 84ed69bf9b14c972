"""DescribeGroups, ListGroups, DeleteGroups: what tools see and do.

Called by `groups.step`.  Source: KIP-518, KIP-848 (types), KIP-1043 (missing groups);
docs/protocol.md §5.8.
"""

from __future__ import annotations

from itertools import islice

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refused
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import (
    DeleteGroup,
    DescribedMember,
    DescribeGroup,
    GroupDeleted,
    GroupDescribed,
    GroupShrunk,
    GroupsListed,
    ListedGroup,
    ListGroups,
    Operation,
)
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetForgotten,
    StoredMember,
)
from plimsoll_core.groups.state import Group
from plimsoll_core.groups.turn import GroupTurn

CLASSIC = "Classic"
"""The type of every group that there is, as tools spell it."""
OFFSETS_AT_ONCE = 1_000
"""Tombstones of one operation: who deletes a larger group asks again."""


def state_of(group: Group) -> str:
    """Kafka's word for a group's phase: one with members was loaded in a stored generation."""
    return "Stable" if group.has_members else "Empty"


def describe_group(
    turn: GroupTurn, op: DescribeGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """What it last stored."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        message = f"There is no group {op.group_id}."
        reply = refused(token, Code.GROUP_ID_NOT_FOUND, message)
        return CoordinatorOutcome(key=op.group_id, replies=(reply,))
    stored = group.stored
    answer = GroupDescribed(
        state=state_of(group),
        protocol_type="" if stored is None else stored.protocol_type,
        protocol="" if stored is None else stored.protocol or "",
        members=() if stored is None else tuple(_member(one) for one in stored.members),
    )
    return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, answer),))


def _member(stored: StoredMember) -> DescribedMember:
    return DescribedMember(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.subscription,
        stored.assignment,
    )


def list_groups(
    turn: GroupTurn, op: ListGroups, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Of this shard; what is told waits for all that the shard has written."""
    states = {state.lower() for state in op.states}
    types = {kind.lower() for kind in op.types}
    listed = tuple(
        ListedGroup(group.group_id, _protocol_type(group.stored), state_of(group), CLASSIC)
        for group in turn.state.groups.values()
        if (not states or state_of(group).lower() in states)
        and (not types or CLASSIC.lower() in types)
    )
    return CoordinatorOutcome(key=None, replies=(Reply(token, GroupsListed(listed)),))


def _protocol_type(stored: GroupStored | None) -> str:
    return "" if stored is None else stored.protocol_type


def delete_group(
    turn: GroupTurn, op: DeleteGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Offsets first: until the last tombstone the group is one that exists."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        message = f"There is no group {op.group_id}."
        reply = refused(token, Code.GROUP_ID_NOT_FOUND, message)
        return CoordinatorOutcome(key=op.group_id, replies=(reply,))
    if group.has_members:
        message = f"Group {op.group_id} has members; stop them first."
        reply = refused(token, Code.NON_EMPTY_GROUP, message)
        return CoordinatorOutcome(key=op.group_id, replies=(reply,))
    offsets = (
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, partitions in group.offsets.items()
        for index in partitions
    )
    records: list[GroupRecord] = list(islice(offsets, OFFSETS_AT_ONCE))
    whole = next(offsets, None) is None
    if whole and group.stored is not None:
        records.append(GroupForgotten(group_id=op.group_id))
    replies = (Reply(token, GroupDeleted() if whole else GroupShrunk()),)
    return CoordinatorOutcome(key=op.group_id, records=tuple(records), replies=replies)
