"""Loads a partition of `__consumer_offsets` into its shard, in slices of a few milliseconds.

`Coordinators` loads one shard after another. The log is read to its end at the start of the leader
epoch: only the shard itself appends to it later. A log that cannot be read as a whole is never
served: the shard fails, and the replica goes offline if another one can lead.

Groups in a shard's log for which there is no memory. When the loaded groups exceed the budget,
`make_room` unloads groups of the principal with the most, the largest first. Their clients get
COORDINATOR_LOAD_IN_PROGRESS, and their log stays as it is. A deletion reads their keys from the log
again, a few groups at a time (`delete_asked`). When there is memory they are loaded (`load_again`),
the smallest first. Source: docs/protocol.md §5.8, docs/security.md, "What one principal may hold".
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.coordinator.rereading import Rereading
from plimsoll_broker.coordinator.shard_log import (
    LoadSlices,
    UnreadableLog,
    read_batches,
    read_records,
)
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import UNLOADED_BYTES, GroupMemory
from plimsoll_core.groups.operations import DeleteGroup
from plimsoll_core.groups.records import (
    GroupRecord,
    TransactionMarked,
)
from plimsoll_wire.batches import BatchHeader
from plimsoll_wire.coordinator_records import decode_group_record, decode_marker, in_batch

logger = logging.getLogger("plimsoll.loader")
_SPARE_PART = 4
"""The part of the memory budget that is kept free for principals that hold little: one
_SPARE_PART-th."""
_NAMES_PART = 2
"""The part of the remaining memory that the names of unloaded groups may take: one _NAMES_PART-th.
Beyond that all these names are forgotten, so that no loaded group must be unloaded for them. One
principal cannot create so many groups."""


# --- making room ----------------------------------------------------------------------------------


class _Candidates:
    """Groups that may be unloaded, by owner (principal), and for each owner by size, rounded up to
    a power of two."""

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[int, list[tuple[GroupShard, str]]]] = {}

    def add(self, shard: GroupShard, owner: str, size_bytes: int, group_id: str) -> None:
        sizes = self._by_owner.setdefault(owner, {})
        sizes.setdefault(size_bytes.bit_length(), []).append((shard, group_id))

    def take(self, memory: GroupMemory) -> Iterable[tuple[GroupShard, str]]:
        """Remove and yield groups in the order in which to unload them: each time one of the
        largest size class, of the owner that holds most of the group memory at that time."""
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
    """Return True if the loaded groups use at most the budget less its spare part, one
    _SPARE_PART-th."""
    return memory.pool.used <= _loaded_max(memory)


def _loaded_max(memory: GroupMemory) -> int:
    """Return the bytes that loaded groups may use before some are unloaded."""
    return memory.pool.capacity - memory.pool.capacity // _SPARE_PART


async def make_room(shards: Iterable[GroupShard], memory: GroupMemory) -> None:
    """Unload groups of these shards, in the order of `_Candidates.take`, until one _SPARE_PART-th
    of the budget is free or no group may be unloaded. Groups that have members in an active shard
    stay loaded: they were admitted within their bounds. If the names of unloaded groups take more
    than their part (_NAMES_PART), forget all these names first."""
    shards = list(shards)
    _bound_names(shards, memory)
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


def _bound_names(shards: list[GroupShard], memory: GroupMemory) -> None:
    """If the names of unloaded groups take more than their part (_NAMES_PART), forget all of
    them."""
    names = sum(len(shard.state.unloaded) for shard in shards)
    if names * UNLOADED_BYTES * _NAMES_PART > _loaded_max(memory):
        for shard in shards:
            shard.forget_unloaded()


class RoomOfPass:
    """Unloads groups when memory runs out during one pass through a shard's log. `shards`: returns
    all shards of the broker. Once no group of any shard may be unloaded any more, it looks at the
    groups that the pass loads, and no longer at all groups for each record."""

    def __init__(self, shards: Callable[[], list[GroupShard]]) -> None:
        self._shards = shards
        self._is_tight = False

    async def make(self, memory: GroupMemory) -> None:
        """Do what `make_room` does, and note whether that has made enough room."""
        await make_room(self._shards(), memory)
        self._is_tight = not has_spare(memory)

    async def make_after(self, shard: GroupShard, group_id: str, memory: GroupMemory) -> None:
        """Unload groups, since memory has run out with a record of this group, which the pass has
        applied or skipped."""
        if not self._is_tight:
            await self.make(memory)
        elif shard.may_unload(group_id):
            shard.unload(group_id)
            _bound_names(self._shards(), memory)


async def _of_all(shards: list[GroupShard]) -> AsyncIterator[tuple[GroupShard, str]]:
    """Yield each loaded group of these shards, in time slices."""
    for shard in shards:
        async for group_id in in_slices(list(shard.state.groups)):
            yield shard, group_id


# --- reading again --------------------------------------------------------------------------------


def next_deletions(shard: GroupShard, memory: GroupMemory) -> list[str]:
    """Return the ids of unloaded groups to delete in the next pass: in the order of the requests,
    as many as have keys that fit in the memory reserved for deletions; at least one if any waits,
    and none if none waits. First pass the deletions of groups that are loaded by now to the shard,
    which decides them at once."""
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
    """Delete the groups of a finished pass, one after another, and answer their askers. Stop if the
    shard no longer leads. A group that the deletion did not remove is unloaded again."""
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
    """Give all of these askers the answer."""
    for asker in askers:
        asker.answer(answer)


def next_to_load(shard: GroupShard, memory: GroupMemory) -> list[str]:
    """Return the ids of unloaded groups to load now: the smallest first, as long as their sizes
    together fit in the memory. The sizes are those when they were unloaded, so they may need more.
    Return an empty list if none fits."""
    room = _loaded_max(memory) - memory.pool.used
    found: list[str] = []
    for group_id, one in sorted(shard.state.unloaded.items(), key=lambda item: item[1].size_bytes):
        room -= max(one.size_bytes, 1)
        if room < 0:
            break
        found.append(group_id)
    return found


async def load(
    manager: ReplicaManager,
    shard: GroupShard,
    beside: Iterable[GroupShard],
    shards: Callable[[], list[GroupShard]],
) -> None:
    """Read the shard's whole log, activate the shard and decide its held operations. If the log
    cannot be read, the shard fails; if leadership ends meanwhile, it is not activated. If groups
    were not loaded for lack of memory, log that. `beside`: the shards to be loaded next; their
    logs, if newly made, are made durable with that of `shard`. `shards`: returns all shards of this
    broker, which share its memory."""
    hosted = shard.hosted
    # A new log must be durable before its first append. All at once, since each sync may take long.
    places = [(one.hosted.name, one.hosted.key.index) for one in (shard, *beside)]
    await manager.flusher.make_durable(manager.store, places)
    if not shard.leads:
        return
    began_s, end = time.monotonic(), hosted.log.log_end_offset
    slices, room = LoadSlices(), RoomOfPass(shards)
    if not await _read(manager, _Pass(shard, shard.replay, shard.replay_marker, slices, room), end):
        return
    if shard.leads:
        shard.reload_due = shard.holds_back
        shard.activate()
        if shard.holds_back:
            _say_unloaded(shard)
        logger.info(
            "%r: this broker has loaded %d consumer groups with %d committed offsets from %d "
            "records of this partition, in %d ms",
            hosted,
            len(shard.state.groups),
            shard.state.offsets,
            slices.count,
            (time.monotonic() - began_s) * 1000,
        )
        await shard.decide_held()


async def delete_asked(
    manager: ReplicaManager, shard: GroupShard, shards: Callable[[], list[GroupShard]]
) -> None:
    """Delete unloaded groups of the shard with waiting deletions. One pass through the log reads
    the keys of as many as fit in memory; further groups keep waiting. Groups of the pass that could
    not be deleted, since memory ran out or the log cannot be read, get
    COORDINATOR_LOAD_IN_PROGRESS."""
    memory = shard.state.memory.of_broker
    names = next_deletions(shard, memory)
    if not names:
        return
    if await _read_again(manager, shard, Rereading(shard, names, keys_alone=True), shards):
        rereading = shard.rereading
        assert isinstance(rereading, Rereading)
        await delete_read(shard, rereading)
    shard.rereading = None
    for name in names:
        # There was no memory for it meanwhile: its client must retry.
        for asker in shard.deletions.pop(name, ()):
            asker.answer(RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS))


async def load_again(
    manager: ReplicaManager,
    shard: GroupShard,
    shards: Callable[[], list[GroupShard]],
    *,
    unnamed: bool,
) -> None:
    """Load those unloaded groups of the shard that fit in memory now, by one pass through its log;
    do nothing if none fits. `unnamed`: True to look also for groups with names that were forgotten
    for lack of memory, if memory is spare; that succeeds once the cleaner has removed enough from
    the log."""
    shard.reload_due = False
    memory = shard.state.memory.of_broker
    names: list[str] | None = next_to_load(shard, memory)
    if unnamed and shard.state.more_unloaded and has_spare(memory):
        names = None
    if names == []:
        return
    forgotten = shard.state.forgotten
    rereading = Rereading(shard, names, keys_alone=False)
    if await _read_again(manager, shard, rereading, shards):
        for name in list(rereading.names):
            shard.loaded_again(name)
        if names is None and shard.state.forgotten == forgotten:
            shard.state.more_unloaded = False
        logger.info(
            "%r: this broker has loaded %d more consumer groups of this partition, for which it "
            "had no memory before",
            shard.hosted,
            len(rereading.names),
        )
        if shard.holds_back:
            _say_unloaded(shard)
    shard.rereading = None
    shard.sweep_due = True


async def _read_again(
    manager: ReplicaManager,
    shard: GroupShard,
    rereading: Rereading,
    shards: Callable[[], list[GroupShard]],
) -> bool:
    """Read the shard's log once, and apply the records of the groups of `rereading`. Return True if
    it was read to its end and the shard still leads. If it cannot be read, fail the shard and
    return False. Nothing is appended to these groups meanwhile."""
    shard.rereading = rereading
    # A group may have been unloaded in the turn of a commit, before that is in the log.
    end = shard.write()
    room = None if rereading.keys_alone else RoomOfPass(shards)
    reading = _Pass(shard, rereading.replay, rereading.mark, LoadSlices(), room)
    done = await _read(manager, reading, end)
    rereading.end()
    return done and shard.leads


async def _read(manager: ReplicaManager, reading: _Pass, end: int) -> bool:
    """Read the log from its start to offset `end`, exclusive. Return True at `end`, and also if
    leadership ends before. If the log cannot be read, fail the shard, take the replica offline if
    another one can lead, and return False."""
    shard, hosted = reading.shard, reading.shard.hosted
    try:
        await _replay(reading, hosted.log.log_start_offset, end)
    except UnreadableLog as error:
        if shard.leads:
            shard.fail()
            manager.driver.cannot_read(hosted, error.offset, error.fault)
            manager.touch(hosted)
        return False
    memory = shard.state.memory.of_broker
    if reading.room is not None and shard.holds_back and not has_spare(memory):
        await reading.room.make(memory)
    return True


def _say_unloaded(shard: GroupShard) -> None:
    """Log that groups are not loaded for lack of memory."""
    pool = shard.state.memory.of_broker.pool
    logger.warning(
        "%r: this broker has not loaded %s%d consumer groups of this partition for lack of memory, "
        "and refuses their clients; the loaded groups use %d of %d bytes, most of them by %s; "
        "delete unused groups or raise the broker's memory",
        shard.hosted,
        "at least " if shard.state.more_unloaded else "",
        len(shard.state.unloaded),
        pool.used,
        pool.capacity,
        pool.largest() or "no client",
    )


class _Pass(NamedTuple):
    """One pass through a shard's log. `replay`: called with each known record and its offset;
    `mark`: with each end marker of a transaction.
    `room`: unloads groups, of any shard, when memory runs out during the pass; None if none may be
    unloaded."""

    shard: GroupShard
    replay: Callable[[GroupRecord, int], None]
    mark: Callable[[TransactionMarked, int], None]
    slices: LoadSlices
    room: RoomOfPass | None


async def _replay(reading: _Pass, offset: int, end: int) -> None:
    """Pass the records from `offset` to before `end` to the pass's `replay`, until leadership ends.
    Raise UnreadableLog if the records cannot be read, are corrupt, or end before `end`."""
    shard = reading.shard
    for header, body in read_batches(shard, offset, end):
        await _records(reading, header, body)
    if shard.leads:
        shard.skip(end - 1)


async def _records(reading: _Pass, header: BatchHeader, body: bytes) -> None:
    """Decode a batch, and call the pass's `replay` with each of its records, or `mark` with its
    end marker; skip unknown records. Unload groups when memory runs out, if the pass permits it.
    Return early if leadership ends. Raise UnreadableLog if the batch cannot be decoded."""
    shard, slices = reading.shard, reading.slices
    memory = shard.state.memory.of_broker
    marker = decode_marker(header, body) if header.is_control else None
    if marker is not None:
        reading.mark(marker, header.base_offset)
    for offset, record in read_records(shard, header, body, decode_group_record):
        if record is not None:
            reading.replay(in_batch(header, record), offset)
            if reading.room is not None and memory.is_over:
                await reading.room.make_after(shard, record.group_id, memory)
        slices.count += 1
        await slices.look()
        if not shard.leads:
            return
