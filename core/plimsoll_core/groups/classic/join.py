"""JoinGroup: admits members, gives out ids, and decides which members a rebalance waits for.

Called by `groups.step`.  Source: Kafka's `classicGroupJoin`, KIP-345 (static members), KIP-394
(ids), KIP-814 (leaders that need not assign); docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, Reply
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import check_begins, no_room, owner_of
from plimsoll_core.groups.classic.phases import (
    complete_if_all_joined,
    generation_of,
    joined,
    may_share,
    members_of,
    park_join,
    rebalance,
    vote,
)
from plimsoll_core.groups.classic.seats import (
    Effects,
    answer_parked,
    check_member,
    find,
    find_or_make,
    give_id,
    let_go,
    prolong,
    sit,
    take_id,
)
from plimsoll_core.groups.classic_group import (
    ClassicGroup,
    Completing,
    Empty,
    Member,
    Preparing,
    Stable,
    protocol_bytes,
)
from plimsoll_core.groups.membership import (
    BeginningStored,
    EndSession,
    GroupJoined,
    JoinGroup,
    MemberIdGiven,
)
from plimsoll_core.groups.memory import (
    GENERATION_BYTES,
    GROUP_BYTES,
    MEMBER_BYTES,
    SEAT_BYTES,
)
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.record_rate import REJOIN_BYTES_PER_S
from plimsoll_core.groups.records import GroupRecord, GroupStored
from plimsoll_core.groups.settings import (
    GROUP_BYTES_MAX,
    MEMBER_BYTES_MAX,
    NAME_BYTES_MAX,
)
from plimsoll_core.groups.turn import ExpiryDue, GroupTurn


def join_group(
    turn: GroupTurn, op: JoinGroup, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Let a member join a group, or refuse it. The request is parked until the join phase ends; it
    is answered without waiting for other members if no rebalance is needed, or to give the member
    an id."""
    refusal = _check_request(turn, op)
    if refusal is not None:
        return CoordinatorOutcome(key=op.group_id, at_once=(Reply(token, refusal),))
    effects = Effects()
    group = find(turn, op.group_id)
    refusal = _check(turn, group, op)
    if refusal is not None:
        if group is not None and refusal.code is Code.GROUP_MAX_SIZE_REACHED:
            _forget_id(turn, group, op.member_id, effects)
        effects.reply(token, refusal)
        return effects.outcome(op.group_id)
    group = find_or_make(turn, op.group_id, op.principal)
    holder = None if op.group_instance_id is None else group.holder(op.group_instance_id)
    if op.member_id in group.pending:
        take_id(turn, group, op.member_id)
        _add(turn, group, op, op.member_id, token, effects)
    elif op.member_id:
        _join_again(turn, group, op, token, effects)
    elif holder is not None:
        if refusal := _check_rejoins(turn, group):
            effects.reply(token, refusal)
        else:
            _replace(turn, group, op, holder, token, effects)
    elif op.group_instance_id is None and op.must_know_its_id:
        give_id(turn, group, op.new_member_id, op.session_timeout_ms)
        effects.reply(token, MemberIdGiven(op.new_member_id))
    else:
        _add(turn, group, op, op.new_member_id, token, effects)
    let_go(turn, group)
    return effects.outcome(op.group_id, parked=token)


