"""A classic group's members and phase in its coordinator's memory.

Lost at a failover: a successor rebuilds the group from the last stored generation (`of_stored`), in
which a group with members is stable. Only `groups.classic` changes it, and only in ways that are
right whether the records of a decision get into the log or not. Source: Kafka's `ClassicGroup`;
docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plimsoll_core.groups.records import GroupStored

Protocols = tuple[tuple[str, bytes], ...]
"""Assignors in the member's order of preference: each name with the member's metadata for it."""
_PROTOCOL_OVERHEAD = 64
"""Approximate bytes of a protocol besides its name and metadata."""
_RECORD_OVERHEAD = 128
_MEMBER_OVERHEAD = 32
"""The bytes of a group's record, and of each member in it, besides names, subscriptions and
assignments; at least as many as Kafka's GroupMetadataValue takes."""


@dataclass(slots=True)
class FirstDelay:
    """The delay of a group's first rebalance, in which it waits for more members to join
    (KIP-134)."""

    delay_ms: int
    """Length of the present delay, in milliseconds."""
    left_ms: int
    """The time in milliseconds by which the delay may still be prolonged when it is over."""
    newcomers: bool = False
    """True if a member joined during the present delay: it is then prolonged."""


@dataclass(slots=True)
class Empty:
    """The group has no members."""


@dataclass(slots=True)
class Preparing:
    """Kafka's PreparingRebalance: members are joining."""

    first: FirstDelay | None
    """The delay of a group's first rebalance. None in any later rebalance: it ends when every
    member has joined."""


@dataclass(slots=True)
class Completing:
    """Kafka's CompletingRebalance: members know the generation and wait for the leader's
    assignments."""

    unsynced: set[str]
    """The members that were told the generation and have not asked for their assignment."""
    storing: bool = False
    """True if the leader's assignments are being written to the log."""


@dataclass(slots=True)
class Stable:
    """Kafka's Stable: members have their assignments."""

    unsynced: set[str] = field(default_factory=set)
    """Members that have not yet asked for their assignment; as in `Completing`."""


Phase = Empty | Preparing | Completing | Stable


