"""GroupShard: the groups of one partition of `__consumer_offsets`, for one leader epoch here.

It decides nothing: `plimsoll_core.groups.step` does, and only `apply` changes durable state. Its
life and its appends are those of every `CoordinatorShard`. Groups for which there is no memory are
unloaded, deleted and loaded again here. The end markers of transactions are written here, since
they decide offsets. Source: docs/protocol.md §4.14, §5.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.coordinator_shard import CoordinatorShard, ShardPhase
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.transactional_appends import append_marker
from plimsoll_core.coordination.outcome import RefusedAsWhole, refuse, told
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    DeleteUnloaded,
    GroupShrunk,
    Operation,
)
from plimsoll_core.groups.records import GroupRecord, TransactionMarked
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState, apply, mark, skip
from plimsoll_core.groups.step import GroupOutcome, due, loaded, loaded_again, step
from plimsoll_core.groups.turn import GroupTurn, SoftState
from plimsoll_core.ids import ProducerLife
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica_values import Append
from plimsoll_wire.control_records import EndMarker
from plimsoll_wire.coordinator_records import encode_group_record, producer_of
from plimsoll_wire.record_sets import KeyValue

_OF_PRODUCERS = (Code.INVALID_PRODUCER_EPOCH,)
"""The errors of a partition that a producer of transactions knows."""
DELETIONS_MAX = 1_000
"""The most groups of one shard that wait to be deleted after their keys are read from the log."""


class GivesUp(Protocol):
    """A pass through a shard's log that loads unloaded groups again (`Rereading`); only the methods
    that the shard itself calls."""

    def give_up(self, group_id: str) -> None:
        """Ignore the further records of this group in this pass, because there is no memory for the
        group; the group stays unloaded."""

    def give_up_all(self) -> None:
        """Call `give_up` for each group that this pass reads."""

    def reads(self, group_id: str) -> bool:
        """Return True if this pass has applied records of the group and may apply more."""

    def mark_later(self, marker: TransactionMarked, offset: int) -> None:
        """Apply a marker that was written behind the end of this pass to its groups, at the end."""


class GroupShard(CoordinatorShard[GroupRecord, Operation]):
    """Coordinates the groups of one partition of `__consumer_offsets`, for one leader epoch.
    `kick`: wakes the task of `Coordinators`. Used from the event loop."""

    def __init__(
        self,
        manager: ReplicaManager,
        hosted: Hosted,
        leader: Leader,
        settings: GroupSettings,
        memory: GroupMemory | None = None,
    ) -> None:
        self.soft = SoftState()
        super().__init__(manager, hosted, leader, self.soft.deadlines, settings.commit_timeout_ms)
        self.kick: Callable[[], None] = lambda: None
        self.state = GroupsState(memory)
        # True if offsets of deleted topics must be looked for, once metadata are fresh.
        self.sweep_due = True
        self._settings = settings
        # By group: askers for the deletion of a group that is not loaded for lack of memory.
        self.deletions: dict[str, list[Asker]] = {}
        # The pass through its log that looks for such groups; None: there is none.
        self.rereading: GivesUp | None = None
        # True if unloaded groups are to be loaded again when there is room.
        self.reload_due = False
        # When that is tried in any case.
        self.reload_ms = 0

    # --- its life -------------------------------------------------------------------------------

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record read from the log while loading. A record of a group that was unloaded
        meanwhile is skipped."""
        if self.state.is_unloaded(record.group_id):
            self.skip(offset)
        else:
            apply(self.state, record, offset)

    def apply(self, record: GroupRecord, offset: int) -> None:
        """Apply a record of an unloaded group that is being loaded again."""
        apply(self.state, record, offset)

    def replay_marker(self, marker: TransactionMarked, offset: int) -> None:
        """Apply an end marker read from the log while loading."""
        mark(self.state, marker, offset)

    def unload(self, group_id: str) -> None:
        """Drop a group's state for lack of memory; its records stay in the log. Its clients get
        COORDINATOR_LOAD_IN_PROGRESS until it is loaded again."""
        self.state.unload(group_id)
        if self.rereading is not None:
            self.rereading.give_up(group_id)

    def forget_unloaded(self) -> None:
        """Forget the names of all unloaded groups. A group that is being read again is dropped with
        them: the rest of its records would make half a group."""
        self.state.forget_unloaded()
        if self.rereading is not None:
            self.rereading.give_up_all()

    @property
    def holds_back(self) -> bool:
        """True if the shard's log has groups that are not loaded for lack of memory."""
        return bool(self.state.unloaded) or self.state.more_unloaded

    def may_unload(self, group_id: str) -> bool:
        """Return True if the group is loaded and may be unloaded: it has no members, or the shard
        is still loading."""
        group = self.state.groups.get(group_id)
        if group is None:
            return False
        return self.phase is ShardPhase.LOADING or group_id not in self.soft.classic

    def loaded_again(self, group_id: str) -> None:
        """Admit operations of an unloaded group again and set its timers, since all of its records
        have been read again."""
        loaded_again(self._turn(), group_id)
        self._timer.arm()

    def skip(self, offset: int) -> None:
        """Count the record at `offset` as replayed, although it is not applied."""
        skip(self.state, offset)

    def _turn(self) -> GroupTurn:
        """Return what `plimsoll_core.groups.step` needs to decide an operation now: state, metadata
        and clocks."""
        image = self._manager.image
        assert image is not None, "it leads"
        return GroupTurn(
            state=self.state,
            soft=self.soft,
            settings=self._settings,
            image=image,
            image_is_fresh=self.metadata_fresh,
            now_ms=self._manager.now_ms(),
            wall_ms=self._clock.stamp_ms(),
            believed_ms=self._clock.now_ms(),
            record_bytes_max=self._appends.record_bytes_max,
        )

    def _delete_later(self, group_id: str, asker: Asker | None) -> None:
        """Queue the deletion of an unloaded group: its keys must first be read from the log; the
        task of `Coordinators` does that. Answer COORDINATOR_LOAD_IN_PROGRESS if DELETIONS_MAX
        groups wait. Do nothing without an asker."""
        if asker is None:
            return
        if group_id not in self.deletions and len(self.deletions) >= DELETIONS_MAX:
            asker.answer(RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self.deletions.setdefault(group_id, []).append(asker)
        self.kick()

    async def delete_unloaded(self, group_id: str) -> object:
        """Delete, in steps, an unloaded group after its keys were read from the log. Return the
        client's answer once all tombstones are committed."""
        while True:
            asker = Asker()
            self.decide(DeleteUnloaded(group_id=group_id), asker)
            answer = await asker.future()
            if not isinstance(answer, GroupShrunk):
                return answer

    # --- transactions ---------------------------------------------------------------------------

    def write_marker(self, producer: ProducerLife, marker: EndMarker) -> Append | Code:
        """Append the end marker of a producer's transaction behind all that was decided before, and
        apply it. Return its place in the log, or the error: COORDINATOR_LOAD_IN_PROGRESS unless the
        shard is active; the sender tries again."""
        if self.phase is not ShardPhase.ACTIVE or not self.leads:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        self._appends.write()
        stamp_ms = self._clock.stamp_ms()
        placed = append_marker(self._manager, self.hosted, producer, marker, stamp_ms)
        if isinstance(placed, Append):
            marked = TransactionMarked(producer_id=producer.producer_id, commits=marker.commits)
            self._mark(marked, placed.base_offset)
            return placed
        assert isinstance(placed, Code), "a marker has no sequence, so it is no duplicate"
        return placed

    def _mark(self, marked: TransactionMarked, offset: int) -> None:
        """Apply a marker that was appended now. Have offsets of deleted topics looked for if it
        has decided any: they stay while a transaction holds them."""
        rereading = self.rereading
        if rereading is None:
            decided = mark(self.state, marked, offset)
        else:
            rereading.mark_later(marked, offset)
            decided = mark(self.state, marked, offset, lambda one: not rereading.reads(one))
        image, groups = self._manager.image, self.state.groups
        for one in decided:
            group = groups.get(one.group_id)
            held = None if group is None else group.offsets.get(one.topic, {}).get(one.partition)
            topic_id = None if held is None else held.topic_id
            if image is not None and topic_id is not None and topic_id not in image.topics:
                self.sweep_due = True
                self.kick()
                return

    def _refusal(self, op: Operation, asker: Asker | None) -> GroupOutcome | None:
        """Return the outcome that refuses offsets of a transaction which this partition is not
        known to be part of; None for any other operation."""
        if not isinstance(op, CommitOffsets) or op.producer is None:
            return None
        code = self.hosted.replica.check_in_transaction(op.producer)
        if code is Code.NONE:
            return None
        return refuse(op.group_id, asker, code if code in _OF_PRODUCERS else told(code))

    # --- as every shard -------------------------------------------------------------------------

    def _loaded(self) -> None:
        loaded(self._turn())

    def _freed(self) -> None:
        """Free the groups' memory. Waiting deletions of unloaded groups get NOT_COORDINATOR."""
        self.state.memory.close()
        deletions, self.deletions = self.deletions, {}
        for asker in (one for askers in deletions.values() for one in askers):
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    def _decided(self, op: Operation, asker: Asker | None) -> GroupOutcome | None:
        """Return the decision on an operation. The deletion of an unloaded group is queued."""
        if isinstance(op, DeleteGroup) and self.state.is_unloaded(op.group_id):
            self._delete_later(op.group_id, asker)
            return None
        outcome = self._refusal(op, asker) or step(self._turn(), op, asker)
        if self.state.memory.of_broker.wants_room:
            self.kick()
        return outcome

    def _encoded(self, record: GroupRecord) -> KeyValue:
        return encode_group_record(record)

    def _producer(self, record: GroupRecord) -> ProducerLife | None:
        return producer_of(record)

    def _applied(self, key: str | None, records: list[tuple[int, GroupRecord]], size: int) -> None:
        """Apply records, and charge their bytes to the group's owner."""
        # Looked up before and after: a record may make or remove the group.
        group = self.state.groups.get(key or "")
        for offset, record in records:
            apply(self.state, record, offset)
        group = group or self.state.groups.get(key or "")
        if group is not None and group.owner:
            self.state.memory.of_broker.rate.charge(group.owner, size, self._manager.now_ms())
            self._manager.disk_shares.recorded(group.owner, size)

    def _written_to(self, key: str | None) -> int:
        return self.state.written_to(key)

    def _committed(self, high_watermark: int) -> None:
        self.state.committed(high_watermark)

    def _operation_due(self, key: object) -> Operation:
        return due(key)  # type: ignore[arg-type]
