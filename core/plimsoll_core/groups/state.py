"""The durable state of the groups of one partition of `__consumer_offsets`.

Equal to a replay of that partition's log: `groups.apply` alone writes it, decisions only read.
What is lost at a failover stands in `groups.soft`.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from plimsoll_core.groups.records import GroupStored


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """One partition's committed offset: `OffsetCommitted` without what it is found by."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None
    topic_id: UUID | None


class Group:
    """One group.  It exists as long as it has a stored generation or a committed offset."""

    __slots__ = ("group_id", "offsets", "stored", "written_to")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # The last stored generation; None: a "simple" group, which has offsets and never members.
        self.stored: GroupStored | None = None
        # By topic and partition, in the order in which they were first committed.
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}
        # One past the group's last record in the log.
        self.written_to = 0

    @property
    def has_members(self) -> bool:
        """As its last stored generation has it."""
        return self.stored is not None and bool(self.stored.members)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return (self.group_id, self.stored, self.offsets, self.written_to) == (
            other.group_id,
            other.stored,
            other.offsets,
            other.written_to,
        )

    __hash__ = None  # type: ignore[assignment]  # it changes


class GroupsState:
    """All groups of one partition."""

    __slots__ = ("_gone", "end", "groups", "offsets")

    def __init__(self) -> None:
        # In the order in which they were first written.
        self.groups: dict[str, Group] = {}
        # One past the last record that was applied.
        self.end = 0
        # How many offsets are committed, over all groups.
        self.offsets = 0
        # Groups that exist no more: one past each one's last record, until that is committed.
        self._gone: dict[str, int] = {}

    def written_to(self, group_id: str | None) -> int:
        """One past the last record of a group, or of them all: what is said of the group leaves
        once the high watermark is there."""
        if group_id is None:
            return self.end
        group = self.groups.get(group_id)
        return self._gone.get(group_id, 0) if group is None else group.written_to

    def gone_at(self, group_id: str, end: int) -> None:
        """For `apply` alone."""
        self._gone[group_id] = end

    def begins(self, group_id: str) -> None:
        """For `apply` alone: the group exists again."""
        self._gone.pop(group_id, None)

    def committed(self, high_watermark: int) -> None:
        """What is below the high watermark needs no waiting for: it is not remembered longer."""
        if self._gone:
            self._gone = {g: end for g, end in self._gone.items() if end > high_watermark}

    def committed_offsets(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Group, topic, partition and offset of each."""
        for group in self.groups.values():
            for topic, partitions in group.offsets.items():
                for partition, committed in partitions.items():
                    yield group.group_id, topic, partition, committed