class Member:
    """One member of a classic group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(self, member_id: str, group_instance_id: str | None) -> None:
        self.member_id = member_id
        # The instance id of a static member (KIP-345).
        self.group_instance_id = group_instance_id
        # Its name and address, for tools.
        self.client_id = ""
        self.client_host = ""
        # From its last JoinGroup.
        self.rebalance_timeout_ms = 0
        self.session_timeout_ms = 0
        self.protocols: Protocols = ()
        # The assignment of the last stored generation with this member.
        self.assignment = b""
        # True if it has never been told a generation.
        self.is_new = True

    @property
    def size_bytes(self) -> int:
        """Return the member's approximate size in memory, in bytes."""
        return protocol_bytes(self.protocols) + len(self.client_id) + len(self.client_host)

    @property
    def record_bytes(self) -> int:
        """Return the greatest number of bytes that the member may take in a generation's record,
        whichever of its protocols is chosen."""
        names = (self.member_id, self.client_id, self.client_host, self.group_instance_id or "")
        subscription = max((len(metadata) for _, metadata in self.protocols), default=0)
        return _MEMBER_OVERHEAD + _utf8(names) + subscription + len(self.assignment)

    def subscription(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`. Return empty bytes if the member does not
        support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def protocol_bytes(protocols: Protocols) -> int:
    """Return the approximate number of bytes that the names and metadata of the protocols take in
    memory."""
    return sum(_PROTOCOL_OVERHEAD + len(name) + len(metadata) for name, metadata in protocols)


def _utf8(names: Iterable[str]) -> int:
    return sum(len(name.encode()) for name in names)


class ClassicGroup:
    """A classic group in its coordinator's memory: its members, phase and parked requests. It stays
    there while it has members or reserved member ids, and until the record that it is empty is
    stored."""

    __slots__ = (
        "_instances",
        "_members",
        "_members_bytes",
        "_supported",
        "generation",
        "group_id",
        "joins",
        "leader",
        "owner",
        "pending",
        "phase",
        "protocol",
        "protocol_type",
        "rejoins_from_ms",
        "size_bytes",
        "syncs",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # The principal that is charged for the group, until a record names it.
        self.owner = ""
        self.phase: Phase = Empty()
        # The newest generation that a member may know; never below the stored one.
        self.generation = 0
        # The members' protocol type, such as "consumer"; kept while the group is empty.
        self.protocol_type = ""
        # The protocol of this generation.
        self.protocol: str | None = None
        # A member's id.
        self.leader: str | None = None
        # By id, in the order in which they came.
        self._members: dict[str, Member] = {}
        # Static members' ids by instance.
        self._instances: dict[str, str] = {}
        # Number of members that support each protocol.
        self._supported: Counter[str] = Counter()
        # Assigned ids that have not joined yet (KIP-394).
        self.pending: dict[str, None] = {}
        # Tokens of parked requests, by member.
        self.joins: dict[str, object] = {}
        self.syncs: dict[str, object] = {}
        # From when static members that return may have the generation written again.
        self.rejoins_from_ms = 0
        # Approximate size of all members.
        self.size_bytes = 0
        # Their size in a generation's record (`Member.record_bytes`).
        self._members_bytes = 0

    @staticmethod
    def of_stored(stored: GroupStored) -> ClassicGroup:
        """Build the group from its last stored generation. It is stable if that has members, else
        empty."""
        group = ClassicGroup(stored.group_id)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type
        if not stored.members:
            return group
        group.protocol, group.leader = stored.protocol or "", stored.leader
        group.phase = Stable()
        for one in stored.members:
            member = Member(one.member_id, one.group_instance_id)
            member.client_id, member.client_host = one.client_id, one.client_host
            member.rebalance_timeout_ms = one.rebalance_timeout_ms
            member.session_timeout_ms = one.session_timeout_ms
            member.protocols = ((stored.protocol or "", one.subscription),)
            member.assignment = one.assignment
            member.is_new = False
            group.add(member)
        if group.leader not in group.members:
            group.leader = stored.members[0].member_id
        return group

    @property
    def members(self) -> Mapping[str, Member]:
        return self._members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of all members; 0 without members."""
        return max((one.rebalance_timeout_ms for one in self._members.values()), default=0)

    @property
    def size(self) -> int:
        """Return the number of members and of reserved member ids."""
        return len(self._members) + len(self.pending)

    @property
    def all_joined(self) -> bool:
        return len(self.joins) == len(self._members) and not self.pending

    def holder(self, group_instance_id: str) -> str | None:
        """Return the member id that holds this static instance, or None."""
        return self._instances.get(group_instance_id)

    def common(self, but: str | None = None) -> set[str]:
        """Return the names of the protocols that all members support, not counting member `but`."""
        supported, members = self._supported, len(self._members)
        if but is not None:
            member = self._members[but]
            supported = supported.copy()
            supported.subtract({name for name, _ in member.protocols})
            members -= 1
        return {name for name, count in supported.items() if count == members}

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member.member_id
        self._count(member, 1)

    def remove(self, member_id: str) -> Member:
        """Remove a member and return it. The caller answers its parked requests."""
        member = self._members.pop(member_id)
        if member.group_instance_id is not None:
            del self._instances[member.group_instance_id]
        self._count(member, -1)
        if self.leader == member_id:
            self.leader = None
        match self.phase:
            case Completing(unsynced=unsynced) | Stable(unsynced=unsynced):
                unsynced.discard(member_id)
        return member

    def rename(self, member_id: str, new_id: str) -> Member:
        """Give a static member another member id, and return it. The member keeps its place in the
        order."""
        member = self._members[member_id]
        assert member.group_instance_id is not None
        led = self.leader == member_id
        order = list(self._members)
        self.remove(member_id)
        member.member_id = new_id
        self.add(member)
        order[order.index(member_id)] = new_id
        self._members = {one: self._members[one] for one in order}
        if led:
            self.leader = new_id
        return member

    def record_bytes(self, member: Member) -> int:
        """Return the largest possible size of a generation's record in bytes, with `member` added,
        or in place of the member with the same id or static instance."""
        instance = member.group_instance_id
        known = self._members.get(member.member_id)
        if known is None and instance is not None and instance in self._instances:
            known = self._members[self._instances[instance]]
        others = self._members_bytes - (0 if known is None else known.record_bytes)
        protocol = max((name for name, _ in member.protocols), key=len, default="")
        leader = max(self.leader or "", member.member_id, key=len)
        names = _utf8((self.group_id, self.protocol_type, protocol, leader))
        return _RECORD_OVERHEAD + names + others + member.record_bytes

    def assign(self, member_id: str, assignment: bytes) -> None:
        """Set a member's assignment, as stored with the last generation."""
        member = self._members[member_id]
        self._members_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def tell(self, member: Member, protocols: Protocols) -> None:
        """Set the protocols and metadata that a member has sent with JoinGroup."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        self.size_bytes += by * member.size_bytes
        self._members_bytes += by * member.record_bytes
        for name in {name for name, _ in member.protocols}:
            self._supported[name] += by
            if not self._supported[name]:
                del self._supported[name]
