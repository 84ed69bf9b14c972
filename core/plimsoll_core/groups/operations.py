"""The operations on a shard's groups, and their answers: the input and output of `step`.

Handlers make operations from requests; deadlines and metadata changes make others. An operation
holds the content of the request. A token, passed beside it, identifies the request that is
answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import MembershipOperation
from plimsoll_core.groups.state import CommittedOffset
from plimsoll_core.ids import ProducerLife


class PartitionOffset(NamedTuple):
    """One partition's offset in a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class PartitionCode(NamedTuple):
    """The error code for one partition."""

    topic: str
    partition: int
    code: Code


class FetchedOffset(NamedTuple):
    """One partition's committed offset; -1 if none is committed."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    is_stable: bool = True
    """False if an open transaction would commit another offset, and the request asks for stable
    ones alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """A client's OffsetCommit, or its TxnOffsetCommit. Answered by `OffsetsCommitted`."""

    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = -1
    """The group generation that the member states; -1 if the client is not a member."""
    offsets: tuple[PartitionOffset, ...]
    retention_ms: int | None = None
    """The retention that the request states for these offsets, in milliseconds; None if the
    cluster's applies."""
    principal: str = ""
    """The client's principal: the group is charged to the principal that begins it."""
    producer: ProducerLife | None = None
    """The producer with the transaction that these offsets belong to; None for an OffsetCommit."""
    tells_missing_groups: bool = False
    """True from version 9: if the group of a stated generation does not exist, the error is
    GROUP_ID_NOT_FOUND."""


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """The results of a commit, in the order of the request."""

    partitions: tuple[PartitionCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """OffsetFetch of some partitions. Answered by `OffsetsFetched`. `stable`: True if offsets that
    an open transaction may replace are not wanted."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]
    stable: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """Fetched offsets, in the order of the request."""

    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAllOffsets:
    """OffsetFetch of all partitions. Answered by `AllOffsetsFetched`. `stable`: as for
    `FetchOffsets`."""

    group_id: str
    stable: bool = False


@dataclass(frozen=True, slots=True)
class AllOffsetsFetched:
    """All committed offsets of a group at one moment, by topic and partition. Later commits do not
    change the object, so a handler may encode it later, in parts. `unstable`: the topics and
    partitions with an offset that is not told, since an open transaction would commit another
    one."""

    topics: dict[str, dict[int, CommittedOffset]]
    unstable: frozenset[tuple[str, int]] = frozenset()

    def offsets(self) -> Iterator[FetchedOffset]:
        """Yield all offsets in the form of an OffsetFetch answer."""
        for topic, partitions in self.topics.items():
            for index, committed in partitions.items():
                if (topic, index) in self.unstable:
                    yield FetchedOffset(topic, index, is_stable=False)
                else:
                    yield fetched(topic, index, committed)


def fetched(topic: str, partition: int, committed: CommittedOffset) -> FetchedOffset:
    """Return a committed offset in the form of an OffsetFetch answer."""
    return FetchedOffset(
        topic, partition, committed.offset, committed.leader_epoch, committed.metadata
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete. Answered by `OffsetsCommitted`."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DeleteGroups of one group. Answered by `GroupDeleted`, or by `GroupShrunk`, after which the
    caller must repeat the request."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUnloaded:
    """Delete a group that was not loaded for lack of memory, after the keys of its records were
    read from the log. Members do not prevent the deletion, since an unloaded group serves none."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The answer to a deletion: the group and all its offsets were deleted."""


@dataclass(frozen=True, slots=True)
class GroupShrunk:
    """The answer to a deletion: a part of the group's offsets was deleted, and the request must be
    repeated. A group may have more offsets than one operation deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """DescribeGroups of one group. Answered by `GroupDescribed`."""

    group_id: str


class DescribedMember(NamedTuple):
    """A group member in the answer to DescribeGroups."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribed:
    """The answer to DescribeGroups for one group. `state`: as Kafka names it; `protocol`: the
    assignor that its members agreed on, empty if none."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """ListGroups of one shard. Answered by `GroupsListed`.

    `states`, `types`: list only groups with one of these, ignoring case; empty for all.
    `group_ids`: list only those of these groups that still exist; None for all.
    """

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    group_ids: tuple[str, ...] | None = None


class ListedGroup(NamedTuple):
    """One group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class GroupsListed:
    """The listed groups of one shard."""

    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets:
    """A deadline: delete the group's offsets that are too old. No client waits for an answer."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTopics:
    """Delete one group's offsets of deleted topics, by topic id. Not answered."""

    group_id: str
    topic_ids: frozenset[UUID]


Operation = (
    CommitOffsets
    | FetchOffsets
    | FetchAllOffsets
    | DeleteOffsets
    | DeleteGroup
    | DeleteUnloaded
    | DescribeGroup
    | ListGroups
    | ExpireOffsets
    | ForgetTopics
    | MembershipOperation
)
