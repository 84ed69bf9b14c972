"""`Coordinators`: a shard for each partition of `__consumer_offsets` led here, made and dropped
with its leadership. The replica manager reports each step of a partition; the handlers ask. Its
task loads shards, one after another, and looks for offsets of deleted topics. It decides nothing
about groups.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.group_measures import GroupMeasures, GroupStats
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.coordinator.led_shards import LedShards
from plimsoll_broker.coordinator.loader import delete_asked, load, load_again, make_room
from plimsoll_broker.coordinator.verifier import ServedTransactions, Verifier
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.coordination.outcome import RefusedAsWhole, told
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import check_group_id
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.offsets.delete import RECORDS_AT_ONCE
from plimsoll_core.groups.operations import ForgetTopics, ListGroups, Operation
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica_values import Append
from plimsoll_process.waits import set_within
from plimsoll_wire.control_records import EndMarker

GROUPS_AT_ONCE = 500
"""The most groups listed in one turn of the event loop, which takes about a millisecond."""
RELOAD_EVERY_MS = 60_000
"""The time in ms between two attempts to load a shard's unloaded groups."""
SWEEP_EVERY_S = 1.0
"""The time in seconds between two checks of whether this broker's metadata are fresh, while a shard
waits for that to delete offsets of deleted topics."""


