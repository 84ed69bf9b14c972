"""`InternalTopics`: has the controller create an internal topic when a client first needs it. Its
task asks the controller; handlers only report the need and have their clients retry. The
controller decides how the topic is created.

`Coordinators`: a shard for each partition of `__consumer_offsets` led here, made and dropped with
its leadership. The replica manager reports each step of a partition; the handlers ask. Its task
loads shards, one after another, and looks for offsets of deleted topics. It decides nothing about
groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any

from plimsoll_broker.background import in_slices
from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.group_measures import GroupMeasures, GroupStats
from plimsoll_broker.coordinator.group_shard import GroupShard, ShardPhase
from plimsoll_broker.coordinator.loader import delete_asked, load, load_again, make_room
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.coordination.hashing import partition_of
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import check_group_id
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.offsets.delete import RECORDS_AT_ONCE
from plimsoll_core.groups.operations import ForgetTopics, ListGroups, Operation
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.messages.topics import EnsureInternalTopic
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.coordinators")
ASK_MS_MAX = 10_000
AGAIN_S = 1.0
"""The pause in seconds between two requests for a topic that could not be created."""

EnsureTopic = Callable[[EnsureInternalTopic, int], Awaitable[Answer]]
"""Sends a request to the controller, with a timeout in ms, and returns the answer. Raises
NoController."""


class InternalTopics:
    """Has the controller create internal topics such as `__consumer_offsets` when a client first
    needs them. A broker has one such object."""

    def __init__(self, ask: EnsureTopic) -> None:
        self._ask = ask
        self._wanted: dict[str, None] = {}
        self._kick = asyncio.Event()
        # The last refusal, which is logged once.
        self._said = ""

    def want(self, name: str) -> None:
        """Queue a request to the controller to create the topic, which `run` sends; return at once.
        A topic that is queued already is requested once."""
        self._wanted[name] = None
        self._kick.set()

    async def run(self) -> None:
        """Send the queued requests for topics to the controller, one after another, until
        cancelled. After a refusal pause for AGAIN_S."""
        while True:
            await self._kick.wait()
            self._kick.clear()
            wanted, self._wanted = self._wanted, {}
            for name in wanted:
                await self._ensure(name)

    async def _ensure(self, name: str) -> None:
        try:
            answer = await self._ask(EnsureInternalTopic(name=name), ASK_MS_MAX)
        except NoController:
            return
        if isinstance(answer, Refused):
            if answer.message != self._said:
                self._said = answer.message
                logger.warning(
                    "this broker cannot have the internal topic %s created, and tries again: %s",
                    name,
                    answer.message,
                )
            await asyncio.sleep(AGAIN_S)


GROUPS_AT_ONCE = 500
"""The most groups listed in one turn of the event loop, which takes about a millisecond."""
RELOAD_EVERY_MS = 60_000
"""The time in ms between two attempts to load a shard's unloaded groups."""
SWEEP_EVERY_S = 1.0
"""The time in seconds between two checks of whether this broker's metadata are fresh, while a shard
waits for that to delete offsets of deleted topics."""


