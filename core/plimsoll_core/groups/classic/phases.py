"""The phases of a classic group: the end of each, and the answers that members get then.

Called by the rules of this package. Stable or Empty -> Preparing (members join) -> Completing (the
leader assigns) -> Stable; or Empty, if no member joined. A generation is written when the leader's
assignments arrive, and when the group becomes empty. `vote` chooses a generation's protocol: the
one that most members prefer among those that all support. Sources: docs/protocol.md §5.8.1; Kafka's
`GroupMetadataManager` and `ClassicGroup.selectProtocol`, KIP-134.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import owner_of
from plimsoll_core.groups.classic.seats import Effects, prolong, stand_up
from plimsoll_core.groups.classic_group import (
    ClassicGroup,
    Completing,
    Empty,
    FirstDelay,
    Member,
    Preparing,
    Protocols,
)
from plimsoll_core.groups.membership import (
    EmptinessStored,
    EndJoining,
    EndSession,
    EndSyncing,
    GroupJoined,
    JoinedMember,
)
from plimsoll_core.groups.records import GroupStored, StoredMember
from plimsoll_core.groups.turn import GroupTurn


def vote(group: ClassicGroup) -> str:
    """Return the protocol that most members prefer among those that all support. With equal votes
    the preference of the member that joined first decides. There is such a protocol, since
    `may_share` checked each member; the group must not be empty."""
    common = group.common()
    votes = Counter(
        next(name for name, _ in member.protocols if name in common)
        for member in group.members.values()
    )
    return max(votes, key=lambda name: votes[name])


def may_share(
    group: ClassicGroup, protocol_type: str, protocols: Protocols, member_id: str | None
) -> bool:
    """Return True if a member with this protocol type and these protocols can be in one group with
    all others: the type is the group's, and all others support one of the protocols. Without
    others, any type and at least one protocol suffice. `member_id`: of the present member that this
    one is or replaces, which is not counted; None if there is none."""
    if not protocol_type or not protocols:
        return False
    if len(group.members) == (member_id in group.members):
        return True
    if protocol_type != group.protocol_type:
        return False
    common = group.common(but=member_id if member_id in group.members else None)
    return any(name in common for name, _ in protocols)


NEW_MEMBER_JOIN_MS = 300_000
"""The time in ms that a member waits for its first generation, as in Kafka."""
_NOBODY_CAME_MS_MIN = 1_000
"""The least time in ms for which a group waits if no member joins, however short the rebalance
timeout is."""


def prepare(turn: GroupTurn, group: ClassicGroup, effects: Effects) -> None:
    """Start a rebalance (PreparingRebalance): all members must join again before its deadline. Fail
    parked SyncGroups. Complete the join phase at once if all members have joined."""
    assert not isinstance(group.phase, Preparing)
    turn.soft.rebalances += 1
    refuse_syncs(turn, group, Code.REBALANCE_IN_PROGRESS, effects)
    turn.soft.deadlines.clear(EndSyncing(group.group_id))
    first = None
    wait_ms = group.rebalance_timeout_ms
    if isinstance(group.phase, Empty):
        delay_ms = turn.settings.initial_rebalance_delay_ms
        first = FirstDelay(delay_ms, max(wait_ms - delay_ms, 0))
        wait_ms = delay_ms
    group.phase = Preparing(first)
    turn.soft.deadlines.set(EndJoining(group.group_id), turn.now_ms + wait_ms)
    complete_if_all_joined(turn, group, effects)


def refuse_syncs(turn: GroupTurn, group: ClassicGroup, code: Code, effects: Effects) -> None:
    """Answer all parked SyncGroups with `code`, and restart the session timeouts of their
    members."""
    waiting, group.syncs = group.syncs, {}
    for member_id, token in waiting.items():
        effects.refuse(token, code)
        prolong(turn, group, group.members[member_id])


def park_join(
    turn: GroupTurn, group: ClassicGroup, member: Member, token: object, effects: Effects
) -> None:
    """Park a join request until the phase ends. Fail an older parked request of the same member at
    once. Meanwhile the member's session cannot expire; a new member has `NEW_MEMBER_JOIN_MS`
    instead."""
    older = group.joins.pop(member.member_id, None)
    if older is not None:
        effects.refuse(older, Code.REBALANCE_IN_PROGRESS)
    group.joins[member.member_id] = token
    session = EndSession(group.group_id, member.member_id)
    if member.is_new:
        turn.soft.deadlines.set(session, turn.now_ms + NEW_MEMBER_JOIN_MS)
    else:
        turn.soft.deadlines.clear(session)


def rebalance(turn: GroupTurn, group: ClassicGroup, effects: Effects) -> None:
    """Start a rebalance because the members have changed. During a join phase, complete it if all
    members have joined now."""
    if isinstance(group.phase, Preparing):
        complete_if_all_joined(turn, group, effects)
    else:
        prepare(turn, group, effects)


def complete_if_all_joined(turn: GroupTurn, group: ClassicGroup, effects: Effects) -> None:
    """Complete the join phase if the group is in it and all members and reserved ids have joined. A
    group's first rebalance ends only with its delay."""
    if isinstance(group.phase, Preparing) and group.phase.first is None and group.all_joined:
        complete_joining(turn, group, effects)


