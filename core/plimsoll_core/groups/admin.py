"""DescribeGroups, ListGroups, DeleteGroups: the requests by which tools inspect and delete groups.

Called by `groups.step`. Source: KIP-518, KIP-848 (types), KIP-1043 (missing groups);
docs/protocol.md §5.8.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import no_such_group
from plimsoll_core.groups.classic.seats import find, is_empty
from plimsoll_core.groups.classic_group import Completing, Empty, Member, Preparing, Stable
from plimsoll_core.groups.operations import (
    DeleteGroup,
    DeleteUnloaded,
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
)
from plimsoll_core.groups.state import Group
from plimsoll_core.groups.turn import GroupTurn, SoftState

CLASSIC = "classic"
"""The type of all groups, as tools spell it."""
OFFSETS_AT_ONCE = 500
"""The most tombstones of one operation; a larger group is deleted by several requests."""


_STATES = {
    Empty: "Empty",
    Preparing: "PreparingRebalance",
    Completing: "CompletingRebalance",
    Stable: "Stable",
}


UNLOADED = "Unknown"
"""The state shown for groups that were not loaded for lack of memory; Kafka's word for a state that
a client does not know."""
STATES = tuple(_STATES.values())
"""The states in the order of a group's life."""


def state_of(turn: GroupTurn, group_id: str) -> str:
    """Return the name of a group's state as Kafka's tools show it, such as `Stable`; `Empty` for a
    group that does not exist. A loaded group that is not built in memory yet is not built for this,
    since a shard may hold thousands: it is `Stable` if its stored generation has members, else
    `Empty`."""
    group = turn.soft.classic.get(group_id)
    if group is not None:
        return _STATES[type(group.phase)]
    stored = turn.state.groups.get(group_id)
    return _STATES[Empty if stored is None or not stored.has_members else Stable]


def seen_state(group: Group, soft: SoftState) -> str:
    """Return the name of a group's state, as `state_of` does, for a count of groups by state."""
    found = soft.classic.get(group.group_id)
    if found is None:
        return _STATES[Stable if group.has_members else Empty]
    return _STATES[type(found.phase)]


def describe_group(
    turn: GroupTurn, op: DescribeGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Answer with a group's state, protocol and members, or GROUP_ID_NOT_FOUND. The protocol, and
    each member's metadata and assignment, are empty unless the group is stable."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        return no_such_group(op.group_id, token)
    stored = group.stored
    found = find(turn, op.group_id)
    members = () if found is None else tuple(found.members.values())
    stable = found is not None and isinstance(found.phase, Stable)
    protocol = (found.protocol or "") if found is not None and stable else ""
    answer = GroupDescribed(
        state=state_of(turn, op.group_id),
        protocol_type=found.protocol_type if members and found else _protocol_type(stored),
        protocol=protocol,
        members=tuple(_member(one, protocol, stable) for one in members),
    )
    return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, answer),))


def _member(member: Member, protocol: str, stable: bool) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.subscription(protocol) if stable else b"",
        member.assignment if stable else b"",
    )


def list_groups(
    turn: GroupTurn, op: ListGroups, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Answer with the groups of this shard that match the request's ids, states and types. A group
    that was not loaded for lack of memory has the state `Unknown`. The reply waits until all
    records of the shard so far are committed."""
    states = {state.lower() for state in op.states}
    types = {kind.lower() for kind in op.types}
    looked_at = turn.state.names() if op.group_ids is None else op.group_ids
    listed = tuple(
        group
        for group in map(partial(_listed, turn), looked_at)
        if group is not None
        if (not states or group.state.lower() in states) and (not types or CLASSIC in types)
    )
    return CoordinatorOutcome(key=None, replies=(Reply(token, GroupsListed(listed)),))


def _listed(turn: GroupTurn, group_id: str) -> ListedGroup | None:
    if group_id in turn.state.unloaded:
        return ListedGroup(group_id, "", UNLOADED, CLASSIC)
    group = turn.state.groups.get(group_id)
    if group is None:
        return None
    return ListedGroup(group_id, _protocol_type(group.stored), state_of(turn, group_id), CLASSIC)


def _protocol_type(stored: GroupStored | None) -> str:
    return "" if stored is None else stored.protocol_type


def delete_group(
    turn: GroupTurn, op: DeleteGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Delete a group without members, its offsets first, at most `OFFSETS_AT_ONCE` of them: answer
    `GroupDeleted`, or `GroupShrunk` if offsets remain. Refuse a group that does not exist, has
    members, or has offsets in an open transaction."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        return no_such_group(op.group_id, token)
    if not is_empty(turn, op.group_id):
        message = (
            f"Group {op.group_id} has members. Stop its consumers first, then repeat the request."
        )
        return refuse(op.group_id, token, Code.NON_EMPTY_GROUP, message)
    return _whole_deleted(group, token)


def delete_unloaded(
    turn: GroupTurn, op: DeleteUnloaded, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Delete an unloaded group by those of its records that were read into memory. If there are
    none, answer that the group does not exist."""
    group = turn.state.groups.get(op.group_id)
    return no_such_group(op.group_id, token) if group is None else _whole_deleted(group, token)


def _whole_deleted(group: Group, token: object) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Return the outcome that deletes a group, or the refusal if an open transaction would commit
    offsets of it: the tombstones would take these out of the transaction."""
    if group.pending is None:
        return _tombstones(group, token)
    message = (
        f"An open transaction commits offsets of group {group.group_id}. Stop its producers, or "
        "wait for the transaction's timeout, then repeat the request."
    )
    return refuse(group.group_id, token, Code.NON_EMPTY_GROUP, message)


def _tombstones(group: Group, token: object) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Return the outcome that deletes a group, at most `OFFSETS_AT_ONCE` offsets at a time. The
    group's own tombstone comes last, so that the group exists until all its offsets are deleted."""
    group_id = group.group_id
    offsets = (
        OffsetForgotten(group_id=group_id, topic=topic, partition=index)
        for topic, partitions in group.offsets.items()
        for index in partitions
    )
    records: list[GroupRecord] = list(islice(offsets, OFFSETS_AT_ONCE))
    whole = next(offsets, None) is None
    if whole and group.stored is not None:
        records.append(GroupForgotten(group_id=group_id))
    replies = (Reply(token, GroupDeleted() if whole else GroupShrunk()),)
    return CoordinatorOutcome(key=group_id, records=tuple(records), replies=replies)