def _forget_id(turn: GroupTurn, group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """Release the reserved id of a member that was refused because its metadata is too large, since
    that member will not join."""
    if member_id in group.pending:
        take_id(turn, group, member_id)
        complete_if_all_joined(turn, group, effects)
        let_go(turn, group)


def _check_request(turn: GroupTurn, op: JoinGroup) -> RefusedAsWhole | None:
    """Return a refusal if the request itself is invalid for any group; otherwise None."""
    least, most = turn.settings.session_timeout_ms_min, turn.settings.session_timeout_ms_max
    if not least <= op.session_timeout_ms <= most:
        message = f"session.timeout.ms must be from {least} to {most} in this cluster."
        return RefusedAsWhole(Code.INVALID_SESSION_TIMEOUT, message)
    names = (op.client_id, op.group_instance_id or "", op.protocol_type, *_names(op))
    if any(len(name.encode()) > NAME_BYTES_MAX for name in names):
        message = (
            f"group.instance.id, client.id, the protocol type and each protocol's name may have "
            f"at most {NAME_BYTES_MAX} bytes."
        )
        return RefusedAsWhole(Code.INVALID_REQUEST, message)
    texts = sum(map(len, (op.client_id, op.client_host, op.group_instance_id or "")))
    if protocol_bytes(op.protocols) + len(op.protocol_type) + texts > MEMBER_BYTES_MAX:
        message = (
            f"The metadata of a member of a consumer group may take at most {MEMBER_BYTES_MAX} "
            "bytes: subscribe to fewer topics."
        )
        return RefusedAsWhole(Code.INVALID_REQUEST, message)
    if op.rebalance_timeout_ms < 0 or op.group_instance_id == "":
        message = (
            "The member cannot join its consumer group: max.poll.interval.ms must not be negative, "
            "and group.instance.id must not be empty."
        )
        return RefusedAsWhole(Code.INVALID_REQUEST, message)
    return None


def _names(op: JoinGroup) -> Iterator[str]:
    return (name for name, _ in op.protocols)


def _check(turn: GroupTurn, group: ClassicGroup | None, op: JoinGroup) -> RefusedAsWhole | None:
    """Return a refusal if the group or its owner has no room for the member, the member's id is
    unknown or fenced, or no protocol would be common to all members; otherwise None. `group`: None
    if it is not in memory."""
    if group is None:
        group = ClassicGroup(op.group_id)
    holder = None if op.group_instance_id is None else group.holder(op.group_instance_id)
    owner = owner_of(turn, op.group_id, op.principal)
    if not check_begins(turn, op.group_id, owner):
        return no_room(op.group_id, owner, Code.GROUP_MAX_SIZE_REACHED)
    full = group.size >= turn.settings.group_size_max
    full = full or not turn.state.memory.seats.admits(owner, 1)
    if full and not op.member_id and holder is None:
        message = (
            f"The member cannot join group {op.group_id}: the group, or the broker that "
            "coordinates it, has as many members as it may have. Run fewer consumers."
        )
        return RefusedAsWhole(Code.GROUP_MAX_SIZE_REACHED, message)
    if op.member_id in group.pending:
        if op.group_instance_id is not None:
            return RefusedAsWhole(Code.UNKNOWN_MEMBER_ID)
    elif op.member_id:
        code = check_member(group, op.member_id, op.group_instance_id)
        if code is not Code.NONE:
            return RefusedAsWhole(code)
    if not may_share(group, op.protocol_type, op.protocols, op.member_id or holder):
        message = (
            f"Group {op.group_id} has members that support no assignor of this member: set the "
            "same partition.assignment.strategy in all members."
        )
        return RefusedAsWhole(Code.INCONSISTENT_GROUP_PROTOCOL, message)
    return _check_bytes(turn, group, op, op.member_id or holder)


def _check_memory(
    turn: GroupTurn, op: JoinGroup, asks: Member, before: Member | None
) -> RefusedAsWhole | None:
    """Return a refusal if the owner's share of the broker's memory has no room for the member, in
    the group and in the record of a generation; otherwise None. `before`: the member that the new
    one replaces."""
    owner = owner_of(turn, op.group_id, op.principal)
    was_bytes = 0 if before is None else before.size_bytes + before.record_bytes
    size_bytes = asks.size_bytes + asks.record_bytes - was_bytes
    if before is None:
        size_bytes += SEAT_BYTES + MEMBER_BYTES
    if op.group_id not in turn.state.groups:
        size_bytes += GROUP_BYTES + GENERATION_BYTES
    if turn.state.memory.of_broker.admits(owner, size_bytes):
        return None
    return no_room(op.group_id, owner, Code.GROUP_MAX_SIZE_REACHED)


def _check_bytes(
    turn: GroupTurn, group: ClassicGroup, op: JoinGroup, known: str | None
) -> RefusedAsWhole | None:
    """Return a refusal if all members' metadata would not fit in one record, otherwise None: a
    group that cannot store a generation would start rebalances forever. A member with no more
    metadata than before is accepted, even if assignments have grown. `known`: the id of the member
    that the new one replaces, None for a further member."""
    before = group.members.get(known or "")
    asks = Member(op.member_id or op.new_member_id, op.group_instance_id)
    asks.client_id, asks.client_host, asks.protocols = op.client_id, op.client_host, op.protocols
    if before is not None:
        asks.assignment = before.assignment
        asks.client_id, asks.client_host = before.client_id, before.client_host
        if asks.record_bytes <= before.record_bytes and asks.size_bytes <= before.size_bytes:
            return None
    size_bytes = group.size_bytes + asks.size_bytes - (before.size_bytes if before else 0)
    if size_bytes <= GROUP_BYTES_MAX and group.record_bytes(asks) <= turn.record_bytes_max:
        return _check_memory(turn, op, asks, before)
    message = (
        f"The metadata of all members of group {op.group_id}, including this member's, would not "
        f"fit in one record of {turn.record_bytes_max} bytes: subscribe to fewer topics, or raise "
        "message.max.bytes."
    )
    return RefusedAsWhole(Code.GROUP_MAX_SIZE_REACHED, message)


def _add(
    turn: GroupTurn,
    group: ClassicGroup,
    op: JoinGroup,
    member_id: str,
    token: object,
    effects: Effects,
) -> None:
    """Add a new member, park its request until all members have joined again, and start a rebalance
    unless one is in progress. If the log has no record of the group's membership yet, write the
    first one."""
    durable = turn.state.groups.get(op.group_id)
    if not group.members:
        group.protocol_type = op.protocol_type
    if durable is None or durable.stored is None:
        effects.records.append(_beginning(turn, op))
        effects.then = partial(BeginningStored, op.group_id)
        expiry = ExpiryDue(op.group_id)
        if expiry not in turn.soft.deadlines:
            turn.soft.deadlines.set(expiry, turn.now_ms + turn.settings.retention_check_ms)
    member = Member(member_id, op.group_instance_id)
    member.client_id, member.client_host = op.client_id, op.client_host
    sit(turn, group, member)
    _update(group, member, op)
    if isinstance(group.phase, Preparing) and group.phase.first is not None:
        group.phase.first.newcomers = True
    park_join(turn, group, member, token, effects)
    rebalance(turn, group, effects)


def _beginning(turn: GroupTurn, op: JoinGroup) -> GroupStored:
    return GroupStored(
        group_id=op.group_id,
        protocol_type=op.protocol_type,
        generation=0,
        protocol=None,
        leader=None,
        state_ms=turn.wall_ms,
        owner=owner_of(turn, op.group_id, op.principal),
    )


def _update(group: ClassicGroup, member: Member, op: JoinGroup) -> None:
    group.tell(member, op.protocols)
    if len(group.members) == 1:
        group.protocol_type = op.protocol_type
    member.session_timeout_ms = op.session_timeout_ms
    member.rebalance_timeout_ms = op.rebalance_timeout_ms


def _join_again(
    turn: GroupTurn, group: ClassicGroup, op: JoinGroup, token: object, effects: Effects
) -> None:
    """Let a known member join again. Answer an unchanged request with the present generation, since
    the first answer may be lost. A leader of a stable group that joins again wants another
    assignment."""
    member = group.members[op.member_id]
    same = member.protocols == op.protocols
    match group.phase:
        case Empty():
            raise AssertionError(f"{op.member_id} is a member of an empty group")
        case Completing() if same:
            effects.reply(token, joined(group, op.member_id))
            prolong(turn, group, member)
        case Stable() if same and op.member_id != group.leader:
            effects.reply(token, joined(group, op.member_id))
            prolong(turn, group, member)
        case _:
            _update(group, member, op)
            park_join(turn, group, member, token, effects)
            rebalance(turn, group, effects)


def _check_rejoins(turn: GroupTurn, group: ClassicGroup) -> RefusedAsWhole | None:
    """Return a refusal if returning static members had this stable group's generation written so
    lately that REJOIN_BYTES_PER_S would be exceeded; otherwise None. Clients try again."""
    if not isinstance(group.phase, Stable) or turn.now_ms >= group.rejoins_from_ms:
        return None
    message = (
        f"Static members of group {group.group_id} rejoin faster than the coordinator may write "
        "the group to its log, so this member was refused for now: retry."
    )
    return RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS, message)


