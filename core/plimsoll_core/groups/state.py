"""The durable state of the groups of one partition of `__consumer_offsets`.

It equals a replay of that partition's log: `apply` is its only writer, called for each record that
a decision makes, with the offset that the record will have, and for each record that a load reads.
`apply` never refuses, since the log's content *is* the state. Decisions only read it.
`turn.SoftState` holds the state that is lost at a failover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import intern
from typing import NamedTuple, assert_never
from uuid import UUID

import msgspec

from plimsoll_core.groups.memory import (
    GROUP_BYTES,
    OFFSET_BYTES,
    TOPIC_BYTES,
    UNLOADED_BYTES,
    GroupMemory,
    ShardMemory,
    offset_bytes,
    pending_bytes,
    stored_bytes,
    text_bytes,
)
from plimsoll_core.groups.pending_offsets import PendingOffset, PendingOffsets
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
    OffsetPending,
    TransactionMarked,
)


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """One partition's committed offset: `OffsetCommitted` without its key."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None
    topic_id: UUID | None


class Group:
    """The durable state of one group. A group exists as long as it has a stored generation, a
    committed offset, or one that an open transaction would commit."""

    __slots__ = ("group_id", "offsets", "owner", "pending", "size_bytes", "stored", "written_to")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # The principal that is charged for the group (`groups.memory`); empty if none.
        self.owner = ""
        # Bytes that are charged for it.
        self.size_bytes = GROUP_BYTES + text_bytes(group_id)
        # The last stored generation; None: a "simple" group, which has offsets and never members.
        self.stored: GroupStored | None = None
        # By topic and partition, in the order in which they were first committed.
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}
        # Offsets in open transactions; None if there are none.
        self.pending: PendingOffsets | None = None
        # One past the group's last record in the log, or the last marker that decided some of it.
        self.written_to = 0

    @property
    def has_members(self) -> bool:
        """True if the group's last stored generation has members."""
        return self.stored is not None and bool(self.stored.members)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Return True if an open transaction would commit an offset of this partition."""
        return self.pending is not None and self.pending.has(topic, partition)

    def holds_as(self, other: Group | None) -> bool:
        """Return True if both are one group with the same content, also if they were read from a
        log before and after it was cleaned."""
        if other is None:
            return False
        return (self.group_id, self.stored, self.offsets, self.owner, self.pending) == (
            other.group_id,
            other.stored,
            other.offsets,
            other.owner,
            other.pending,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return self.written_to == other.written_to and self.holds_as(other)

    __hash__ = None  # type: ignore[assignment]  # it changes


class UnloadedGroup(NamedTuple):
    """A group that is in the log but was removed from memory for lack of room. `size_bytes`: the
    bytes that the group was charged when it was unloaded; `keys_bytes`: the part of these without
    its members and the offsets' metadata."""

    owner: str
    size_bytes: int
    keys_bytes: int


