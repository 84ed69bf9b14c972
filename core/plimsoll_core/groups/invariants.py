"""Invariants of classic groups, named as in docs/protocol.md, for tests and the simulator.

`GroupLog` reads a log, `ToldGenerations` records what members are told, `unsound` examines a
shard's memory. Each yields one sentence for each violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from plimsoll_core.groups.classic_group import (
    ClassicGroup,
    Completing,
    Empty,
    Preparing,
    Stable,
)
from plimsoll_core.groups.membership import EndJoining, EndPending, EndSession, EndSyncing
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetPending,
    StoredMember,
)
from plimsoll_core.groups.turn import GroupTurn


def _seat(member: StoredMember) -> str:
    """Return the text that identifies a member across the records of one generation: the instance
    id of a static member, since its member id may change, else the member id."""
    return member.group_instance_id or member.member_id


class GroupLog:
    """Checks the records of one partition of `__consumer_offsets`, added in log order.
    `generation_of`: returns the group generation in which a commit was accepted, or None if it is
    unknown."""

    def __init__(self, generation_of: Callable[[OffsetCommitted], int | None]) -> None:
        self._generation_of = generation_of
        self._stored: dict[str, GroupStored] = {}

    def add(self, record: GroupRecord) -> Iterator[str]:
        """Add the next record of the log. Yield a sentence for each invariant that it violates."""
        match record:
            case GroupStored():
                yield from self._store(record)
                self._stored[record.group_id] = record
            case GroupForgotten(group_id=group_id):
                self._stored.pop(group_id, None)
            case OffsetCommitted() | OffsetPending():
                group_id = record.group_id
                commit = record.commit if isinstance(record, OffsetPending) else record
                made_in, stored = self._generation_of(commit), self._stored.get(group_id)
                if made_in is not None and stored is not None and made_in < stored.generation:
                    yield (
                        f"NoStaleCommit: a commit of generation {made_in} of {group_id} lies "
                        f"behind generation {stored.generation}"
                    )

    def _store(self, record: GroupStored) -> Iterator[str]:
        before = self._stored.get(record.group_id)
        if before is None:
            return
        if record.generation < before.generation:
            yield (
                f"EpochsForward: generation {record.generation} of {record.group_id} lies behind "
                f"{before.generation}"
            )
        if record.generation == before.generation and before.members:
            was = {_seat(one): one.assignment for one in before.members}
            now = {_seat(one): one.assignment for one in record.members}
            if was != now:
                yield f"OneGeneration: {record.generation} of {record.group_id} is stored as two"


class ToldGenerations:
    """Checks that members receive only the assignments that their leader sent. Compares all
    successful answers to SyncGroup, of all coordinators that a group had."""

    def __init__(self) -> None:
        # Assignments that a leader sent and that were accepted, and those that members heard, each
        # by group and generation, and by member.
        self._sent: dict[tuple[str, int], dict[str, bytes]] = {}
        self._told: dict[tuple[str, int], dict[str, bytes]] = {}

    def sent(self, group_id: str, generation: int, assignments: dict[str, bytes]) -> Iterator[str]:
        """Record a leader's assignments, by member id, that a coordinator accepted. Yield a
        sentence for each invariant that they violate."""
        key = (group_id, generation)
        before = self._sent.setdefault(key, assignments)
        if before != assignments:
            yield f"OneGeneration: two leaders assigned in generation {generation} of {group_id}"
        yield from self._compare(group_id, generation)

    def told(self, group_id: str, generation: int, member: str, part: bytes) -> Iterator[str]:
        """Record the assignment `part` that a member received in a generation. Yield a sentence for
        each invariant that it violates."""
        key = (group_id, generation)
        before = self._told.setdefault(key, {}).setdefault(member, part)
        if before != part:
            yield f"OneGeneration: {member} heard two assignments in {generation} of {group_id}"
        yield from self._compare(group_id, generation)

    def forgotten(self, group_id: str) -> None:
        """Forget a deleted group: a later group of that name starts at the first generation
        again."""
        for held in (self._sent, self._told):
            for key in [key for key in held if key[0] == group_id]:
                del held[key]

    def _compare(self, group_id: str, generation: int) -> Iterator[str]:
        key = (group_id, generation)
        sent = self._sent.get(key)
        if sent is None:
            return
        for member, part in self._told.get(key, {}).items():
            if sent.get(member, b"") != part:
                yield f"OneOwner: {member} of {group_id} heard in {generation} what no leader sent"


def unsound(turn: GroupTurn) -> Iterator[str]:
    """Yield a sentence for each contradiction in the groups of a shard's memory."""
    seats = sum(group.size for group in turn.soft.classic.values())
    if seats != turn.soft.seats:
        yield f"{turn.soft.seats} members and reserved ids are counted, {seats} exist"
    for group in turn.soft.classic.values():
        for wrong in (*_miscounted(group), *_untimed(turn, group), *_behind(turn, group)):
            yield f"{group.group_id}: {wrong}"


def _miscounted(group: ClassicGroup) -> Iterable[str]:
    members = group.members
    supported = Counter(name for one in members.values() for name in dict(one.protocols))
    common = {name for name, count in supported.items() if count == len(members)}
    if group.common() != common:
        yield "the count of protocols that all members support is wrong"
    if members and not common:
        yield "the group's members have no protocol in common"
    if not (group.joins.keys() <= members.keys() and group.syncs.keys() <= members.keys()):
        yield "a request is parked for an id that is not a member's"
    if group.joins and not isinstance(group.phase, Preparing):
        yield "a join request is parked outside the join phase, so that it gets no answer"
    if group.syncs and not isinstance(group.phase, Completing):
        yield "a sync request is parked outside the sync phase, so that it gets no answer"
    if isinstance(group.phase, Empty) if members else isinstance(group.phase, Completing | Stable):
        yield "the group's phase contradicts its number of members"
    if group.size_bytes != sum(one.size_bytes for one in members.values()):
        yield "the group's count of bytes is wrong"


def _untimed(turn: GroupTurn, group: ClassicGroup) -> Iterable[str]:
    """Yield a sentence for each member, reserved id or phase of the group that waits without a
    deadline, or has a deadline without a wait."""
    deadlines = turn.soft.deadlines
    for member_id, member in group.members.items():
        parked = member_id in group.syncs or (member_id in group.joins and not member.is_new)
        if parked == (EndSession(group.group_id, member_id) in deadlines):
            yield (
                f"member {member_id} has a session deadline while parked, or none while not parked"
            )
    for member_id in group.pending:
        if EndPending(group.group_id, member_id) not in deadlines:
            yield f"{member_id} is a reserved id without a deadline"
    if isinstance(group.phase, Preparing) != (EndJoining(group.group_id) in deadlines):
        yield "the group has a join deadline outside the join phase, or none in it"
    syncing = EndSyncing(group.group_id) in deadlines
    if isinstance(group.phase, Completing) and group.phase.unsynced and not syncing:
        yield "the group waits for sync requests without a deadline"
    if isinstance(group.phase, Preparing | Empty) and syncing:
        yield "the group has a sync deadline outside the sync phase"


def _behind(turn: GroupTurn, group: ClassicGroup) -> Iterable[str]:
    durable = turn.state.groups.get(group.group_id)
    stored = None if durable is None else durable.stored
    if stored is not None and stored.generation > group.generation:
        yield f"generation {stored.generation} is stored, {group.generation} is known"
    told = isinstance(group.phase, Stable)
    if told and (stored is None or stored.generation != group.generation):
        yield "the group is stable in a generation that is not stored"