def _replace(
    turn: GroupTurn,
    group: ClassicGroup,
    op: JoinGroup,
    holder: str,
    token: object,
    effects: Effects,
) -> None:
    """Replace a static member that returned without its id: the previous holder of the instance is
    fenced. A stable group needs no rebalance if the vote is unchanged."""
    old_leader = group.leader
    answer_parked(group, holder, Code.FENCED_INSTANCE_ID, effects)
    turn.soft.deadlines.clear(EndSession(group.group_id, holder))
    member = group.rename(holder, op.new_member_id)
    _update(group, member, op)
    if isinstance(group.phase, Stable) and vote(group) == group.protocol:
        effects.records.append(generation_of(turn, group))
        written_ms = group.record_bytes(member) * 1000 // REJOIN_BYTES_PER_S
        group.rejoins_from_ms = turn.now_ms + written_ms
        effects.reply(token, _current(group, member, op, old_leader))
        prolong(turn, group, member)
        return
    park_join(turn, group, member, token, effects)
    rebalance(turn, group, effects)


def _current(
    group: ClassicGroup, member: Member, op: JoinGroup, old_leader: str | None
) -> GroupJoined:
    """Return the answer for a static member that takes part in the present generation without a
    rebalance. If it leads the group, it is told that it may skip the assignment; a client that does
    not know that field is told that `old_leader` leads."""
    assert group.protocol is not None
    assert old_leader is not None
    assert group.leader is not None
    leads = member.member_id == group.leader
    return GroupJoined(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader if op.may_skip_assignment else old_leader,
        skip_assignment=leads and op.may_skip_assignment,
        members=members_of(group) if leads and op.may_skip_assignment else (),
    )
