"""SyncGroup: commits the leader's assignments, and then gives every member its own.

Called by `groups.step`. No member gets an assignment that is not committed. Source: Kafka's
`classicGroupSync`, KIP-559; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from functools import partial

from plimsoll_core.coordination.outcome import CoordinatorOutcome
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import no_room
from plimsoll_core.groups.classic.phases import generation_of, prepare, refuse_syncs
from plimsoll_core.groups.classic.seats import Effects, check_member, find, prolong, saw_sync
from plimsoll_core.groups.classic_group import ClassicGroup, Completing, Member, Preparing, Stable
from plimsoll_core.groups.membership import (
    EndSession,
    GenerationStored,
    GroupSynced,
    SyncGroup,
)
from plimsoll_core.groups.memory import made_bytes, stored_bytes
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord, GroupStored
from plimsoll_core.groups.turn import GroupTurn


def sync_group(
    turn: GroupTurn, op: SyncGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Answer SyncGroup. In a stable group the member gets its assignment at once. Otherwise the
    request is parked until the leader's assignments are committed; the leader's request writes
    them."""
    effects = Effects()
    group = find(turn, op.group_id)
    code = _check(group, op)
    if group is None or code is not Code.NONE:
        effects.refuse(token, code)
        return effects.outcome(op.group_id)
    phase = group.phase
    leads = isinstance(phase, Completing) and op.member_id == group.leader and not phase.storing
    generation = generation_of(turn, group, dict(op.assignments)) if leads else None
    if generation is not None and not _has_room(turn, generation):
        refusal = no_room(group.group_id, generation.owner, Code.GROUP_MAX_SIZE_REACHED)
        effects.reply(token, refusal)
        return effects.outcome(op.group_id)
    saw_sync(group, op.member_id)
    member = group.members[op.member_id]
    if isinstance(group.phase, Stable):
        effects.reply(token, _synced(group, member))
        prolong(turn, group, member)
        return effects.outcome(op.group_id)
    older = group.syncs.pop(op.member_id, None)
    if older is not None:
        effects.refuse(older, Code.REBALANCE_IN_PROGRESS)
    group.syncs[op.member_id] = token
    turn.soft.deadlines.clear(EndSession(group.group_id, op.member_id))
    assert isinstance(phase, Completing)
    if generation is not None:
        phase.storing = True
        effects.records.append(generation)
        effects.then = partial(GenerationStored, group.group_id, group.generation)
    return effects.outcome(op.group_id, parked=token)


def _has_room(turn: GroupTurn, generation: GroupStored) -> bool:
    """Return True if the owner's memory has room for the new generation's record in place of the
    stored one. `_charge_seats` charges the members in memory."""
    durable = turn.state.groups.get(generation.group_id)
    stored = None if durable is None else durable.stored
    size_bytes = stored_bytes(generation) - made_bytes(generation)
    size_bytes -= stored_bytes(stored) - made_bytes(stored)
    return turn.state.memory.of_broker.admits(generation.owner, size_bytes)


def _check(group: ClassicGroup | None, op: SyncGroup) -> Code:
    code = check_member(group, op.member_id, op.group_instance_id)
    if group is None or code is not Code.NONE:
        return code
    if op.generation != group.generation:
        return Code.ILLEGAL_GENERATION
    if op.protocol_type is not None and op.protocol_type != group.protocol_type:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if isinstance(group.phase, Preparing):
        return Code.REBALANCE_IN_PROGRESS
    if op.protocol is not None and op.protocol != group.protocol:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.NONE


def _synced(group: ClassicGroup, member: Member) -> GroupSynced:
    assert group.protocol is not None
    return GroupSynced(group.protocol_type, group.protocol, member.assignment)


def generation_stored(
    turn: GroupTurn, op: GenerationStored, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """If the generation is committed, answer the parked SyncGroups with the assignments; the group
    is then stable. Otherwise answer them with the error and start a rebalance. Do nothing if the
    group has left this generation."""
    effects = Effects()
    group = turn.soft.classic.get(op.group_id)
    if (
        group is None
        or not isinstance(group.phase, Completing)
        or not group.phase.storing
        or group.generation != op.generation
    ):
        return effects.outcome(op.group_id)
    if op.code is not Code.NONE:
        refuse_syncs(turn, group, op.code, effects)
        prepare(turn, group, effects)
        return effects.outcome(op.group_id)
    stored = turn.state.groups[op.group_id].stored
    assert stored is not None
    assert stored.generation == op.generation
    for one in stored.members:
        if one.member_id in group.members:
            group.assign(one.member_id, one.assignment)
    group.phase = Stable(group.phase.unsynced)
    waiting, group.syncs = group.syncs, {}
    for member_id, asker in waiting.items():
        member = group.members[member_id]
        effects.reply(asker, _synced(group, member))
        prolong(turn, group, member)
    return effects.outcome(op.group_id)