class Coordinators:
    """The group coordinators of one broker: a `GroupShard` for each partition of
    `__consumer_offsets` that it leads. Implements `PartitionWatcher` and `MarkerTaker`. `topics`
    has that topic created when it is missing. `memory`: the memory budget of all groups; None for
    the default. `transactions`: this broker's part in transactions; None if it has none."""

    def __init__(
        self,
        manager: ReplicaManager,
        settings: GroupSettings,
        topics: InternalTopics,
        memory: GroupMemory | None = None,
    ) -> None:
        self.topics = topics
        self.transactions: ServedTransactions | None = None
        self.stats = GroupStats()
        self.measures = GroupMeasures(manager, self.shards, settings.lag_series_max)
        self.memory = GroupMemory() if memory is None else memory
        self._manager = manager
        self._settings = settings
        self._led = LedShards(manager, GROUP_OFFSETS, self._new_shard, self._ended)
        self._kick = self._led.kick
        manager.marker_takers[GROUP_OFFSETS] = self

    @property
    def manager(self) -> ReplicaManager:
        """The replica manager of the partitions in which groups are stored."""
        return self._manager

    # --- leadership -----------------------------------------------------------------------------

    def _new_shard(self, hosted: Hosted, leader: Leader) -> GroupShard:
        new = GroupShard(self._manager, hosted, leader, self._settings, self.memory)
        new.kick = self._kick.set
        return new

    def stepped(self, hosted: Hosted) -> None:
        """Note a step of a partition of `__consumer_offsets` that may have begun or ended to be led
        here."""
        self._led.stepped(hosted)

    def write_marker(
        self, hosted: Hosted, producer: ProducerLife, marker: EndMarker
    ) -> Append | Code:
        """Append the end marker of a transaction to a partition of `__consumer_offsets`, by its
        shard. Implements `MarkerTaker`."""
        shard = self._led.find(hosted.key)
        if shard is None or shard.hosted is not hosted:
            return Code.NOT_LEADER_OR_FOLLOWER
        return shard.write_marker(producer, marker)

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """If the new metadata image lacks a topic of the old one, have the task check all shards
        for committed offsets of deleted topics, and delete these. Have the markers of
        transactions sent to new leaders."""
        if self.transactions is not None:
            self.transactions.coordinators.update(old, new)
        if old.topics is new.topics:
            return
        if any(topic_id not in new.topics for topic_id in old.topics):
            for shard in self._led:
                shard.sweep_due = True
            self._kick.set()

    def close(self) -> None:
        """Drop all shards, and create none from now on. Waiting requests get NOT_COORDINATOR."""
        self._led.close()
        if self.transactions is not None:
            self.transactions.close()

    def _ended(self, shard: GroupShard) -> None:
        """Add the number of rebalances of a dropped shard to `stats`, so that the metric does not
        decrease."""
        self.stats.rebalances_ended += shard.soft.rebalances

    # --- being asked ----------------------------------------------------------------------------

    def shards(self) -> list[GroupShard]:
        """Return all shards: loading, active or failed."""
        return self._led.all()

    @property
    def groups(self) -> int:
        """The number of groups that the active shards coordinate."""
        return sum(len(shard.state.groups) for shard in self._led.active())

    @property
    def members(self) -> int:
        """The number of members, and of reserved member ids, of the groups of the active shards."""
        return sum(shard.state.memory.seats.used for shard in self._led.active())

    @property
    def loading_ms(self) -> int:
        """The time in ms for which the oldest of the shards in loading has waited or loaded; 0 if
        none is loading."""
        return self._led.loading_ms

    def partition_of(self, group_id: str) -> PartitionKey | None:
        """Return the partition of `__consumer_offsets` that holds a group. Return None if the topic
        does not exist yet."""
        return self._led.partition_of(group_id)

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

    def may_transact(self, group_id: str, producer: ProducerLife) -> bool:
        """Return True if offsets of a group can be added to the producer's transaction without
        asking its coordinator, or will be refused without that."""
        leader = self._leader_of(group_id)
        if leader is None:
            return True
        hosted, _ = leader
        return hosted.replica.check_in_transaction(producer) is not Code.NOT_ENOUGH_REPLICAS

    async def verify(
        self, verifier: Verifier, transactional_id: str, group_id: str, producer: ProducerLife
    ) -> RefusedAsWhole | None:
        """Ask the transaction's coordinator whether the group's partition is part of the producer's
        open transaction, and record the answer. A marker that arrives meanwhile withdraws it.
        Return the refusal of the offsets, None if they may be decided."""
        found = self._leader_of(group_id)
        if found is None:
            return None
        hosted, leader = found
        partition = TopicPartition(hosted.name, hosted.key.index)
        verification = leader.verified.begin(producer)
        code = (await verifier.verify(transactional_id, producer, [partition]))[partition]
        confirmed = code is Code.NONE
        leader.verified.end(producer.producer_id, verification, confirmed=confirmed)
        if confirmed:
            return None
        return RefusedAsWhole(told(code) if code is Code.NOT_ENOUGH_REPLICAS else code)

    def _leader_of(self, group_id: str) -> tuple[Hosted, Leader] | None:
        """Return the group's partition here and the leader that its shard has; None if no shard
        here coordinates the group."""
        shard = self._shard(group_id)
        return (shard.hosted, shard.leader) if isinstance(shard, GroupShard) else None

    def list_groups(self, op: ListGroups) -> Iterator[Asker]:
        """Yield askers for lists of groups, each for up to GROUPS_AT_ONCE groups of one shard. Each
        is decided when the iterator is advanced to it, so that other tasks can run in between. For
        a shard in loading there is one asker, which is answered for all of its groups once it is
        loaded; a failed shard has none."""
        for shard in self._led.all():
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
        return self._led.find(key) or RefusedAsWhole(Code.NOT_COORDINATOR)

    # --- its task -------------------------------------------------------------------------------

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each task. The caller runs them as long as the broker
        runs; if one ends, that is a failure."""
        yield "coordinators", self._run()
        yield "internal topics", self.topics.run()
        yield "group measures", self.measures.run()
        if self.transactions is not None:
            yield from self.transactions.tasks()

    async def _run(self) -> None:
        """Load new shards one after another; remove offsets of deleted topics from shards with
        fresh metadata; load groups again that were unloaded for lack of memory. Run until
        cancelled."""
        while True:
            waiting = any(s.sweep_due or s.holds_back for s in self._led.active())
            if waiting:
                await set_within(self._kick, SWEEP_EVERY_S)
            else:
                await self._kick.wait()
            self._kick.clear()
            while self._led.to_load:
                shard = next(iter(self._led.to_load))
                del self._led.to_load[shard]
                await load(self._manager, shard, self._led.to_load, self.shards)
                if shard.active_since_ms is not None:
                    self.stats.loads += 1
                    self.stats.load_ms += shard.active_since_ms - shard.begun_ms
            for shard in self._led.active():
                if shard.sweep_due and shard.metadata_fresh:
                    await self._sweep(shard)
            await self._look_at_unloaded()

    def look_at_unloaded(self) -> None:
        """Have the task try at once to load the unloaded groups of all shards again, since memory
        may be free."""
        for shard in self._led.active():
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
        holds_back = [s for s in self._led.active() if s.holds_back]
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