class GroupsState:
    """All groups of one partition of `__consumer_offsets`. `memory`: the broker's budget that they
    share; None for a budget of their own."""

    __slots__ = (
        "_gone", "end", "forgotten", "groups", "memory", "more_unloaded", "offsets", "pending",
        "unloaded",
    )  # fmt: skip

    def __init__(self, memory: GroupMemory | None = None) -> None:
        self.memory = ShardMemory(memory)
        # Groups that are in the log and not in memory, by id: nothing is known of their offsets.
        self.unloaded: dict[str, UnloadedGroup] = {}
        # There was no room for their names either: it is unknown which other groups exist.
        self.more_unloaded = False
        # Number of times that names were forgotten.
        self.forgotten = 0
        # In the order in which they were first written.
        self.groups: dict[str, Group] = {}
        # One past the last record that was applied.
        self.end = 0
        # Number of committed offsets of all groups.
        self.offsets = 0
        # By producer id: the number of its pending offsets, by group.
        self.pending: dict[int, dict[str, int]] = {}
        # Groups that exist no more: one past each one's last record, until that is committed.
        self._gone: dict[str, int] = {}

    # --- what is counted, and what there is no room for -----------------------------------------

    def grow(self, group: Group, by: int) -> None:
        """Add `by` bytes, which may be negative, to the group's charged size. Only `apply` may call
        it."""
        group.size_bytes += by
        self.memory.change(group.owner, by)

    def adopt(self, group: Group, owner: str) -> None:
        """Make the principal the owner of a group without one, and charge the group to it from now
        on. Only `apply` may call it."""
        self.memory.change(group.owner, -group.size_bytes)
        self.memory.groups.give_back(group.owner, 1)
        group.owner = owner
        self.memory.change(owner, group.size_bytes)
        self.memory.groups.take(owner, 1)

    def is_unloaded(self, group_id: str) -> bool:
        """Return True if the log may hold the group but its state is not in memory. Then no
        question about the group may be answered, and no record of it but its deletion may be
        written."""
        if group_id in self.unloaded:
            return True
        return self.more_unloaded and group_id not in self.groups

    def names(self) -> tuple[str, ...]:
        """Return the ids of all loaded groups, and of the unloaded ones that are remembered."""
        others = (group_id for group_id in self.unloaded if group_id not in self.groups)
        return (*self.groups, *others)

    def unload(self, group_id: str) -> None:
        """Remove a group's state from memory and remember its id, charged to its owner; its records
        stay in the log. Do nothing if it is not in memory."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        offsets = sum(map(len, group.offsets.values()))
        self.offsets -= offsets
        if group.pending is not None:
            offsets += len(group.pending)
            for producer_id, count in group.pending.producers():
                self.undecided(producer_id, group_id, -count)
        self.memory.change(group.owner, -group.size_bytes)
        self.memory.groups.give_back(group.owner, 1)
        keys_bytes = GROUP_BYTES + offsets * OFFSET_BYTES + len(group.offsets) * TOPIC_BYTES
        self.keep_name(group_id, UnloadedGroup(group.owner, group.size_bytes, keys_bytes))

    def keep_name(self, group_id: str, one: UnloadedGroup) -> None:
        """Remember the id of a group that is in the log and not in memory, in place of a former
        entry, and charge `UNLOADED_BYTES` to the owner."""
        before = self.unloaded.pop(group_id, None)
        if before is not None:
            self.memory.change(before.owner, -UNLOADED_BYTES)
        self.memory.change(one.owner, UNLOADED_BYTES)
        self.unloaded[group_id] = one

    def loaded_again(self, group_id: str) -> None:
        """Stop counting the group as unloaded: all its records have been applied, or it has none
        any more."""
        before = self.unloaded.pop(group_id, None)
        if before is not None:
            self.memory.change(before.owner, -UNLOADED_BYTES)

    def forget_unloaded(self) -> None:
        """Forget the ids of all unloaded groups, for lack of memory. From then on any unknown group
        counts as possibly unloaded."""
        for group_id in [group_id for group_id in self.unloaded if group_id in self.groups]:
            self.unload(group_id)  # it was being read again
        for one in self.unloaded.values():
            self.memory.change(one.owner, -UNLOADED_BYTES)
        if self.unloaded:
            self.more_unloaded = True
            self.forgotten += 1
            self.unloaded.clear()

    def written_to(self, group_id: str | None) -> int:
        """Return the end offset of the group's last record, or of all groups' if `group_id` is
        None; 0 for a group without records. Replies about a group wait until the high watermark
        reaches this offset."""
        if group_id is None:
            return self.end
        group = self.groups.get(group_id)
        return self._gone.get(group_id, 0) if group is None else group.written_to

    def begins(self, group: Group) -> None:
        """Add a group that has got its first record. Only `apply` may call it."""
        self.groups[group.group_id] = group
        self._gone.pop(group.group_id, None)
        self.memory.change(group.owner, group.size_bytes)
        self.memory.groups.take(group.owner, 1)

    def ends(self, group: Group) -> None:
        """Remove a group that has no members and no offsets left. Only `apply` may call this."""
        del self.groups[group.group_id]
        self._gone[group.group_id] = group.written_to
        self.memory.change(group.owner, -group.size_bytes)
        self.memory.groups.give_back(group.owner, 1)

    def undecided(self, producer_id: int, group_id: str, more: int) -> None:
        """Count `more` pending offsets of a producer in a group, which may be negative. Only
        `apply`, `mark` and `unload` may call it."""
        groups = self.pending.setdefault(producer_id, {})
        groups[group_id] = groups.get(group_id, 0) + more
        if not groups[group_id]:
            del groups[group_id]
            if not groups:
                del self.pending[producer_id]

    def pending_of(self, producer_id: int) -> int:
        """Return the number of the producer's pending offsets in all groups."""
        return sum(self.pending.get(producer_id, {}).values())

    def committed(self, high_watermark: int) -> None:
        """Forget the end offsets of deleted groups at or below the new high watermark, since
        replies about those groups need not wait any more."""
        if self._gone:
            self._gone = {g: end for g, end in self._gone.items() if end > high_watermark}

    def committed_offsets(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Yield the group, topic, partition and offset of each committed offset."""
        for group in self.groups.values():
            for topic, partitions in group.offsets.items():
                for partition, committed in partitions.items():
                    yield group.group_id, topic, partition, committed


def apply(state: GroupsState, record: GroupRecord, offset: int) -> None:
    """Apply a record to the state. `offset`: its offset in the log."""
    if offset >= state.end:
        state.end = offset + 1
    match record:
        case OffsetCommitted():
            _commit(state, record, offset)
        case OffsetPending():
            _pend(state, record, offset)
        case OffsetForgotten():
            _forget_offset(state, record, offset)
        case GroupStored():
            group = _group(state, record.group_id, record.owner)
            state.grow(group, stored_bytes(record) - stored_bytes(group.stored))
            group.stored = record
            group.written_to = offset + 1
        case GroupForgotten():
            group = _group(state, record.group_id)
            state.grow(group, -stored_bytes(group.stored))
            group.stored = None
            group.written_to = offset + 1
            _drop_if_empty(state, group)
        case _:
            assert_never(record)


def mark(
    state: GroupsState,
    marker: TransactionMarked,
    offset: int,
    reads: Callable[[str], bool] | None = None,
) -> list[OffsetCommitted]:
    """Apply the marker that ends a producer's transaction: its pending offsets become committed
    ones, or are dropped. Return the records of these offsets. `offset`: the marker's offset in the
    log; `reads`: returns True for each group to which it is applied; None for all groups."""
    skip(state, offset)
    decided: list[OffsetCommitted] = []
    for group_id in list(state.pending.get(marker.producer_id, ())):
        if reads is not None and not reads(group_id):
            continue
        group = state.groups[group_id]
        assert group.pending is not None, "it is counted"
        taken = group.pending.take(marker.producer_id)
        state.undecided(marker.producer_id, group_id, -len(taken))
        if not group.pending:
            group.pending = None
        decided += [one.record for one in taken]
        for one in taken:
            state.grow(group, -pending_bytes(one.record.metadata))
            if marker.commits:
                _commit(state, one.record, offset, one.place)
        group.written_to = offset + 1
        _drop_if_empty(state, group)
    return decided


def skip(state: GroupsState, offset: int) -> None:
    """Note that the log has a record of an unknown kind at `offset`; it has no effect on groups."""
    state.end = max(state.end, offset + 1)


def _group(state: GroupsState, group_id: str, owner: str = "") -> Group:
    """Return the group; create it if it does not exist. `owner`: becomes the group's owner if it
    has none."""
    group = state.groups.get(group_id)
    if group is None:
        group = Group(group_id)
        group.owner = intern(owner)
        state.begins(group)
    elif owner and not group.owner:
        state.adopt(group, intern(owner))
    return group


def _pend(state: GroupsState, record: OffsetPending, offset: int) -> None:
    commit, producer_id = record.commit, record.producer.producer_id
    group = _group(state, commit.group_id, commit.owner)
    if group.pending is None:
        group.pending = PendingOffsets()
    before = group.pending.add(producer_id, PendingOffset(offset, commit))
    state.grow(group, pending_bytes(commit.metadata))
    if before is None:
        state.undecided(producer_id, commit.group_id, 1)
    else:
        state.grow(group, -pending_bytes(before.record.metadata))
    group.written_to = offset + 1


def _supersede(
    state: GroupsState, group: Group, record: OffsetCommitted | OffsetForgotten, place: int
) -> None:
    """Drop the pending offsets of a partition that `record` replaces. `place`: its offset in the
    log."""
    assert group.pending is not None
    for producer_id, one in group.pending.supersede(record.topic, record.partition, place):
        state.grow(group, -pending_bytes(one.record.metadata))
        state.undecided(producer_id, group.group_id, -1)
    if not group.pending:
        group.pending = None


def _commit(
    state: GroupsState, record: OffsetCommitted, offset: int, place: int | None = None
) -> None:
    """Apply a committed offset. `place`: the offset of its record in the log, if a marker at
    `offset` commits it."""
    # Once for each record of a load: what is nearly always true is asked without a call.
    group = state.groups.get(record.group_id)
    if group is None or group.owner != record.owner:
        group = _group(state, record.group_id, record.owner)
    if group.pending is not None:
        _supersede(state, group, record, offset if place is None else place)
    partitions = group.offsets.get(record.topic)
    if partitions is None:
        # Thousands of groups name the same topics.
        partitions = group.offsets[intern(record.topic)] = {}
        state.grow(group, TOPIC_BYTES)
    before = partitions.get(record.partition)
    if before is None:
        state.offsets += 1
        state.grow(group, offset_bytes(record.metadata))
    elif before.metadata != record.metadata:
        state.grow(group, offset_bytes(record.metadata) - offset_bytes(before.metadata))
    partitions[record.partition] = CommittedOffset(
        record.offset,
        record.leader_epoch,
        record.metadata,
        record.commit_ms,
        record.expire_ms,
        record.topic_id,
    )
    group.written_to = offset + 1


def _forget_offset(state: GroupsState, record: OffsetForgotten, offset: int) -> None:
    group = _group(state, record.group_id)
    if group.pending is not None:
        _supersede(state, group, record, offset)
    partitions = group.offsets.get(record.topic, {})
    before = partitions.pop(record.partition, None)
    if before is not None:
        state.offsets -= 1
        state.grow(group, -offset_bytes(before.metadata))
        if not partitions:
            del group.offsets[record.topic]
            state.grow(group, -TOPIC_BYTES)
    group.written_to = offset + 1
    _drop_if_empty(state, group)


def _drop_if_empty(state: GroupsState, group: Group) -> None:
    if group.stored is None and not group.offsets and group.pending is None:
        state.ends(group)