def complete_joining(turn: GroupTurn, group: ClassicGroup, effects: Effects) -> None:
    """Form the next generation from the members that have joined, and the static members that have
    not yet. Other members that did not join are removed. If only static members are left that did
    not join, wait longer; if none is left the group is empty."""
    joining = EndJoining(group.group_id)
    turn.soft.deadlines.clear(joining)
    for member_id, member in list(group.members.items()):
        if member_id not in group.joins and member.group_instance_id is None:
            stand_up(turn, group, member_id, effects)
    if group.members and not group.joins:
        # No member could lead: wait until sessions end, or a member joins.
        group.phase = Preparing(None)
        wait_ms = max(group.rebalance_timeout_ms, _NOBODY_CAME_MS_MIN)
        turn.soft.deadlines.set(joining, turn.now_ms + wait_ms)
        return
    group.generation += 1
    if not group.members:
        _become_empty(turn, group, effects)
        return
    if group.leader not in group.joins:
        group.leader = next(one for one in group.members if one in group.joins)
    group.protocol = vote(group)
    joins, group.joins = group.joins, {}
    group.phase = Completing(set(joins))
    for member_id, token in joins.items():
        member = group.members[member_id]
        member.is_new = False
        effects.reply(token, joined(group, member_id))
        prolong(turn, group, member)
    syncing = EndSyncing(group.group_id)
    turn.soft.deadlines.set(syncing, turn.now_ms + group.rebalance_timeout_ms)


def _become_empty(turn: GroupTurn, group: ClassicGroup, effects: Effects) -> None:
    group.phase = Empty()
    group.protocol = group.leader = None
    effects.records.append(generation_of(turn, group))
    effects.then = partial(EmptinessStored, group.group_id)


def joined(group: ClassicGroup, member_id: str) -> GroupJoined:
    """Return the answer to a member's JoinGroup for the present generation. Only the leader's
    answer lists all members."""
    assert group.protocol is not None
    assert group.leader is not None
    leads = member_id == group.leader
    return GroupJoined(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=members_of(group) if leads else (),
    )


def members_of(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """Return the members as listed in the leader's answer to JoinGroup, each with its metadata for
    the generation's protocol."""
    return tuple(
        JoinedMember(one.member_id, one.group_instance_id, one.subscription(group.protocol))
        for one in group.members.values()
    )


def generation_of(
    turn: GroupTurn, group: ClassicGroup, assignments: dict[str, bytes] | None = None
) -> GroupStored:
    """Return the record of the group's present generation. `assignments`: by member id, empty for a
    member that is missing there; None for the assignments that the members have."""

    def assignment(member: Member) -> bytes:
        return member.assignment if assignments is None else assignments.get(member.member_id, b"")

    return GroupStored(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        state_ms=turn.wall_ms,
        owner=owner_of(turn, group.group_id),
        members=tuple(
            StoredMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout_ms=one.rebalance_timeout_ms,
                session_timeout_ms=one.session_timeout_ms,
                subscription=one.subscription(group.protocol),
                assignment=assignment(one),
            )
            for one in group.members.values()
        ),
    )
