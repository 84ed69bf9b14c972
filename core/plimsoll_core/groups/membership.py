"""The requests of members, their answers, and the operations of deadlines: part of `Operation`.

Handlers make requests; `groups.step.due` and outcomes' `then` make the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.groups.members import Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """JoinGroup. Answered by `GroupJoined` or `MemberIdGiven`, or refused."""

    group_id: str
    member_id: str = ""
    """The member's id; empty if it has none."""
    group_instance_id: str | None = None
    new_member_id: str
    """The id that it gets if it has none: never used before."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_its_id: bool = True
    """True from version 4: a member without an id gets one and must join again with it
    (KIP-394)."""
    principal: str = ""
    """The client's principal: the group is charged to the principal that begins it."""
    may_skip_assignment: bool = True
    """True from version 9: a leader may be told that the group's assignments stay valid
    (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as its leader hears it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJoined:
    """A successful join. `members`: only in the leader's answer."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberIdGiven:
    """MEMBER_ID_REQUIRED: the client must join again with this id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """SyncGroup. Answered by `GroupSynced`."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    """None if the client did not state it (before version 5)."""
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """Assignments by member id; only in the leader's request."""


@dataclass(frozen=True, slots=True)
class GroupSynced:
    """The member's part."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """Heartbeat. Answered by `HeartbeatTaken`."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatTaken:
    """The member belongs to the group."""


class Leaver(NamedTuple):
    """A member that leaves, by id; a static member by its instance alone, if an administrator
    removes it."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """LeaveGroup. Answered by `MembersLeft`."""

    group_id: str
    members: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class MembersLeft:
    """Results of LeaveGroup, in the order of the request."""

    codes: tuple[Code, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRequest:
    """The connection of a parked request is gone.  No answer."""

    group_id: str
    token: object


@dataclass(frozen=True, slots=True)
class EndSession:
    """A deadline: the member was not heard of for its session's time."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class EndPending:
    """A deadline: no member came with an id that was given out."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class EndJoining:
    """A deadline: members had time to join."""

    group_id: str


@dataclass(frozen=True, slots=True)
class EndSyncing:
    """A deadline: members had time to ask for their assignments."""

    group_id: str


@dataclass(frozen=True, slots=True)
class WakeGroup:
    """A deadline: the group was loaded, its members' sessions begin."""

    group_id: str


@dataclass(frozen=True, slots=True)
class StoreEmptiness:
    """A deadline: that the group is empty could not be stored, and is tried again."""

    group_id: str


@dataclass(frozen=True, slots=True)
class BeginningStored:
    """The outcome of the record with which a group begins."""

    group_id: str
    code: Code


@dataclass(frozen=True, slots=True)
class GenerationStored:
    """The outcome of the leader's assignments."""

    group_id: str
    generation: int
    code: Code


@dataclass(frozen=True, slots=True)
class EmptinessStored:
    """The outcome of the record of a group that its last member left."""

    group_id: str
    code: Code


MembershipOperation = (
    JoinGroup
    | SyncGroup
    | MemberHeartbeat
    | LeaveGroup
    | CloseRequest
    | EndSession
    | EndPending
    | EndJoining
    | EndSyncing
    | WakeGroup
    | StoreEmptiness
    | BeginningStored
    | GenerationStored
    | EmptinessStored
)
