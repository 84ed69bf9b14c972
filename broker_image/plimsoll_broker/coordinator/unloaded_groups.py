"""Groups in a shard's log for which there is no memory.

Called by the task of `roles` and by loads. When the loaded groups exceed the budget, `make_room`
unloads groups of the principal with the most, the largest first. Their clients get
COORDINATOR_LOAD_IN_PROGRESS, and their log stays as it is. A deletion reads their keys from the log
again, a few groups at a time (`delete_asked`). When there is memory they are loaded (`load_again`),
the smallest first. Source: docs/protocol.md §5.8, docs/security.md, "What one principal may hold".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from msgspec.structs import replace

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_core.groups.memory import (
    UNLOADED_BYTES,
    GroupMemory,
)
from plimsoll_core.groups.operations import DeleteGroup
from plimsoll_core.groups.records import GroupRecord, GroupStored, OffsetCommitted
from plimsoll_core.groups.state import UnloadedGroup

_SPARE_PART = 4
"""This part of the budget is free once room has been made, for principals that hold little."""
_NAMES_PART = 2
"""Names of unloaded groups may take half of the rest. Beyond that they are forgotten, rather than
groups that are served. One principal cannot create so many."""


# --- making room ----------------------------------------------------------------------------------


class _Candidates:
    """Groups that may be unloaded, by owner and by the power of two of their size."""

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[int, list[tuple[GroupShard, str]]]] = {}

    def add(self, shard: GroupShard, owner: str, size_bytes: int, group_id: str) -> None:
        sizes = self._by_owner.setdefault(owner, {})
        sizes.setdefault(size_bytes.bit_length(), []).append((shard, group_id))

    def take(self, memory: GroupMemory) -> Iterable[tuple[GroupShard, str]]:
        """Yield each, the largest group of the owner with the most first."""
        while self._by_owner:
            owner = max(self._by_owner, key=lambda one: (memory.pool.held(one), one))
            sizes = self._by_owner[owner]
            largest = max(sizes)
            yield sizes[largest].pop()
            if not sizes[largest]:
                del sizes[largest]
            if not sizes:
                del self._by_owner[owner]


def has_spare(memory: GroupMemory) -> bool:
    """Return False if groups have to be unloaded once any does not fit."""
    return memory.pool.used <= _loaded_max(memory)


def _loaded_max(memory: GroupMemory) -> int:
    return memory.pool.capacity - memory.pool.capacity // _SPARE_PART


async def make_room(shards: Iterable[GroupShard], memory: GroupMemory) -> None:
    """Unload groups until the rest fits with some spare memory. Groups with members of a serving
    shard stay: they were admitted within bounds."""
    shards = list(shards)
    names = sum(len(shard.state.unloaded) for shard in shards)
    if names * UNLOADED_BYTES * _NAMES_PART > _loaded_max(memory):
        for shard in shards:
            shard.state.forget_unloaded()
    candidates = _Candidates()
    async for shard, group_id in _of_all(shards):
        group = shard.state.groups.get(group_id)
        if group is not None and shard.may_unload(group_id):
            candidates.add(shard, group.owner, group.size_bytes, group_id)
    async for shard, group_id in in_slices(candidates.take(memory)):
        if has_spare(memory):
            break
        if shard.may_unload(group_id):
            shard.unload(group_id)


async def _of_all(shards: list[GroupShard]) -> AsyncIterator[tuple[GroupShard, str]]:
    for shard in shards:
        async for group_id in in_slices(list(shard.state.groups)):
            yield shard, group_id


# --- reading again --------------------------------------------------------------------------------


class Rereading:
    """The groups of a pass through the log; None: all that are not loaded. `keys_alone`: their
    contents are skipped, since they are to be deleted."""

    def __init__(
        self, shard: GroupShard, group_ids: Iterable[str] | None, *, keys_alone: bool
    ) -> None:
        self.names: set[str] = set() if group_ids is None else set(group_ids)
        self._shard = shard
        # Groups that are served; None if only named groups are read.
        self._others = set(shard.state.groups) if group_ids is None else None
        self.keys_alone = keys_alone

    def give_up(self, group_id: str) -> None:
        """Drop the group from the pass: there is no memory for it."""
        self.names.discard(group_id)
        if self._others is not None:
            self._others.add(group_id)

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record of the pass."""
        group_id = record.group_id
        if group_id not in self.names:
            if self._others is None or group_id in self._others:
                return
            self.names.add(group_id)
            if group_id not in self._shard.state.unloaded:
                self._shard.state.keep_name(group_id, UnloadedGroup("", 0, 0))
        match record:
            case OffsetCommitted() if self.keys_alone:
                record = replace(record, metadata="")
            case GroupStored() if self.keys_alone:
                record = replace(record, members=())
        self._shard.apply(record, offset)


def next_deletions(shard: GroupShard, memory: GroupMemory) -> list[str]:
    """Return groups whose keys fit the memory reserved for deletions; at least one. Groups that
    have been loaded meanwhile are deleted like any other."""
    for group_id in [one for one in shard.deletions if not shard.state.is_unloaded(one)]:
        for asker in shard.deletions.pop(group_id):
            shard.decide(DeleteGroup(group_id=group_id), asker)
    room = memory.reserve
    found: list[str] = []
    for group_id in shard.deletions:
        known = shard.state.unloaded.get(group_id)
        room -= memory.reserve if known is None else known.keys_bytes
        if found and room < 0:
            break
        found.append(group_id)
    return found


async def delete_read(shard: GroupShard, rereading: Rereading) -> None:
    """Delete the groups whose keys were read, and answer their askers."""
    for group_id in list(rereading.names):
        if not shard.leads:
            return  # the shard has refused the askers
        answer = await shard.delete_unloaded(group_id)
        if group_id in shard.state.groups:
            shard.unload(group_id)
        else:
            shard.loaded_again(group_id)
        _answer(shard.deletions.pop(group_id, ()), answer)


def _answer(askers: Iterable[Asker], answer: object) -> None:
    for asker in askers:
        asker.answer(answer)


def next_to_load(shard: GroupShard, memory: GroupMemory) -> list[str]:
    """Return the groups for which there is memory now, the smallest first. Their size when they
    were unloaded may be less than they need."""
    room = _loaded_max(memory) - memory.pool.used
    found: list[str] = []
    for group_id, one in sorted(shard.state.unloaded.items(), key=lambda item: item[1].size_bytes):
        room -= max(one.size_bytes, 1)
        if room < 0:
            break
        found.append(group_id)
    return found
