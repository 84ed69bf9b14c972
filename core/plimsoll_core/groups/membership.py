"""The requests of group members and their answers, and the operations of deadlines. All are parts
of `Operation`.

Handlers make the requests. `groups.step.due` and the `then` of outcomes make the other operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.groups.classic_group import Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A client's JoinGroup. Answered by `GroupJoined` or `MemberIdGiven`, or refused."""

    group_id: str
    member_id: str = ""
    """The member's id; empty if it has none."""
    group_instance_id: str | None = None
    new_member_id: str
    """A new id for a member that has none, made by the handler and never used before."""
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
    """A member as listed in the leader's answer to JoinGroup."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJoined:
    """A successful answer to JoinGroup, once the generation is formed. `members`: all members, in
    the leader's answer only."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberIdGiven:
    """The answer MEMBER_ID_REQUIRED: the client must join again with this id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A client's SyncGroup. Answered by `GroupSynced`, or refused."""

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
    """A successful answer to SyncGroup: the member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """A client's Heartbeat. Answered by `HeartbeatTaken`."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatTaken:
    """A successful answer to Heartbeat: the member belongs to the group's present generation."""


class Leaver(NamedTuple):
    """A member named in LeaveGroup. An administrator names a static member by its instance alone,
    with an empty id."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """A client's LeaveGroup. Answered by `MembersLeft`."""

    group_id: str
    members: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class MembersLeft:
    """Results of LeaveGroup, in the order of the request."""

    codes: tuple[Code, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRequest:
    """The connection of a parked request was lost. `token`: identifies that request. Not
    answered."""

    group_id: str
    token: object


@dataclass(frozen=True, slots=True)
class EndSession:
    """A deadline: the member has sent nothing for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class EndPending:
    """A deadline: no member has joined with a reserved member id."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class EndJoining:
    """A deadline: the join phase of a rebalance is over."""

    group_id: str


@dataclass(frozen=True, slots=True)
class EndSyncing:
    """A deadline: the time in which members may ask for their assignments is over."""

    group_id: str


@dataclass(frozen=True, slots=True)
class WakeGroup:
    """A deadline: build a group that was loaded from the log in memory, which starts its members'
    sessions."""

    group_id: str


@dataclass(frozen=True, slots=True)
class StoreEmptiness:
    """A deadline: try again to write the record of an empty group, which could not be stored
    before."""

    group_id: str


@dataclass(frozen=True, slots=True)
class BeginningStored:
    """The first record of a new group was committed (code NONE), or could not be (the error
    code)."""

    group_id: str
    code: Code


@dataclass(frozen=True, slots=True)
class GenerationStored:
    """The record with the leader's assignments was committed (code NONE), or could not be (the
    error code)."""

    group_id: str
    generation: int
    code: Code


@dataclass(frozen=True, slots=True)
class EmptinessStored:
    """The record of a group that has become empty was committed (code NONE), or could not be (the
    error code)."""

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