class Coordinators:
    """The group coordinators of one broker: a `GroupShard` for each partition of
    `__consumer_offsets` that it leads. Implements `PartitionWatcher`. `topics` has that topic
    created when it is missing. `memory`: the memory budget of all groups; None for the default."""

    def __init__(
        self,
        manager: ReplicaManager,
        settings: GroupSettings,
        topics: InternalTopics,
        memory: GroupMemory | None = None,
    ) -> None:
        self.topics = topics
        self.stats = GroupStats()
        self.measures = GroupMeasures(manager, self.shards, settings.lag_series_max)
        self.memory = GroupMemory() if memory is None else memory
        self._manager = manager
        self._settings = settings
        # By partition, for as long as this broker leads it in one leader epoch.
        self._shards: dict[PartitionKey, GroupShard] = {}
        # Shards that wait to be loaded, in order.
        self._to_load: dict[GroupShard, None] = {}
        self._kick = asyncio.Event()
        self._closed = False
        manager.watcher = self

    @property
    def manager(self) -> ReplicaManager:
        """The replica manager of the partitions in which groups are stored."""
        return self._manager

    # --- leadership -----------------------------------------------------------------------------

    def stepped(self, hosted: Hosted) -> None:
        """Create a shard, to be loaded by the task, if this broker has begun to lead the partition,
        and drop the shard of an earlier leader epoch. Ignore partitions of other topics than
        `__consumer_offsets`."""
        if hosted.name != GROUP_OFFSETS:
            return
        shard, leader = self._shards.get(hosted.key), hosted.replica.leader
        if shard is not None and shard.hosted is hosted and shard.leader is leader:
            return
        if self._manager.hosted(hosted.key) is not hosted:
            leader = None  # dropped, or replaced by another replica
        if shard is not None and (leader is not None or shard.hosted is hosted):
            self._drop(shard)
            del self._shards[hosted.key]
            self._to_load.pop(shard, None)
        if leader is not None and not self._closed:
            new = GroupShard(self._manager, hosted, leader, self._settings, self.memory)
            new.kick = self._kick.set
            self._shards[hosted.key] = new
            self._to_load[new] = None
            self._kick.set()

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """If the new metadata image lacks a topic of the old one, have the task check all shards
        for committed offsets of deleted topics, and delete these."""
        if old.topics is new.topics:
            return
        if any(topic_id not in new.topics for topic_id in old.topics):
            for shard in self._shards.values():
                shard.sweep_due = True
            self._kick.set()

    def close(self) -> None:
        """Drop all shards, and create none from now on. Waiting requests get NOT_COORDINATOR."""
        self._closed = True
        for shard in self._shards.values():
            self._drop(shard)
        self._shards.clear()
        self._to_load.clear()

    def _drop(self, shard: GroupShard) -> None:
        """Drop the shard, and add its number of rebalances to `stats`, so that the metric does not
        decrease."""
        shard.drop()
        self.stats.rebalances_ended += shard.soft.rebalances

    # --- being asked ----------------------------------------------------------------------------

    def shards(self) -> list[GroupShard]:
        """Return all shards: loading, active or failed."""
        return list(self._shards.values())

    @property
    def groups(self) -> int:
        """The number of groups that the active shards coordinate."""
        return sum(len(shard.state.groups) for shard in self._active())

    @property
    def members(self) -> int:
        """The number of members, and of reserved member ids, of the groups of the active shards."""
        return sum(shard.state.memory.seats.used for shard in self._active())

    @property
    def loading_ms(self) -> int:
        """The time in ms for which the oldest of the shards in loading has waited or loaded; 0 if
        none is loading."""
        now_ms = self._manager.now_ms()
        loading = (s for s in self._shards.values() if s.phase is ShardPhase.LOADING)
        return max((now_ms - shard.begun_ms for shard in loading), default=0)

    def partition_of(self, group_id: str) -> PartitionKey | None:
        """Return the partition of `__consumer_offsets` that holds a group. Return None if the topic
        does not exist yet."""
        image = self._manager.image
        topic_id = None if image is None else image.topic_ids.get(GROUP_OFFSETS)
        if image is None or topic_id is None:
            return None
        partitions = image.topics[topic_id].partitions
        return PartitionKey(topic_id, partition_of(group_id, partitions)) if partitions else None

    def ask(self, group_id: str, op: Operation) -> Asker:
        """Pass the operation to the group's shard, which decides it now or, while it loads, later.
        Return the asker, which gets the answer. If the group id is invalid or no shard here
        coordinates the group, the asker already has an error as its answer."""
        shard = self._shard(group_id)
        if isinstance(shard, GroupShard):
            return shard.ask(op)
        asker = Asker()
        asker.answer(shard)
        return asker

    def list_groups(self, op: ListGroups) -> Iterator[Asker]:
        """Yield askers for lists of groups, each for up to GROUPS_AT_ONCE groups of one shard. Each
        is decided when the iterator is advanced to it, so that other tasks can run in between. For
        a shard in loading there is one asker, which is answered for all of its groups once it is
        loaded; a failed shard has none."""
        for shard in list(self._shards.values()):
            if shard.phase is ShardPhase.ACTIVE:
                names = shard.state.names()
                yield from (
                    shard.ask(replace(op, group_ids=names[at : at + GROUPS_AT_ONCE]))
                    for at in range(0, len(names), GROUPS_AT_ONCE)
                )
            elif shard.phase is not ShardPhase.FAILED:
                yield shard.ask(op)

    def order(self, group_id: str, op: Operation) -> None:
        """Pass an operation that needs no answer to the group's shard, which decides it now or once
        it is loaded. Do nothing if the group id is invalid or no shard here coordinates the
        group."""
        shard = self._shard(group_id)
        if isinstance(shard, GroupShard):
            shard.order(op)

    def _shard(self, group_id: str) -> GroupShard | RefusedAsWhole:
        """Return the shard that coordinates the group. Return a refusal if the group id is invalid,
        `__consumer_offsets` does not exist (COORDINATOR_NOT_AVAILABLE), or this broker does not
        lead the group's partition (NOT_COORDINATOR)."""
        refusal = check_group_id(group_id)
        if refusal is not None:
            return refusal
        key = self.partition_of(group_id)
        if key is None:
            return RefusedAsWhole(Code.COORDINATOR_NOT_AVAILABLE)
        return self._shards.get(key) or RefusedAsWhole(Code.NOT_COORDINATOR)

    # --- its task -------------------------------------------------------------------------------

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task. The caller runs them as long as the broker
        runs; if one ends, that is a failure."""
        yield "coordinators", self._run()
        yield "internal topics", self.topics.run()
        yield "group measures", self.measures.run()

    async def _run(self) -> None:
        """Load new shards one after another; remove offsets of deleted topics from shards with
        fresh metadata; load groups again that were unloaded for lack of memory. Run until
        cancelled."""
        while True:
            waiting = any(s.sweep_due or s.holds_back for s in self._active())
            if waiting:
                await set_within(self._kick, SWEEP_EVERY_S)
            else:
                await self._kick.wait()
            self._kick.clear()
            while self._to_load:
                shard = next(iter(self._to_load))
                del self._to_load[shard]
                await load(self._manager, shard, self._to_load, self.shards)
                if shard.active_since_ms is not None:
                    self.stats.loads += 1
                    self.stats.load_ms += shard.active_since_ms - shard.begun_ms
            for shard in self._active():
                if shard.sweep_due and shard.metadata_fresh:
                    await self._sweep(shard)
            await self._look_at_unloaded()

    def look_at_unloaded(self) -> None:
        """Have the task try at once to load the unloaded groups of all shards again, since memory
        may be free."""
        for shard in self._active():
            shard.reload_due = shard.holds_back
        self._kick.set()

    async def _look_at_unloaded(self) -> None:
        """Unload groups if the memory budget is exceeded. Then read at most one shard's log again,
        to delete or to load groups that were not loaded for lack of memory. The caller loads new
        shards before it calls this again."""
        if self.memory.wants_room:
            await make_room(self.shards(), self.memory)
            self.memory.wants_room = False
        now_ms = self._manager.now_ms()
        holds_back = [s for s in self._active() if s.holds_back]
        for shard in holds_back:
            if shard.deletions:
                await delete_asked(self._manager, shard, self.shards)
                self.look_at_unloaded()
                return
        for shard in holds_back:
            if shard.reload_due or now_ms >= shard.reload_ms:
                periodic, shard.reload_ms = not shard.reload_due, now_ms + RELOAD_EVERY_MS
                await load_again(self._manager, shard, self.shards, unnamed=periodic)
                self._kick.set()
                return

    def _active(self) -> list[GroupShard]:
        """Return the shards that are loaded."""
        return [s for s in self._shards.values() if s.phase is ShardPhase.ACTIVE]

    async def _sweep(self, shard: GroupShard) -> None:
        """Order the deletion of the shard's committed offsets of topics that the metadata no longer
        have, so that a group does not begin at them in a later topic of the same name."""
        shard.sweep_due = False
        names: Iterable[str] = tuple(shard.state.groups)
        async for group_id in in_slices(names):
            image, group = self._manager.image, shard.state.groups.get(group_id)
            if group is None or image is None or not shard.leads:
                continue
            ids = Counter(
                committed.topic_id
                for partitions in group.offsets.values()
                for committed in partitions.values()
                if committed.topic_id is not None
            )
            gone = frozenset(topic_id for topic_id in ids if topic_id not in image.topics)
            for _ in range(0, sum(ids[topic_id] for topic_id in gone), RECORDS_AT_ONCE):
                shard.order(ForgetTopics(group_id=group_id, topic_ids=gone))
                await asyncio.sleep(0)
