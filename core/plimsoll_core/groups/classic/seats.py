"""The members and reserved member ids of a classic group in memory.

Called by the rules of groups. A loaded group is built in memory when it is first needed, and the
sessions of its members begin then. A group without members is dropped from memory once its
emptiness is stored. Every seat (a member or a reserved id) is counted here. `Effects` collects the
replies and records of a decision.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refused
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import owner_of
from plimsoll_core.groups.classic_group import ClassicGroup, Completing, Empty, Member, Stable
from plimsoll_core.groups.membership import EndPending, EndSession
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.turn import GroupTurn


class Effects:
    """Collects the replies and records of one operation on a group. Replies may go to the present
    request or to parked ones."""

    __slots__ = ("_replies", "records", "then")

    def __init__(self) -> None:
        self._replies: list[Reply] = []
        # At most one record stands here: a decision begins a group, or ends a generation.
        self.records: list[GroupRecord] = []
        # As in the outcome.
        self.then: Callable[[Code], Operation] | None = None

    def reply(self, token: object, answer: object) -> None:
        self._replies.append(Reply(token, answer))

    def refuse(self, token: object, code: Code, message: str = "") -> None:
        self._replies.append(refused(token, code, message))

    def outcome(
        self, group_id: str, parked: object = None
    ) -> CoordinatorOutcome[GroupRecord, Operation]:
        """Return the collected effects as an outcome. `parked`: the token of the present request if
        it may wait for its answer. The request counts as parked unless it was answered."""
        answered = any(reply.token is parked for reply in self._replies)
        return CoordinatorOutcome(
            key=group_id,
            records=tuple(self.records),
            replies=tuple(self._replies),
            then=self.then,
            parked=parked is not None and not answered,
        )


def find(turn: GroupTurn, group_id: str) -> ClassicGroup | None:
    """Return the group in memory. If it is not there, build it from its stored generation, which
    starts the members' session timeouts. Return None if there is no stored generation with
    members."""
    group = turn.soft.classic.get(group_id)
    if group is not None:
        return group
    durable = turn.state.groups.get(group_id)
    if durable is None or durable.stored is None or not durable.stored.members:
        return None
    group = turn.soft.classic[group_id] = ClassicGroup.of_stored(durable.stored)
    turn.soft.seats += len(group.members)
    for member in group.members.values():
        prolong(turn, group, member)
    return group


def find_or_make(turn: GroupTurn, group_id: str, principal: str) -> ClassicGroup:
    """Return the group in memory. If it is not there, build it from its stored generation or create
    it. `principal`: becomes the owner of a group without an owner."""
    group = find(turn, group_id)
    if group is None:
        durable = turn.state.groups.get(group_id)
        stored = None if durable is None else durable.stored
        group = ClassicGroup(group_id) if stored is None else ClassicGroup.of_stored(stored)
        turn.soft.classic[group_id] = group
    group.owner = group.owner or owner_of(turn, group_id, principal)
    return group


def is_empty(turn: GroupTurn, group_id: str) -> bool:
    """Return True if the group has no members or does not exist, so that its offsets and the group
    may be deleted. Reserved member ids do not count."""
    group = find(turn, group_id)
    return group is None or isinstance(group.phase, Empty)


def let_go_of(turn: GroupTurn, group_id: str) -> None:
    """Call `let_go` for the group with this id; do nothing if it is not in memory."""
    group = turn.soft.classic.get(group_id)
    if group is not None:
        let_go(turn, group)


def let_go(turn: GroupTurn, group: ClassicGroup) -> None:
    """Drop a group from memory if it has neither members nor reserved ids, and the log stores no
    members of it either. Otherwise do nothing."""
    durable = turn.state.groups.get(group.group_id)
    stored = None if durable is None else durable.stored
    if isinstance(group.phase, Empty) and not group.size and not (stored and stored.members):
        turn.soft.classic.pop(group.group_id, None)


def prolong(turn: GroupTurn, group: ClassicGroup, member: Member) -> None:
    """Restart the session timeout of a member that sent a request. A member with a parked JoinGroup
    or SyncGroup has no session timeout."""
    member_id = member.member_id
    if member_id not in group.joins and member_id not in group.syncs:
        key = EndSession(group.group_id, member_id)
        turn.soft.deadlines.set(key, turn.now_ms + member.session_timeout_ms)


def sit(turn: GroupTurn, group: ClassicGroup, member: Member) -> None:
    group.add(member)
    turn.soft.seats += 1


def stand_up(turn: GroupTurn, group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """Remove a member from the group and answer its parked requests with UNKNOWN_MEMBER_ID. The
    caller starts the rebalance."""
    group.remove(member_id)
    turn.soft.seats -= 1
    turn.soft.deadlines.clear(EndSession(group.group_id, member_id))
    answer_parked(group, member_id, Code.UNKNOWN_MEMBER_ID, effects)


def answer_parked(group: ClassicGroup, member_id: str, code: Code, effects: Effects) -> None:
    """Answer all parked requests of the member with this error."""
    for parked in (group.joins, group.syncs):
        token = parked.pop(member_id, None)
        if token is not None:
            effects.refuse(token, code)


def give_id(turn: GroupTurn, group: ClassicGroup, member_id: str, session_ms: int) -> None:
    group.pending[member_id] = None
    turn.soft.seats += 1
    turn.soft.deadlines.set(EndPending(group.group_id, member_id), turn.now_ms + session_ms)


def take_id(turn: GroupTurn, group: ClassicGroup, member_id: str) -> None:
    """Release a reserved member id, because its member joined or its time is over."""
    del group.pending[member_id]
    turn.soft.seats -= 1
    turn.soft.deadlines.clear(EndPending(group.group_id, member_id))


def check_member(group: ClassicGroup | None, member_id: str, instance: str | None) -> Code:
    """Return NONE if the id is a member's, else UNKNOWN_MEMBER_ID, as for a `group` that is None.
    With `instance`, return NONE only if this id holds that static instance, FENCED_INSTANCE_ID if
    another member id holds it, and UNKNOWN_MEMBER_ID if none does."""
    if group is None:
        return Code.UNKNOWN_MEMBER_ID
    if instance is not None:
        holder = group.holder(instance)
        if holder is None:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if holder == member_id else Code.FENCED_INSTANCE_ID
    return Code.NONE if member_id in group.members else Code.UNKNOWN_MEMBER_ID


def saw_sync(group: ClassicGroup, member_id: str) -> None:
    """Remove the member from those that have not sent SyncGroup in this generation; do nothing
    while members join."""
    if isinstance(group.phase, Completing | Stable):
        group.phase.unsynced.discard(member_id)
