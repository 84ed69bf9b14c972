"""The records of `__consumer_offsets` as values: everything about groups that outlives a broker.

`plimsoll_wire.coordinator_records` encodes them in Kafka's own bytes, and `groups.state.apply`
applies them. Rules make them; they never change. Times are the wall clock's, in milliseconds since
1970.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.ids import ProducerLife


class OffsetCommitted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Record type 1: a group's committed offset of one partition."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    """The leader epoch of the last consumed record; -1 if the client did not state it."""
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None
    """The time when the offset expires by the retention of its request, in milliseconds since 1970;
    None if the cluster's retention applies."""
    topic_id: UUID | None = None
    """Id of the topic; None in a record of an older version."""
    owner: str = ""
    """The principal to which the group is charged; empty in a record of an older version."""


class OffsetPending(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Record type 1 in a batch of a transaction: an offset that its group has once the transaction
    commits, and never if it aborts."""

    producer: ProducerLife
    commit: OffsetCommitted

    @property
    def group_id(self) -> str:
        return self.commit.group_id


class TransactionMarked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end marker of a producer's transaction. It decides the producer's pending offsets of all
    groups of this log; `groups.state.mark` applies it."""

    producer_id: int
    commits: bool


class OffsetForgotten(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tombstone of a committed offset: the offset was deleted."""

    group_id: str
    topic: str
    partition: int


class StoredMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A member of a classic group in the record of a generation."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the chosen protocol."""
    assignment: bytes


class GroupStored(msgspec.Struct, frozen=True, kw_only=True):
    """Record type 2: a classic group and all its members, as of one generation."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    """The leader's member id; None in an empty group."""
    state_ms: int = -1
    """The time when the group entered this state, in milliseconds since 1970; -1 in a record of an
    older version."""
    members: tuple[StoredMember, ...] = ()
    owner: str = ""
    """The principal to which the group is charged; empty in a record of an older version."""


class GroupForgotten(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tombstone of a classic group: the group was deleted."""

    group_id: str


GroupRecord = OffsetCommitted | OffsetPending | OffsetForgotten | GroupStored | GroupForgotten
